"""Real `kill -9`s of every supervised learner: running again ends with the same bytes."""

import random

import pytest

from posttrain.stage.context import StageContext
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe

OPTIMISATION = {
    "epochs": 2.0,
    "batch_tokens": 200,
    "checkpoint_every": 2,
    "optimization": {"warmup_steps": 2},
}
# A checkpoint makes 9 fsyncs: tensors, four states, the manifest, two folders, the folder above.
KILLS = [("step", 1), ("step", 5), ("fsync", 2), ("fsync", 8), ("fsync", 20)]

SFT, REWARD = ["policy", "curve"], ["reward_model", "pairs", "curve", "report"]
PREFERRED = ["policy", "pairs", "curve", "report"]


@pytest.fixture
def tables(answers, write):
    return {"all": write(answers, "all"), "verified": write(answers.filter("verified"), "verified")}


@pytest.mark.slow
def test_pretrain(tables, tmp_path, kill_runs):
    size = {"hidden": 16, "layers": 1, "heads": 2, "vocab_size": 290}
    kill_runs(
        tmp_path,
        KILLS,
        task="pretrain",
        config=OPTIMISATION | size,
        inputs={"corpus": tables["all"]},
        outputs=SFT,
    )


# What is cut at every checkpoint in one process, test_supervised.py and test_prepare.py hold.
@pytest.mark.slow
def test_sft(tables, base, tmp_path, kill_runs):
    kill_runs(
        tmp_path,
        KILLS,
        task="sft",
        config=OPTIMISATION,
        inputs={"policy": base, "traces": tables["verified"]},
        outputs=SFT,
    )


@pytest.mark.slow
def test_reward(tables, base, tmp_path, kill_runs):
    kill_runs(
        tmp_path,
        KILLS,
        task="reward",
        config=OPTIMISATION | {"parameterization": "likelihood"},
        inputs={"policy": base, "samples": tables["all"]},
        outputs=REWARD,
    )


def judged(guesser, coins_path, folder):
    """Samples of the guesser with their verdicts."""
    probed = {name: folder / name for name in ("samples", "solve_rates")}
    given = {"policy": guesser, "problems": coins_path}
    probe(ProbeConfig(max_tokens=8), given, probed, StageContext.quiet(folder / "scratch"))
    return {**given, "samples": probed["samples"]}


SAMPLING = {"problems": 20, "num_samples": 4, "max_tokens": 8}
PREFERENCE = {
    "dpo": {"sampling": SAMPLING, "steps": 7},
    "kto": {"sampling": SAMPLING, "steps": 7, "algorithm": "kto"},
    "rounds": {
        "sampling": SAMPLING,
        "rounds": 3,
        "steps": 4,
        "algorithm": "xpo",
        "opponent": "reference",
        "accumulate": True,
        "learner": {"ema_decay": 0.5, "lora": {"rank": 2}},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dpo", "rounds"])
def test_preference(kind, guesser, coins_path, tmp_path, kill_runs):
    # The last is in the middle of a round that is not the first.
    more = [("step", 3), ("fsync", 40)]
    kill_runs(
        tmp_path,
        [*KILLS[2:], *more] if kind == "rounds" else KILLS[:4],
        task="preference",
        config=OPTIMISATION | PREFERENCE[kind],
        inputs=judged(guesser, coins_path, tmp_path / "probe"),
        outputs=PREFERRED,
    )


STEPS = 7
LEARNERS = {
    "sft": {"learner": {"packing": True, "lora": {"rank": 2}, "ema_decay": 0.5}},
    "reward": {
        "learner": {"early_stop": {"every": 2, "patience": 3, "keep": "best"}},
        "parameterization": "head",
    },
    **PREFERENCE,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEARNERS)
def test_at_every_step_and_at_random_instants(
    kind, tables, base, guesser, coins_path, tmp_path, kill_runs
):
    """15 kills of each learner: after every step, in the middle of writes, at any moment."""
    chance = random.Random(f"kills of {kind}")
    steps, writes = (4, 60) if kind == "rounds" else (STEPS, 25)
    # Steps are counted from 1 in every round; writes, of which rounds make more, are not.
    kills = [("step", at) for at in range(1, steps + 1)]
    kills += [("fsync", at) for at in chance.sample(range(1, writes), 9 - steps)]
    kills += [("share", round(chance.uniform(0.05, 0.9), 3)) for _ in range(6)]
    sft = {"policy": base, "traces": tables["verified"]}
    reward = {"policy": base, "samples": tables["all"]}
    kill_runs(
        tmp_path,
        kills,
        task=kind if kind in ("sft", "reward") else "preference",
        config=OPTIMISATION | {"steps": STEPS} | LEARNERS[kind],
        inputs={"sft": sft, "reward": reward}.get(kind)
        or judged(guesser, coins_path, tmp_path / "probe"),
        outputs={"sft": SFT, "reward": REWARD}.get(kind, PREFERRED),
    )
