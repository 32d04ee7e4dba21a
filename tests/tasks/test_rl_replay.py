"""Replay: the stored rollouts alone lead to the same weights, bit for bit."""

import polars as pl
import pytest
import torch

from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table, write_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run
from tests.quick import one_now_in

SMALL = {
    "steps": 5,
    "problems_per_step": 6,
    "group_size": 4,
    "max_tokens": 8,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3},
    "checkpoint_every": 0,
}
SEVERAL = {"optimization": {"warmup_steps": 0}, "updates": {"epochs": 2, "minibatches": 2}}
CORRECTED = {
    "old_policy": "recomputed",
    "token_weights": {"importance": {"bound": "truncate", "high": 2.0}},
}
STORED = {
    "advantage": {
        "kind": "learned",
        "weigh": "exponential",
        "values": {"kind": "implicit", "updates": 2, "episodes": 8, "capacity": 40}
        | {"teach": "both", "recalled": 5},
    },
    "old_policy": "recomputed",
}
CASES = {
    "several_updates": {**SEVERAL},
    "muon": {**SEVERAL, "optimization": {"optimizer": "muon", "warmup_steps": 0}},
    "one_step_off": {**SEVERAL, "staleness": 1, "algorithm": CORRECTED},
    "decoupled": {
        **SEVERAL,
        "staleness": 1,
        "algorithm": {"old_policy": "interpolated"},
    },
    "critic": {
        **SEVERAL,
        "algorithm": {"advantage": {"kind": "gae", "lam": 0.9}, "critic": {}},
    },
    "shared_critic_one_step_off": {
        **SEVERAL,
        "staleness": 1,
        "critic": {"trunk": "shared"},
        "algorithm": {"advantage": {"kind": "gae", "lam": 0.9}, "critic": {}},
    },
    "ema_reference": {
        **SEVERAL,
        "algorithm": {"regularizers": {"kl": {"coefficient": 0.1}}},
        "reference": {"kind": "ema", "decay": 0.9},
    },
    "periodic_reference_in_reward": {
        **SEVERAL,
        "algorithm": {
            "regularizers": {"kl": {"coefficient": 0.1, "place": "reward", "estimator": "k1"}}
        },
        "reference": {"kind": "periodic", "every": 3},
    },
    "lora": {**SEVERAL, "learner": {"lora": {"rank": 2}}},
    "bf16_and_an_average": {
        **SEVERAL,
        "learner": {"precision": "bf16", "ema_decay": 0.5},
    },
    "recomputed_activations": {
        **SEVERAL,
        "learner": {"activation_checkpointing": True},
    },
    "stored_episodes": {**SEVERAL, "algorithm": STORED},
    # What was drawn ahead and not learned from recalls nothing either.
    "stopped_with_stored_episodes": {
        **SEVERAL,
        "staleness": 1,
        "stop": {"patience": 2},
        "algorithm": STORED,
    },
    "several_rounds": {**SEVERAL, "draw": {"max_rounds": 3, "train_on": "signal"}},
    "scheduled_one_step_off": {
        **SEVERAL,
        "staleness": 1,
        "temperature": {"from": 1.0, "to": 1.5, "over": 3},
        "group_size": {"from": 4, "to": 6, "over": 4},
    },
    "following_a_metric": {
        **SEVERAL,
        "temperature": {"metric": "rl/length", "from": 1.0, "to": 1.4, "low": 3.0, "high": 6.0},
        "optimization": {
            "learning_rate": {"from": 5e-3, "to": 1e-3, "over": 3},
            "lr_schedule": "constant",
            "warmup_steps": 0,
        },
    },
    "stopped": {**SEVERAL, "staleness": 1, "stop": {"patience": 2}},
    "components_apart": {
        **SEVERAL,
        "reward": {
            "components": {
                "correct": "verifier",
                "brief": {"kind": "group_length", "when": "correct"},
                "plain": "repetition",
            },
            "combine": {
                "kind": "advantages",
                "weights": {"brief": {"from": 0.1, "to": 0.5, "over": 3}, "plain": 0.1},
            },
            "truncated": "masked",
        },
        "algorithm": {"advantage": {"scale": "sample", "whiten": "sample"}},
    },
}


