"""The fixtures of the golden values, and presets with some switches set otherwise."""

from types import SimpleNamespace

import pytest
import torch
from pydantic import TypeAdapter

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.credit_assignment import advantages, generation_marks
from posttrain.learning.algorithms.presets import AlgorithmConfig


@pytest.fixture(scope="session")
def choose():
    """`choose("dapo", ratio={"low": 0.1})`: a preset with some switches set otherwise."""
    chosen = TypeAdapter(AlgorithmConfig)
    return lambda name, **changes: chosen.validate_python({"preset": name, **changes})


@pytest.fixture
def fixture_f():
    """Two sequences of three and two tokens; rewards 2 and 0 give the advantages +1 and -1."""
    return SimpleNamespace(
        new=torch.tensor([[-0.9, -2.3, -0.4], [-1.0, -0.9, 0.0]]),
        old=torch.tensor([[-1.0, -2.0, -0.5], [-0.7, -1.2, 0.0]]),
        reference=torch.tensor([[-1.1, -1.9, -0.6], [-0.8, -1.0, 0.0]]),
        rollout=torch.tensor([[-1.05, -1.8, -0.5], [-0.6, -1.3, 0.0]]),
        mask=torch.tensor([[True, True, True], [True, True, False]]),
        rewards=torch.tensor([2.0, 0.0]),
        group=torch.tensor([0, 0]),
    )


@pytest.fixture
def fixture_g():
    """Group a, half of it successes, and group b with graded rewards; three tokens each."""
    return RolloutBatch(
        rewards_B=torch.tensor([1.0, 0.0, 0.0, 1.0, 0.2, 0.9, 0.4, 0.1]),
        group_B=torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]),
        mask_BT=torch.ones(8, 3, dtype=torch.bool),
    )


@pytest.fixture
def batch_of():
    """Makes the learner's batch of rollouts in the way the learner does: advantages first."""

    def make(algorithm, data, **more):
        # Three tokens a turn, the reward in the last one; turns 0 and 2 begin in one state.
        place_T = torch.arange(data.mask.shape[1]) // 3
        turn_BT = torch.where(data.mask, place_T, -1)
        paid_BK = torch.zeros(len(data.mask), int(place_T.max()) + 1, dtype=data.rewards.dtype)
        paid_BK.scatter_(1, turn_BT.amax(-1, keepdim=True), data.rewards[:, None])
        outcomes = RolloutBatch(
            rewards_B=data.rewards,
            group_B=data.group,
            mask_BT=data.mask,
            truncated_B=torch.zeros(len(data.group), dtype=torch.bool),
            sampled_logprobs_BT=data.rollout,
            reference_logprobs_BT=data.reference,
            # What a critic might say: right ones look better from the start.
            values_BT=(data.rewards[:, None] - 0.4).to(data.new.dtype).expand_as(data.new),
            token_ids_BT=torch.arange(data.new.shape[1]).expand_as(data.new) % 3,
            turn_BT=turn_BT,
            turn_rewards_BK=paid_BK,
            # What a critic of turns might say: the first turn of a rollout is better than the last.
            turn_advantages_BT=data.rewards[:, None] - 0.3 * place_T,
            state_BK=(torch.arange(paid_BK.shape[1]) % 2).expand_as(paid_BK),
            # All of them of this step, and over.
            earlier_B=torch.zeros_like(data.group),
            unfinished_B=torch.zeros(len(data.group), dtype=torch.bool),
        )
        credit = advantages(algorithm, outcomes, max_tokens=data.mask.shape[1])
        groups = [data.rewards[data.group == group] for group in data.group]
        marks = generation_marks(algorithm, outcomes, credit.advantages_BT)
        return PolicyBatch(
            mask_BT=data.mask,
            group_B=data.group,
            group_mean_B=torch.stack([each.mean() for each in groups]),
            group_deviation_B=torch.stack([each.std(correction=0) for each in groups]),
            # Any number of each token that a learner might have found.
            vocabulary_ratio_BT=data.reference - data.old,
            advantages_BT=credit.advantages_BT.float(),
            sampled_logprobs_BT=data.rollout,
            old_logprobs_BT=data.old,
            reference_logprobs_BT=data.reference,
            marks_KBT=torch.stack(marks) if marks else None,
            **more,
        )

    return make
