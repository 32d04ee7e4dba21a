"""Second losses of RL on tables: their values, their rows, and that a run of them is exact."""

import math
from random import Random

import polars as pl
import pytest
import torch

from posttrain.data.schemas import COMPLETIONS, CURVE, Completion, completions_table
from posttrain.data.tables import read_table, write_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.balances.base import OWN_ROLLOUTS as OWN
from posttrain.learning.rl.balances.improvement import (
    ImprovementBalance,
    explored,
    improvement,
    mixture,
)
from posttrain.learning.rl.balances.progress import ProgressBalance
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.rehearsals.base import InTurn, RehearsalRow
from posttrain.learning.rl.rehearsals.divergence import DivergenceRehearsal
from posttrain.learning.rl.rehearsals.failures import Failures
from posttrain.learning.rl.replay import replay
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run
from tests.way import ROOT


def test_generators_by_hand():
    # At u = 2 the forward one is 1 - log 2 and the other 2 log 2 - 3 log 1.5; at 1 both are 0.
    begun = torch.tensor([[math.log(0.25), math.log(0.5)]])
    now = torch.tensor([[math.log(0.5), math.log(0.5)]], requires_grad=True)
    forward = DivergenceRehearsal().token_loss(now, begun)
    assert forward.tolist()[0] == pytest.approx([1 - math.log(2), 0.0])
    shannon = DivergenceRehearsal(generator="jensen_shannon").token_loss(now, begun)
    by_hand = 2 * math.log(2) - 3 * math.log(1.5)
    assert shannon.tolist()[0] == pytest.approx([by_hand, 0.0], abs=1e-6)
    (slope,) = torch.autograd.grad(shannon.sum(), now)
    # d f(u) / d log u = u log(2u / (u + 1))
    assert slope.tolist()[0] == pytest.approx([2 * math.log(4 / 3), 0.0], abs=1e-6)


def test_on_samples_of_the_first_policy_the_mean_is_twice_the_jensen_shannon_divergence():
    p0, p = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.5, 0.3])
    part = DivergenceRehearsal(generator="jensen_shannon")
    found = (p0 * part.token_loss(p.log(), p0.log())).sum()
    middle = (p0 + p) / 2
    wanted = (p0 * (p0 / middle).log()).sum() + (p * (p / middle).log()).sum()
    assert float(found) == pytest.approx(float(wanted))


def test_only_what_was_mastered_is_rehearsed():
    rows = [RehearsalRow("p", rate) for rate in (1.0, 0.875, 0.5)]
    assert [DivergenceRehearsal().admits(row) for row in rows] == [True, False, False]
    assert sum(DivergenceRehearsal(least_solved=0.875).admits(row) for row in rows) == 2


def test_every_pass_over_a_table_has_each_row_once_in_an_order_of_its_own():
    stream = InTurn(5)
    drawn = [each for at in range(10) for each in stream.choose(3, seed=1, step=0, index=at)]
    passes = [drawn[at : at + 5] for at in range(0, 30, 5)]
    assert all(sorted(each) == list(range(5)) for each in passes)
    assert len({tuple(each) for each in passes}) > 3
    assert stream.choose(12, seed=1, step=0, index=0) == drawn[:12]


class Drawn:
    def __init__(self, problem_id, solved):
        self.problem_id, self.solved = problem_id, solved


def test_failed_problems_wait_the_latest_first_until_they_suffice():
    part = Failures(rows=2)
    rows = [RehearsalRow(name, 1.0) for name in ("a", "b", "c", "c")]
    stream = part.start(rows)

    def step(*groups):
        stream.observe([[Drawn(name, each) for each in solved] for name, solved in groups])
        return list(stream.choose(2, seed=0, step=0, index=0))

    # Solved once, not judged, and without a row: none of these is collected.
    assert step(("a", [False, True]), ("b", [None, None]), ("x", [False])) == []
    assert step(("a", [False, None])) == []
    again = part.start(rows)
    again.load_state_dict(stream.state_dict())
    assert again.waiting == ["a"]
    b, c = step(("b", [False]), ("c", [False]))
    assert (b, c in (2, 3)) == (1, True)
    assert stream.waiting == ["a"]


def test_weights_by_hand():
    balance = ProgressBalance(window=2).start([OWN, "a"])
    assert balance.weights() == {OWN: 1.0, "a": 1.0}
    for rollouts, a in ((0.8, 4.0), (0.8, 4.0), (0.4, 3.0), (0.4, 5.0)):
        balance.observe({OWN: rollouts, "a": a})
    # Half of what it was and steady; what it was, and by a quarter unsteady.
    powers = [math.exp(0.5), math.exp(1.25)]
    found = balance.weights()
    assert found[OWN] == pytest.approx(2 * powers[0] / sum(powers))
    assert found["a"] == pytest.approx(2 * powers[1] / sum(powers))
    again = ProgressBalance(window=2).start([OWN, "a"])
    again.load_state_dict(balance.state_dict())
    assert again.weights() == found


