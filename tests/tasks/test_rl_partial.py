"""Episodes that are carried over steps: each token is of the policy that drew it, to the bit."""

import copy
import math
from dataclasses import replace
from typing import Literal

import pytest
import torch

from posttrain.backends.cluster import local_pool
from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.objective import policy_objective
from posttrain.learning.episodes.episode import Segment, Span
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.rl.batch import TrainSample, collate
from posttrain.learning.rl.producers.base import SamplingRound, Workbench
from posttrain.learning.rl.producers.episodes import Episodes
from posttrain.learning.rl.producers.partial import Partial, PartialProduction
from posttrain.learning.rl.replay import replay
from posttrain.learning.rl.store import stored_groups
from posttrain.learning.rollouts.engines.base import FinishReason, Sample, SamplingParams
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.learning.rollouts.scoring import make_prompts
from posttrain.stage.context import StageContext
from tasks.rl.config import RlStageConfig
from tests.learning.episodes.environments import Counting
from tests.tasks.exact import run_with_ends
from tests.tasks.test_rl_ahead import DECOUPLED, SMALL, InTurn, same, trained

# Two turns of up to six tokens, of which two are drawn in a step.
CARRIED = {
    "kind": "partial",
    "environment": Counting(rounds=1),
    "rounds": 1,
    "at_once": 2,
    "most_steps": 2,
}
SETTINGS = {"staleness": 0, "producer": CARRIED}
REMOTE = {"kind": "openenv", "url": "http://127.0.0.1:9"}


class Uneven(Counting):
    """Ask again as often as the number in the prompt says."""

    kind: Literal["uneven"] = "uneven"

    def start(self, problem, seed):
        asked = super().start(problem, seed)
        return asked._replace(state=asked.state | {"left": int(problem.prompt.split()[1])})


@pytest.fixture(scope="module")
def inputs(guesser, coins_path):
    return {"policy": guesser, "problems": coins_path}


@pytest.fixture(scope="module")
def ran(inputs, tmp_path_factory):
    """What a run wrote, and the weights of the policy that drew in each of its steps."""
    weights, produce = {}, PartialProduction.produce

    def noting(self, problems, prompts, at):
        policy = self.seats.by_role["policy"].table.policy.model
        weights[at.version] = copy.deepcopy(policy.state_dict())
        return produce(self, problems, prompts, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartialProduction, "produce", noting)
        outputs, _ = trained(inputs, tmp_path_factory.mktemp("carried"), **SETTINGS)
    return outputs, weights


def test_every_token_has_version_and_logprob_of_the_policy_that_drew_it(ran, guesser):
    outputs, weights = ran
    model, told = load_policy(guesser).model, []
    rows = [
        (step, row)
        for step, groups in stored_groups(read_table(outputs["rollouts"], ROLLOUTS))
        for group in groups
        for row in group
    ]
    for version, state in weights.items():
        model.load_state_dict(state)
        for step, row in rows:
            by = row.token_versions or (row.policy_version,) * row.num_drawn
            # Nothing of a later policy, nothing older than the bound, and time goes one way.
            assert list(by) == sorted(by)
            assert step - 1 - 2 <= by[0] <= by[-1] <= step - 1
            ids, wanted = torch.tensor([row.token_ids]), torch.tensor([row.drawn])
            with torch.no_grad():
                found, _ = wanted_logprobs(model, ids, wanted_BT=wanted)
            pairs = zip(found.tolist(), row.logprobs, by, strict=True)
            told += [abs(now - then) for now, then, each in pairs if each == version]
    assert len(told) == sum(row.num_drawn for _, row in rows)
    assert max(told) < 1e-5
    # What two policies drew is there, and some of it within one turn.
    several = [row for _, row in rows if row.token_versions]
    assert any(
        len({span.turn for span in row.spans if span.drawn}) < len(row.versions) for row in several
    )
    # By the weights that it did not draw, the distance is another.
    gaps = read_table(outputs["curve"], CURVE)
    assert gaps.filter(metric="rl/logprob_gap")["value"].max() < 1e-5
    assert gaps.filter(metric="rl/drift")["value"].max() > 1e-4
    assert gaps.filter(metric="rl/policies")["value"].max() > 1


def test_equal_calls_give_equal_bits_and_the_rows_alone_equal_weights(ran, inputs, tmp_path):
    outputs, _ = ran
    again, _ = trained(inputs, tmp_path / "again", **SETTINGS)
    same(outputs, again)
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    config = RlStageConfig(**SMALL | SETTINGS)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


@pytest.mark.slow
def test_a_run_that_ends_at_any_step_is_gone_on_with_to_the_same_bits(ran, inputs, tmp_path):
    whole, _ = ran
    config = RlStageConfig(**SMALL | SETTINGS | {"checkpoint_every": 1})

    outputs = run_with_ends(config, inputs, whole, tmp_path / "killed", (1, 3, 4))
    same(whole, outputs)


@pytest.mark.slow
def test_what_is_carried_over_is_drawn_ahead_to_the_bits_of_one_process(
    inputs, tmp_path, monkeypatch
):
    monkeypatch.setattr(local_pool, "LocalPool", InTurn)
    settings = {"staleness": 1, "producer": CARRIED}
    alone, _ = trained(inputs, tmp_path / "alone", **settings)
    other, _ = trained(inputs, tmp_path / "ahead", ahead=1, **settings)
    same(alone, other)
    steps = [step for step, _ in stored_groups(read_table(alone["rollouts"], ROLLOUTS))]
    assert steps == sorted(steps)