@pytest.fixture(scope="module")
def inputs(guesser, coins_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    outputs = {name: folder / f"{name}.parquet" for name in ("samples", "solve_rates")}
    given = {"policy": guesser, "problems": coins_path}
    probe(ProbeConfig(max_tokens=8), given, outputs, StageContext.quiet(folder / "scratch"))
    return {**given, "solve_rates": outputs["solve_rates"]}


def train(inputs, folder, **config):
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    optimization = SMALL["optimization"] | config.get("optimization", {})
    config = RlStageConfig(**SMALL | config | {"optimization": optimization})
    metrics = run(config, inputs, outputs, StageContext.quiet(folder / "scratch", seed=3))
    return config, outputs, metrics


def again(config, inputs, rollouts, folder):
    only = {"policy": inputs["policy"]}
    return replay(config, only, rollouts, StageContext.quiet(folder / "replay", seed=3))


@pytest.mark.parametrize("case", one_now_in(3, CASES))
def test_replay_reaches_the_same_weights(inputs, tmp_path, case):
    config, outputs, metrics = train(inputs, tmp_path, **CASES[case])
    assert metrics["rl/num_updates"] >= 4
    found = again(config, inputs, outputs["rollouts"], tmp_path)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_rollouts_of_another_run_are_learned_from_first(inputs, tmp_path):
    """What was drawn before is in the store, and in what a replay is given."""
    _, first, _ = train(inputs, tmp_path / "first", steps=2)
    given = {**inputs, "episodes": first["rollouts"]}
    values = {"kind": "returns", "updates": 2, "episodes": 8, "teach": "stored", "recalled": 12}
    advantage = {"kind": "learned", "weigh": "exponential", "values": values}
    settings = {"algorithm": {"advantage": advantage}, "steps": 1}
    config, outputs, _ = train(given, tmp_path / "second", **settings)
    stored = read_table(outputs["curve"], CURVE).filter(pl.col("metric") == "rl/turn_values_stored")
    # Two steps of 24 rollouts before, and one here.
    assert stored["value"].to_list() == [72.0]
    only = {"policy": inputs["policy"], "episodes": first["rollouts"]}
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, only, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)
    _, unlike, _ = train(inputs, tmp_path / "third", **settings)
    assert found != weights_digest(load_policy(unlike["policy"]).model)


@pytest.mark.parametrize("case", ["scheduled_one_step_off", "following_a_metric"])
def test_engine_and_learner_have_the_temperature_of_the_draw(inputs, tmp_path, case):
    """Of rollouts that waited the gap is measured when they are drawn; another would be 0.1."""
    _, outputs, _ = train(inputs, tmp_path, **CASES[case])
    curve = read_table(outputs["curve"], CURVE)
    gaps = curve.filter(pl.col("metric") == "rl/logprob_gap")["value"]
    assert len(gaps) >= 4
    assert gaps.max() < 1e-5
    temperatures = curve.filter(metric="schedule/temperature")["value"].to_list()
    assert len(set(temperatures)) > 1
    if case == "scheduled_one_step_off":
        assert temperatures == pytest.approx([1, 1 + 0.5 / 3, 1 + 1 / 3, 1.5, 1.5])
        # Drawn at steps 0, 0, 1, 2, 3: groups of 4, 4, 4.5, 5 and 5.5, to the nearest even number.
        rows = read_table(outputs["rollouts"], ROLLOUTS).group_by("step", "group").len()
        sizes = rows.group_by("step").agg(pl.col("len").max()).sort("step")["len"].to_list()
        assert sizes == [4, 4, 4, 5, 6]


