"""On-policy distillation: three ways in which a teacher says what to learn, and what they share."""

from collections import Counter

import polars as pl
import pytest
import torch

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models import token_slices
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.rl import reference_divergence
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

SETTINGS = {
    "steps": 2,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 8,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "draw": {"train_on": "all"},
    "checkpoint_every": 0,
}
AT_ITS_PLACE = {"kind": "returns", "gamma": 0.0}
UNPAID = {"correct": "verifier"}
BY_COMPONENT = {
    "reward": {
        "components": UNPAID | {"teacher": "teacher"},
        "combine": {"kind": "sum", "weights": {"correct": 0.0}},
        "bonus_may_outweigh": True,
    },
    "algorithm": {"advantage": AT_ITS_PLACE},
}
UNREWARDED = {"components": UNPAID, "combine": {"kind": "sum", "weights": {"correct": 0.0}}}
BY_REFERENCE = {
    "reward": UNREWARDED,
    "algorithm": {
        "advantage": AT_ITS_PLACE,
        "regularizers": {"kl": {"coefficient": 1.0, "place": "reward", "estimator": "k1"}},
    },
}
WHOLE = {
    "reward": UNREWARDED,
    "algorithm": {"regularizers": {"distillation": {"coefficient": 1.0}}},
}


@pytest.fixture(scope="module")
def teacher(guesser, tmp_path_factory):
    """The guesser, moved away from where the student starts."""
    tuned = load_policy(guesser)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in tuned.model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=generator)
    path = tmp_path_factory.mktemp("taught") / "policy"
    save_policy(tuned.model, tuned.tokenizer, path)
    return path


def distilled(said, ports, folder, **more):
    """Run the stage, and return its config, its outputs and its scratch folder."""
    config = RlStageConfig.parse(SETTINGS | said | more, where="rl")
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    run(config, ports, outputs, StageContext.quiet(folder / "scratch"))
    return config, outputs


def weights(outputs):
    return torch.cat([p.flatten() for p in load_policy(outputs["policy"]).model.parameters()])


def curve(outputs, metric):
    found = pl.read_parquet(outputs["curve"]).filter(pl.col("metric") == metric)
    return found.sort("step")["value"].to_list()


@pytest.fixture
def ports(guesser, coins_path):
    return {"policy": guesser, "problems": coins_path}


def test_a_token_is_paid_by_how_much_likelier_it_is_to_the_teacher(ports, teacher, tmp_path):
    given = ports | {"references.teacher": teacher}
    config, outputs = distilled(BY_COMPONENT, given, tmp_path / "component")
    model = load_policy(teacher).model
    for row in read_table(outputs["rollouts"], ROLLOUTS).to_dicts()[:6]:
        ids, count = torch.tensor(row["token_ids"]), len(row["logprobs"])
        with torch.no_grad():
            whole = model(input_ids=ids[None]).logits[0].log_softmax(-1)
        to_teacher = whole[:-1].gather(-1, ids[1:, None])[-count:, 0]
        wanted = (to_teacher - torch.tensor(row["logprobs"])).tolist()
        assert row["token_rewards"] == pytest.approx(wanted, abs=1e-4)
        # With a discount of 0 nothing reaches back, and the outcome is worth nothing.
        assert row["advantages"] == pytest.approx(wanted, abs=1e-4)
    # What was paid is stored: a replay asks no teacher.
    only = {"policy": given["policy"]}
    again = replay(config, only, outputs["rollouts"], StageContext.quiet(tmp_path / "again"))
    assert again == weights_digest(load_policy(outputs["policy"]).model)
    # The same mathematics as k1 in the reward, with the teacher as reference.
    by_reference = distilled(BY_REFERENCE, ports | {"reference": teacher}, tmp_path / "kl")[1]
    start = torch.cat([p.flatten() for p in load_policy(ports["policy"]).model.parameters()])
    moved = (weights(outputs) - start).abs().max()
    assert (weights(outputs) - weights(by_reference)).abs().max() < 1e-3 * moved


@pytest.mark.parametrize("said", [BY_REFERENCE, WHOLE], ids=["drawn", "whole"])
def test_the_policy_comes_nearer_to_its_teacher(said, ports, teacher, tmp_path):
    given = ports | {"reference": teacher}
    # How far it is, measured by the regularizer of whole distributions at no weight to speak of.
    measured = {"distillation": {"coefficient": 1e-9}}
    both = said["algorithm"].get("regularizers", {})
    algorithm = said["algorithm"] | {"regularizers": measured | both}
    _, outputs = distilled({**said, "algorithm": algorithm}, given, tmp_path, steps=8)
    far = curve(outputs, "rl/distillation")
    assert far[-1] < 0.7 * far[0]


def test_slices_and_micro_batches_change_nothing(ports, teacher, tmp_path, monkeypatch):
    given = ports | {"reference": teacher}
    whole = weights(distilled(WHOLE, given, tmp_path / "whole")[1])
    sizes = Counter()
    compared = reference_divergence._Comparison.of_slice

    def counting(self, logits_NV, *others):
        sizes[len(logits_NV)] += 1
        return compared(self, logits_NV, *others)

    monkeypatch.setattr(reference_divergence._Comparison, "of_slice", counting)
    monkeypatch.setattr(token_slices, "CHUNK_ELEMENTS", 5 * 280)
    updates = {"micro_batch_tokens": 64}
    cut = weights(distilled(WHOLE, given, tmp_path / "cut", updates=updates)[1])
    assert max(sizes) <= 5 + 1
    start = torch.cat([p.flatten() for p in load_policy(ports["policy"]).model.parameters()])
    assert (cut - whole).abs().max() < 1e-2 * (whole - start).abs().max()


def test_a_teacher_at_another_temperature_and_one_with_fewer_tokens_are_refused(
    ports, teacher, tmp_path
):
    with pytest.raises(UserError, match=r"rl.*at temperature 1; set temperature to 1"):
        RlStageConfig.parse(SETTINGS | BY_COMPONENT | {"temperature": 0.7}, where="rl")
    smaller = load_policy(teacher)
    smaller.model.resize_token_embeddings(len(smaller.tokenizer), mean_resizing=False)
    larger = load_policy(ports["policy"])
    larger.model.resize_token_embeddings(len(larger.tokenizer) + 8, mean_resizing=False)
    for name, each in (("smaller", smaller), ("larger", larger)):
        save_policy(each.model, each.tokenizer, tmp_path / name)
    given = ports | {"policy": tmp_path / "larger", "reference": tmp_path / "smaller"}
    with pytest.raises(UserError, match="the reference says something of"):
        distilled(WHOLE, given, tmp_path / "run")
    # The other way round nothing is missing: the policy never draws what only the teacher embeds.
    given = ports | {"policy": tmp_path / "smaller", "reference": tmp_path / "larger"}
    distilled(WHOLE, given, tmp_path / "run", steps=1)


@pytest.mark.slow  # two attempts of each kind
@pytest.mark.parametrize("name", ["component", "whole"])
def test_a_killed_distillation_ends_with_the_same_bytes(name, ports, teacher, tmp_path, kill_runs):
    said, port = {
        "component": (BY_COMPONENT, "references.teacher"),
        "whole": (WHOLE, "reference"),
    }[name]
    kill_runs(
        tmp_path,
        [("step", 2), ("update", 3), ("fsync", 12)],
        task="rl",
        config=SETTINGS | said | {"steps": 4, "checkpoint_every": 1},
        inputs=ports | {port: teacher},
        outputs=["policy", "rollouts", "curve", "report"],
    )