def test_under_weights_that_stay_an_episode_is_the_one_that_was_never_interrupted(guesser, coins):
    """Turns are the unit: where a turn is drawn at once, all tokens are equal."""
    policy = load_policy(guesser)
    engine = TorchRolloutEngine(policy.model, policy.tokenizer, batch_size=64)
    bench = Workbench(engine, None, policy.tokenizer, policy)
    problems, params = coins[:6:2], SamplingParams(max_tokens=6, num_samples=3, seed=11)
    prompts = make_prompts(policy.tokenizer, problems)
    at = SamplingRound(0, params, 0, 0)
    environment = Uneven()
    whole = Episodes(environment=environment).start(bench).produce(problems, prompts, at)
    carried = Partial(environment=environment, rounds=1, most_steps=9).start(bench)
    made, begun = [], (problems, prompts)
    for step in range(9):
        engine.update(step)
        # The seed of a later step is another: what began goes on by its own.
        now = replace(at, step=step, version=step, params=replace(params, seed=11 + step))
        made += carried.produce(*begun, now)
        begun = ((), ())
        if not carried.at_work_on:
            break
    assert step == 2
    for turns, (before, after) in enumerate(zip(whole, made, strict=True), start=1):
        for one, other in zip(before, after, strict=True):
            same_fields = ("problem_id", "episode", "token_ids", "spans", "text", "end")
            assert [getattr(one, n) for n in same_fields] == [
                getattr(other, n) for n in same_fields
            ]
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
            assert (one.versions, other.versions) == ((0,) * turns, tuple(range(turns)))


def test_a_turn_is_one_span_for_each_policy_that_drew_of_it():
    def drawn(ids, version):
        logprobs = tuple(-float(each) for each in ids)
        return Sample("p", 0, ids, logprobs, "", FinishReason.LENGTH, version)

    segment = Segment("policy").read((7, 8)).drew_part(drawn((1, 2), 4)).drew_part(drawn((3,), 4))
    segment = segment.drew_part(drawn((4,), 5))
    assert segment.begun == (1, 2, 3, 4)
    assert segment.spans[1:] == (Span(2, 5, 0, True), Span(5, 6, 0, True))
    assert segment.versions == (4, 5)
    assert segment.until_said() == Segment("policy")
    over = segment.drew(drawn((5,), 5), text="all")
    assert (over.begun, over.texts, over.versions) == ((), ("all",), (4, 5))
    assert over.spans[-1] == Span(5, 7, 0, True)
    more = over.read((9,)).drew_part(drawn((6,), 6))
    assert more.spans[-2:] == (Span(7, 8, 1, False), Span(8, 9, 1, True))
    assert more.until_said() == over


def logs(*values):
    return torch.tensor([[math.log(value) for value in values]])


def test_each_token_is_corrected_by_the_policy_that_drew_it():
    """Two tokens by policies 3 and 5, learned from at step 5, where a step makes two updates."""
    sampled, old, new = logs(0.5, 0.25), logs(0.25, 0.25), logs(0.3, 0.3)
    batch = PolicyBatch(
        mask_BT=torch.tensor([[True, True]]), advantages_BT=torch.tensor([[1.0]]),
        sampled_logprobs_BT=sampled, old_logprobs_BT=old,
    )  # fmt: skip
    surrogate = {"kind": "clip", "low": 0.1, "high": 0.1}
    decoupled = Algorithm(**DECOUPLED, surrogate=surrogate)
    # old / engine is 0.5 where policy 3 drew and 1 where 5 did; 0.3 / 0.25 is clipped to 1.1.
    loss, _ = policy_objective(decoupled, new, batch=batch, denominator=2)
    assert float(loss) == pytest.approx(-(0.5 * 1.1 + 1.0 * 1.1) / 2)
    # One ratio for both, as if policy 3 had drawn all, would give 0.25 / 0.5 for each.
    # Interpolated: before its second update (index 1) policy 3 is 4 updates behind the one that
    # a step begins with, of 5 to the present one; of policy 5 the step's first one is itself.
    sample = TrainSample(
        token_ids=(9, 1, 2), drawn=(False, True, True), logprobs=tuple(sampled[0].tolist()),
        policy_version=3, advantages=(1.0,), versions=(3, 5),
    )  # fmt: skip
    laid = collate([sample], pad=0, device="cpu", positions=[(4 / 5, 0.0)])
    assert laid.position_BT.tolist() == [[0.0, pytest.approx(0.8), 0.0]]
    near = Algorithm(**DECOUPLED | {"old_policy": "interpolated"}, surrogate=surrogate)
    batch = replace(batch, position_BT=laid.position_BT[:, 1:], old_logprobs_BT=None)
    # Old: 0.5 (0.3 / 0.5)^0.8, and 0.25. Weights: 0.6^0.8, and 1. Ratios: 0.6^0.2, and 1.2.
    loss, _ = policy_objective(near, new, batch=batch, denominator=2)
    assert float(loss) == pytest.approx(-(0.6**0.8 * 0.6**0.2 + 1.0 * 1.1) / 2)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"temperature": {"from": 1.0, "to": 1.5, "over": 3}}, "temperature is a schedule"),
        ({"stop": {"metric": "rl/reward", "keep": "best"}}, "what producer carries over"),
        (
            {"algorithm": {"surrogate": "reinforce"}, "updates": {}},
            "up to 2 steps older would bias",
        ),
        ({"producer": CARRIED | {"most_seconds": 2.0}}, "leave it out"),
        ({"producer": CARRIED | {"environment": REMOTE}}, "take up again"),
        ({"producer": CARRIED | {"branching": {"kind": "entropy_rise"}}}, "branching"),
        (
            {"draw": {"instructions": {"kind": "population", "texts": ["Count.", "Guess."]}}},
            "leave draw.instructions out",
        ),
    ],
)
def test_what_cannot_be_carried_over_is_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        RlStageConfig(**SMALL | SETTINGS | settings)