def test_a_number_that_follows_what_a_replay_cannot_measure_is_refused(inputs, tmp_path):
    way = {"metric": "rl/curriculum_signal", "from": 1.0, "to": 1.2, "low": 0.2, "high": 0.9}
    by_rate = {"sampler": "solve_rate"}
    config, outputs, _ = train(inputs, tmp_path, temperature=way, draw=by_rate)
    with pytest.raises(UserError, match="follows rl/curriculum_signal, which a replay"):
        again(config, inputs, outputs["rollouts"], tmp_path)


def test_one_changed_reward_is_another_result(inputs, tmp_path):
    config, outputs, _ = train(inputs, tmp_path)
    whole = again(config, inputs, outputs["rollouts"], tmp_path)
    rollouts = read_table(outputs["rollouts"], ROLLOUTS).with_row_index("row")
    first = rollouts.filter("trained")["row"][0]
    flipped = pl.when(row=first).then(1 - pl.col("reward")).otherwise("reward")
    changed = rollouts.with_columns(flipped.alias("reward")).drop("row")
    write_table(changed, tmp_path / "changed", ROLLOUTS)
    assert again(config, inputs, tmp_path / "changed", tmp_path) != whole


def in_the_form_of_0_1(table):
    """The same rollouts as 0.1 laid them out: a prompt and a completion."""
    begin = pl.col("spans").list.first().struct.field("end")
    return table.select(
        "id",
        "parents",
        "problem_id",
        "step",
        "source",
        pl.col("token_ids").list.head(begin).alias("prompt_ids"),
        pl.col("token_ids").list.slice(begin).alias("completion_ids"),
        "logprobs",
        pl.col("end").replace_strict({"over": "stop", "tokens": "length"}).alias("finish_reason"),
        "text",
        "reward",
        pl.lit('{"verifier": 1.0}').alias("reward_components"),
        pl.lit(0.25).alias("advantage"),
        pl.col("versions").list.first().alias("policy_version"),
        "group",
        "trained",
    )


def test_rollouts_in_the_form_of_0_1_reach_the_same_weights(inputs, tmp_path):
    config, outputs, _ = train(inputs, tmp_path, **CASES["one_step_off"])
    table = read_table(outputs["rollouts"], ROLLOUTS)
    in_the_form_of_0_1(table).write_parquet(tmp_path / "old.parquet")
    migrated = read_table(tmp_path / "old.parquet", ROLLOUTS)
    same = [name for name in ROLLOUTS if name not in ("components", "advantages")]
    assert migrated.select(same).equals(table.select(same))
    found = again(config, inputs, tmp_path / "old.parquet", tmp_path)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_the_table_holds_the_advantages_that_are_learned_from_again(inputs, tmp_path, monkeypatch):
    """What the replay hands to its updates is, number by number, what the table says."""
    config, outputs, _ = train(inputs, tmp_path, **CASES["critic"])
    taught = {}

    def listen(self, samples, *, step, index, seed):
        for sample in samples:
            key = (step + 1, sample.token_ids, sample.logprobs)
            taught[key] = torch.tensor(sample.advantages).expand(len(sample.logprobs))
        return update(self, samples, step=step, index=index, seed=seed)

    update = PolicyLearner.update
    monkeypatch.setattr(PolicyLearner, "update", listen)
    again(config, inputs, outputs["rollouts"], tmp_path)
    table = read_table(outputs["rollouts"], ROLLOUTS)
    rows = table.select("step", "token_ids", "logprobs", "advantages", "trained").rows()
    found = {
        (step, tuple(ids), tuple(logprobs)): advantages
        for step, ids, logprobs, advantages, trained in rows
        if trained
    }
    assert found.keys() == taught.keys()
    assert all(found[key] == taught[key].tolist() for key in found)
    assert all(not advantages for *_, advantages, trained in rows if not trained)