SETTINGS = {
    "steps": 4,
    "problems_per_step": 8,
    "group_size": 2,
    "max_tokens": 6,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "updates": {
        "minibatches": 2,
        "rehearsals": {
            "likelihood": {"rows": 3, "coefficient": 0.1},
            "divergence": {"rows": 4, "least_solved": 0.5},
            "failures": {"rows": 2},
        },
        "balance": {"kind": "progress", "window": 1},
    },
    "checkpoint_every": 1,
}


@pytest.fixture(scope="module")
def inputs(guesser, coins, coins_path, tmp_path_factory):
    rows = [
        Completion(coin, f"#### {said}", "teacher", float(said == coin.answer), right, "")
        for coin in coins
        for said in ("1", "2")
        for right in [said == coin.answer]
    ]
    path = tmp_path_factory.mktemp("rehearsed") / "traces.parquet"
    write_table(completions_table(rows), path, COMPLETIONS)
    names = SETTINGS["updates"]["rehearsals"]
    return {
        "policy": guesser,
        "problems": coins_path,
        **{f"rehearsals.{name}": path for name in names},
    }


def trained(inputs, folder, **settings):
    config = RlStageConfig.parse(SETTINGS | settings, where="rl")
    folder.mkdir(exist_ok=True)
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    run(config, inputs, outputs, StageContext.quiet(folder / "scratch", seed=3))
    return config, outputs, weights_digest(load_policy(outputs["policy"]).model)


@pytest.mark.slow
def test_a_run_that_rehearses_is_replayed_and_gone_on_with_to_the_same_weights(
    inputs, tmp_path, monkeypatch
):
    config, outputs, digest = trained(inputs, tmp_path / "whole")
    assert (
        replay(config, inputs, outputs["rollouts"], StageContext.quiet(tmp_path / "replay", seed=3))
        == digest
    )
    curve = read_table(outputs["curve"], CURVE)

    def values(name):
        return curve.filter(metric=f"rl/{name}")["value"].to_list()

    assert values("rehearsal_likelihood_rows") == [3.0] * 4
    assert 2.0 in values("rehearsal_failures_rows")
    assert values("balance_likelihood")[0] == 1.0
    assert values("balance_likelihood")[-1] != 1.0
    assert sum(values(f"balance_{name}")[-1] for name in ("likelihood", "divergence", OWN)) == (
        pytest.approx(3.0)
    )
    # It begins at u = 1, where f is 0, and the second of the two updates has left that.
    first, *_, last = values("rehearsal_divergence")
    assert 0 < first < last

    update = PolicyLearner.update

    def until_third(self, samples, **given):
        if (given["step"], given["index"]) == (2, 1):
            raise ConnectionError
        return update(self, samples, **given)

    with monkeypatch.context() as broken:
        broken.setattr(PolicyLearner, "update", until_third)
        with pytest.raises(ConnectionError):
            trained(inputs, tmp_path / "twice")
    _, again, resumed = trained(inputs, tmp_path / "twice")
    assert resumed == digest
    assert read_table(again["curve"], CURVE).equals(curve)


def test_a_table_in_which_nothing_is_right_is_refused(inputs, tmp_path):
    path = tmp_path / "wrong.parquet"
    frame = read_table(inputs["rehearsals.failures"], COMPLETIONS)
    write_table(frame.with_columns(verified=pl.lit(value=False)), path, COMPLETIONS)
    with pytest.raises(UserError, match="rl.inputs.rehearsals.failures: no row of it"):
        trained({**inputs, "rehearsals.failures": path}, tmp_path / "run")


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ({"rehearsals": {"rollouts": {"kind": "likelihood"}}}, "may not be called rollouts"),
        ({"balance": "progress", "rehearsals": {"failures": {}}}, "there is none that is a term"),
    ],
)
def test_what_cannot_be_weighed_is_refused(updates, message):
    with pytest.raises(UserError, match=message):
        RlStageConfig.parse({"updates": updates}, where="rl")


def test_a_rehearsal_without_a_table_and_a_table_without_one_are_refused(tmp_path):
    def recipe(text):
        file = tmp_path / "recipe.yaml"
        file.write_text(f"flow: flows.post_training\nformat: 3\nrl: {text}\n")
        return load_recipe(file).resolve(ROOT)

    with pytest.raises(UserError, match=r"asks rehearsals.likelihood, which is not connected"):
        recipe("{updates: {rehearsals: {likelihood: {}}}}")
    with pytest.raises(UserError, match=r"rl.inputs.rehearsals.general: nothing"):
        recipe("{inputs: {rehearsals: {general: probe.samples}}}")


