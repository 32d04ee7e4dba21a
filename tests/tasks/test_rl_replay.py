"""Replay: the stored rollouts alone lead to the same weights, bit for bit."""

import polars as pl
import pytest

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table, write_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

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
    "several_rounds": {**SEVERAL, "draw": {"max_rounds": 3}},
    "stopped": {**SEVERAL, "staleness": 1, "stop": {"patience": 2}},
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


@pytest.mark.parametrize("case", CASES)
def test_replay_reaches_the_same_weights(inputs, tmp_path, case):
    config, outputs, metrics = train(inputs, tmp_path, **CASES[case])
    assert metrics["rl/num_updates"] >= 4
    found = again(config, inputs, outputs["rollouts"], tmp_path)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_one_changed_reward_is_another_result(inputs, tmp_path):
    config, outputs, _ = train(inputs, tmp_path)
    whole = again(config, inputs, outputs["rollouts"], tmp_path)
    rollouts = read_table(outputs["rollouts"], ROLLOUTS).with_row_index("row")
    first = rollouts.filter("trained")["row"][0]
    flipped = pl.when(row=first).then(1 - pl.col("reward")).otherwise("reward")
    changed = rollouts.with_columns(flipped.alias("reward")).drop("row")
    write_table(changed, tmp_path / "changed", ROLLOUTS)
    assert again(config, inputs, tmp_path / "changed", tmp_path) != whole
