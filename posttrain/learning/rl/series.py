"""Points along a run of RL: held-out answers by proxy and gold, and how far the policy has gone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.data.batching import length_buckets
from posttrain.data.contexts import in_context
from posttrain.data.rows import TokenRow, TokenTable
from posttrain.learning.maths.divergence import divergence
from posttrain.learning.models.load import Policy, load_policy
from posttrain.learning.models.logprobs import token_statistics
from posttrain.learning.models.reward_head import RewardModel, load_reward_model
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.scoring import make_prompts, read_problems, sample_and_score_all
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rollouts.engines.base import RolloutEngine

_BATCH_TOKENS = 2048
"""Of a pass: each of its drawn tokens has two distributions over the whole vocabulary."""


def steps_of(points: int, steps: int) -> list[int]:
    """Spread points evenly over a run, its end among them.

    >>> steps_of(4, 10)
    [2, 5, 8, 10]

    Args:
        points: How many, behind the start.
        steps: Of the run.

    Returns:
        Steps from 1, rising; fewer where the run has fewer.

    """
    return sorted({round(steps * place / points) for place in range(1, points + 1)} - {0})


@dataclass(frozen=True)
class HeldOut:
    """What every point is measured by: the same problems, by the same randomness."""

    problems: "Sequence[Problem]"
    """Held-out ones, which are answered in one turn."""
    params: SamplingParams
    """At temperature 1, which the divergence is of."""
    reference: Policy
    """What the divergence is measured from."""
    proxy: RewardModel
    """What training was paid by."""
    verify: VerifierCache
    """What is meant."""

    def measure(
        self, policy: Policy, engine: "RolloutEngine", *, report: Callable[[int], None]
    ) -> Mapping[str, float]:
        """Draw answers from a policy, and grade them.

        Args:
            policy: As it is.
            engine: What draws from it, up to date.
            report: Hears how many problems are done.

        Returns:
            By the names that RL has for its own rollouts: `rl/reward/proxy`, the mean score of the
            reward model; `rl/reward/gold`, the share that the verifier accepts; `rl/length`, drawn
            tokens of an answer; `rl/kl`, KL(policy || reference) in nats per drawn token, over the
            whole vocabulary at each. The last two multiplied are the divergence of an answer.

        Raises:
            UserError: No answer could be judged.

        """
        prompts = make_prompts(policy.tokenizer, self.problems)
        drawn = sample_and_score_all(
            engine, self.problems, prompts, self.params, verify=self.verify, report=report
        )
        gold = [each.score.correct for each in drawn if each.score.correct is not None]
        if not gold:
            raise UserError("series: no held-out answer could be judged; look at their verifiers")
        asked = {prompt.id: prompt.token_ids for prompt in prompts}
        rows = [
            TokenRow(
                (*asked[each.problem.id], *each.sample.token_ids), start=len(asked[each.problem.id])
            )
            for each in drawn
        ]
        texts = [each.sample.text for each in drawn]
        posed = [each.problem for each in drawn]
        contexts = in_context([each.prompt for each in posed], [each.context for each in posed])
        tokens = sum(row.num_learned for row in rows)
        return {
            "rl/reward/proxy": fmean(self.proxy.score(contexts, texts)),
            "rl/reward/gold": fmean(gold),
            "rl/kl": sum_of_divergences(policy, self.reference, rows) / tokens,
            "rl/length": tokens / len(rows),
        }


def read_heldout(inputs: Mapping[str, Path], params: SamplingParams, *, device: str) -> HeldOut:
    """Read what points are measured by.

    Args:
        inputs: By port: `problems`, `verifiers` where they are connected, `reward_model`, and the
            run's `reference`, or else the `policy` that it started from.
        params: How answers are drawn.
        device: Where models go, as torch names it.

    Returns:
        All of it, loaded.

    """
    reference = load_policy(inputs.get("reference", inputs["policy"]), device=device)
    reference.model.eval()
    problems = read_problems(inputs["problems"], inputs.get("verifiers"))
    proxy = load_reward_model(inputs["reward_model"], device=device)
    return HeldOut(problems, params, reference, proxy, VerifierCache())


@torch.no_grad()
def sum_of_divergences(policy: Policy, reference: Policy, rows: Sequence[TokenRow]) -> float:
    """Add up KL(policy || reference) over the whole vocabulary, at every drawn token of some rows.

    Args:
        policy: Who drew them.
        reference: What it is compared with, of the same tokens.
        rows: Prompts and what was drawn behind them.

    Returns:
        In nats. Over answers that the policy drew at temperature 1, the sum by the number of rows
        tends to the divergence of whole answers.

    """
    table = TokenTable(rows, pad=int(policy.tokenizer.pad_token_id))
    total = 0.0
    for part in length_buckets(range(len(rows)), [len(row.ids) for row in rows], _BATCH_TOKENS):
        batch = table.batch(part).to(policy.model.device)
        of_both: list[Tensor] = []
        for each in (policy, reference):
            found = token_statistics(
                each.model, batch.input_ids_BT, wanted_BT=batch.wanted_BT, with_distribution=True
            )
            assert found.log_all_NV is not None
            of_both.append(found.log_all_NV.double())
        # In double precision: at the start the two are nearly equal.
        total += float(divergence(*of_both, kind="reverse_kl").sum())
    return total