def test_a_mixture_follows_what_was_seen_to_improve_it():
    assert improvement(1.0, 0.99) == pytest.approx(
        100 * math.e * math.tanh(math.e * math.sqrt(0.99) * 0.01**3)
    )
    assert improvement(1.0, 2.0) == -1
    assert improvement(0.0, 1.0) == 0
    part = ImprovementBalance(every=2, explore=0.0, explore_last=0.0, width=0.2, rollouts=0.5)
    work = part.start(["rollouts", "dull", "useful"])
    assert work.weights() == {"rollouts": 0.5, "dull": 1.0, "useful": 1.0}
    # Losses fall by as much as what is useful has weight, and rise where it has little.
    loss, shares = 1.0, []
    for _ in range(24):
        weights = work.weights()
        shares.append(weights["useful"] / 2)
        assert sum(weights.values()) == pytest.approx(2.5)
        loss *= 1 - 0.05 * (weights["useful"] - 0.9)
        work.observe({"rollouts": 1.0, "dull": 1.0, "useful": loss})
    assert shares[:4] == [0.5] * 4
    assert min(shares[-6:]) > 0.6


def test_a_mixture_goes_on_from_its_state():
    part = ImprovementBalance(every=1, explore=0.5, explore_last=0.5)
    one, other = (part.start(["rollouts", "a", "b", "c"]) for _ in range(2))

    def weighed(work, steps):
        found = []
        for step in steps:
            found.append(work.weights())
            work.observe({name: 1.0 / (step + 1 + place) for place, name in enumerate("abc")})
        return found

    whole = weighed(one, range(8))
    begun = weighed(other, range(5))
    resumed = part.start(["rollouts", "a", "b", "c"])
    resumed.load_state_dict(other.state_dict())
    assert begun + weighed(resumed, range(5, 8)) == whole
    assert len({tuple(each.values()) for each in whole}) > 5


def test_runs_whose_losses_differ_explore_each_in_their_own_way():
    part = ImprovementBalance(every=1, explore=1.0, explore_last=1.0)

    def tried(first):
        work, found = part.start(["rollouts", "a", "b", "c", "d"]), []
        for step in range(8):
            work.observe(dict.fromkeys("abcd", first / (step + 1)))
            found.append(tuple(work.weights().values()))
        return found

    assert tried(1.0) == tried(1.0)
    # As another processor rounds them, it is the same run.
    assert tried(1.0) == tried(1.0 + 1e-6)
    assert len({tuple(tried(first)) for first in (1.0, 1.1, 1.2, 1.3)}) == 4


def test_exploration_tries_one_or_two_objectives_and_becomes_rarer():
    part = ImprovementBalance(explore=0.5, explore_last=0.2, explore_over=4)
    assert [part.exploring(number) for number in (0, 2, 4, 9)] == pytest.approx(
        [0.5, 0.35, 0.2, 0.2]
    )
    for seed in range(20):
        shares = explored(5, Random(seed))
        assert sum(shares) == pytest.approx(1)
        assert sum(share > 0.1 for share in shares) in (1, 2)
        assert sum(mixture(5, Random(seed))) == pytest.approx(1)


@pytest.mark.slow
def test_a_run_whose_mixture_is_chosen_is_replayed_and_gone_on_with(inputs, tmp_path, monkeypatch):
    # Both of two objectives may be tried alike: what is sure to differ is what is not tried.
    tries = {"explore": 0.0, "explore_last": 0.0}
    balance = {"kind": "improvement", "every": 1, "rollouts": 0.5, **tries}
    settings = {"updates": SETTINGS["updates"] | {"balance": balance}}
    config, outputs, digest = trained(inputs, tmp_path / "whole", **settings)
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    assert replay(config, inputs, outputs["rollouts"], context) == digest
    curve = read_table(outputs["curve"], CURVE)
    weights = curve.filter(metric="rl/balance_likelihood")["value"].to_list()
    assert weights[:2] == [1.0, 1.0]
    assert weights[-1] != 1.0
    assert set(curve.filter(metric=f"rl/balance_{OWN}")["value"]) == {0.5}
    update = PolicyLearner.update

    def until_third(self, samples, **given):
        if (given["step"], given["index"]) == (2, 1):
            raise ConnectionError
        return update(self, samples, **given)

    monkeypatch.setattr(PolicyLearner, "update", until_third)
    with pytest.raises(ConnectionError):
        trained(inputs, tmp_path / "killed", **settings)
    monkeypatch.setattr(PolicyLearner, "update", update)
    assert trained(inputs, tmp_path / "killed", **settings)[2] == digest
