"""Points along a run that is learned again: held-out answers by proxy and gold, and how far."""

import math

import pytest
import torch

from posttrain.data.rows import TokenRow
from posttrain.data.schemas import CURVE
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy
from posttrain.learning.models.reward_head import (
    save_reward_model,
    start_reward_model,
)
from posttrain.learning.rl.series import read_heldout, steps_of, sum_of_divergences
from posttrain.learning.rollouts.diagnostics.base import Seen
from posttrain.learning.rollouts.diagnostics.gold_curve import GoldCurve
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.rl import TASK as RL
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run as train
from tasks.series import TASK
from tasks.series.config import SeriesConfig
from tasks.series.stage import run

RUN = {
    "steps": 4,
    "problems_per_step": 6,
    "group_size": 4,
    "max_tokens": 8,
    "draw": {"sampler": "uniform"},
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "updates": {"minibatches": 2},
    "checkpoint_every": 0,
}


@pytest.fixture(scope="module")
def made(guesser, coins_path, tmp_path_factory):
    """Ports of a series behind a run."""
    folder = tmp_path_factory.mktemp("run")
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    given = {"policy": guesser, "problems": coins_path}
    train(RlStageConfig(**RUN), given, outputs, StageContext.quiet(folder / "scratch", seed=3))
    model = start_reward_model(guesser, parameterization="likelihood")
    save_reward_model(model, folder / "model")
    return given | {
        "rollouts": outputs["rollouts"],
        "run_report": outputs["report"],
        "reward_model": folder / "model",
    }, outputs["policy"]


def series(inputs, folder, *, seed=3, **settings):
    folder.mkdir(exist_ok=True)
    config = SeriesConfig(**{"run": RUN, "points": 2, "num_samples": 2, **settings})
    outputs = {"curve": folder / "curve.parquet"}
    run(config, inputs, outputs, StageContext.quiet(folder / "scratch", seed=seed))
    return outputs["curve"]


def test_a_series_begins_at_the_reference_and_ends_at_the_policy_of_the_run(made, tmp_path):
    inputs, trained = made
    path = series(inputs, tmp_path)
    curve = read_table(path, CURVE)
    by_step = {
        step: dict(rows.select("metric", "value").iter_rows())
        for (step,), rows in curve.group_by("step", maintain_order=True)
    }
    assert [*by_step] == [0, 2, 4]
    assert by_step[0]["rl/kl"] == pytest.approx(0, abs=1e-9)
    assert 0 < by_step[2]["rl/kl"] != by_step[4]["rl/kl"] > 0
    assert all(0 <= each["rl/reward/gold"] <= 1 for each in by_step.values())
    policy = load_policy(trained)
    params = SamplingParams(max_tokens=8, num_samples=2, seed=purpose_seed(3, "series"))
    heldout = read_heldout(inputs, params, device="cpu")
    with open_engine(TorchEngine(), policy) as engine:
        alone = heldout.measure(policy, engine, report=lambda _done: None)
    assert by_step[4] == pytest.approx(alone, rel=1e-5)
    again = series(inputs, tmp_path / "again")
    assert again.read_bytes() == path.read_bytes()
    found = GoldCurve(window=0.5).diagnose(Seen(curves={"run": path}, reference="sft"))
    steps = [by_step[step] for step in (0, 2, 4)]
    roots = [math.sqrt(each["rl/kl"] * each["rl/length"]) for each in steps]
    # Means of two neighbors each, as half of three is.
    assert found.figures["run"]["divergence"] == pytest.approx((roots[1] + roots[2]) / 2)
    gains = [
        (steps[2][name] - steps[0][name]) / 2 for name in ("rl/reward/proxy", "rl/reward/gold")
    ]
    assert found.figures["run"]["proxy_gain"] == pytest.approx(gains[0])
    assert found.figures["run"]["gold_gain"] == pytest.approx(gains[1])


def test_the_divergence_is_that_over_the_whole_vocabulary(made):
    inputs, trained = made
    policies = [load_policy(path) for path in (trained, inputs["policy"])]
    rows = [TokenRow((1, 2, 3, 4), start=2), TokenRow((1, 2, 3), start=1)]
    hand = 0.0
    for row in rows:
        with torch.no_grad():
            own, other = (
                each.model(torch.tensor([row.ids])).logits[0].double().log_softmax(-1)
                for each in policies
            )
        for place in range(row.start, len(row.ids)):
            hand += float((own[place - 1].exp() * (own[place - 1] - other[place - 1])).sum())
    assert hand > 0
    assert sum_of_divergences(*policies, rows) == pytest.approx(hand, rel=1e-4)
    assert sum_of_divergences(policies[0], policies[0], rows) == 0


def test_another_way_than_that_of_the_run_is_refused(made, tmp_path):
    inputs, _ = made
    with pytest.raises(UserError, match=r"led to weights .*, and the run's are"):
        series(inputs, tmp_path, seed=4)


def test_points_are_spread_evenly_and_end_with_the_run():
    assert steps_of(5, 60) == [12, 24, 36, 48, 60]
    assert steps_of(5, 3) == [1, 2, 3]


def planned(run=RUN, seed_as="rl", start="sft"):
    """What the plan says of a series behind a run."""

    def ref(kind, stage, output):
        return Reference(kind, stage=stage, output=output)

    policy = ref(ArtifactKind.CHECKPOINT, "sft", "policy")
    trained = Stage("rl", RL, RlStageConfig(**RUN, engine={"kind": "torch"}), {"policy": policy})
    inputs = {
        "policy": ref(ArtifactKind.CHECKPOINT, start, "policy"),
        "rollouts": ref(ArtifactKind.ROLLOUTS, "rl", "rollouts"),
    }
    stage = Stage("series", TASK, SeriesConfig(run=run), inputs, seed_as=seed_as)
    TASK.refuse(stage, Dag({"rl": trained, "series": stage}))


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"run": RUN | {"group_size": 8}}, "series.run: .* of rl, whose parameters are others"),
        ({"seed_as": None}, "add seed_as: rl"),
        ({"start": "probe"}, r"series.inputs.policy: rl has sft.policy there"),
    ],
)
def test_what_is_not_the_run_is_refused_by_the_plan(said, complaint):
    planned()
    with pytest.raises(UserError, match=complaint):
        planned(**said)
