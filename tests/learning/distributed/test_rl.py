"""RL in two processes: the rollouts, the curve and the resumed bytes of one."""

import polars as pl
import psutil
import pytest
import torch
from polars.testing import assert_frame_equal

from posttrain.data.schemas import IDENTITY, PROBLEMS, Problem, problems_table, with_row_ids
from posttrain.data.tables import write_table
from posttrain.learning.models.load import load_policy, save_policy
from posttrain.stage.context import StageContext
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run
from tests.architectures import model_of

pytestmark = pytest.mark.slow
TOLERANCE = 1e-4
BASE = {
    "steps": 5,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 8,
    "optimization": {"learning_rate": 3e-3, "warmup_steps": 0},
    "updates": {"minibatches": 2},
    "draw": {"train_on": "all"},
    # Of two updates in a step: a checkpoint falls now between steps, now between updates.
    "checkpoint_every": 3,
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, guesser, sides):
    folder = tmp_path_factory.mktemp("probed")
    problems = [Problem("sides", prompt, answer, 1, "exact") for prompt, answer in sides]
    table = with_row_ids(problems_table(problems), IDENTITY["problems"])
    write_table(table, folder / "problems.parquet", PROBLEMS)
    given = {"policy": guesser, "problems": folder / "problems.parquet"}
    probed = {name: folder / f"{name}.parquet" for name in ("samples", "solve_rates")}
    probe(ProbeConfig(max_tokens=8), given, probed, StageContext.quiet(folder / "scratch"))
    return {**given, "solve_rates": probed["solve_rates"]}


@pytest.fixture(scope="module")
def whole(stages, inputs, tmp_path_factory):
    """An uninterrupted run in two processes."""
    made = stages.run("rl", tmp_path_factory.mktemp("whole"), config=BASE, inputs=inputs)
    assert made.outcome.error is None
    return made


def gap(one, two):
    """The largest difference of two curves, which must have the same steps and metrics."""
    assert one.keys() == two.keys()
    return max(abs(one[key] - two[key]) for key in one)


KINDS = {
    "ahead_of_a_reference": {
        "staleness": 1,
        "algorithm": {
            "regularizers": {"kl": {"coefficient": 0.05}},
            "old_policy": "recomputed",
            "token_weights": {"importance": {"bound": "truncate", "high": 2.0}},
        },
    },
    "adapters_and_entropy": {
        "learner": {"lora": {"rank": 2, "dora": True}, "weights": "bf16", "ema_decay": 0.5},
        "algorithm": {
            "regularizers": {
                "entropy": {"place": "loss", "coefficient": 0.01},
                # Of the policy without its adapters, which each process has whole.
                "kl": {"coefficient": 0.05},
            }
        },
        "optimization": {"optimizer": "adamw"},
    },
    "beside_whole_distributions": {
        "algorithm": {
            "regularizers": {"distillation": {"coefficient": 1.0, "divergence": "jensen_shannon"}}
        },
    },
    "values_beside_a_moving_reference": {
        "algorithm": {"preset": "ppo", "regularizers": {"kl": {"coefficient": 0.05}}},
        "reference": {"kind": "ema", "decay": 0.5},
    },
    "values_on_the_policy_and_the_best_step": {
        "algorithm": "ppo",
        "critic": {"trunk": "shared"},
        "stop": {"metric": "rl/reward", "patience": 9, "keep": "best"},
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_have_the_curve_and_the_rollouts_of_one(stages, inputs, tmp_path, kind):
    config = BASE | {"steps": 3} | KINDS[kind]
    one, two = (
        stages.run("rl", tmp_path / str(n), processes=n, config=config, inputs=inputs)
        for n in (1, 2)
    )
    assert (one.outcome.error, two.outcome.error) == (None, None)
    assert gap(one.curve(), two.curve()) < TOLERANCE
    assert max(value for (_, metric), value in one.curve().items() if "grad_norm" in metric) > 0.01
    assert one.digests().keys() == two.digests().keys()
    tables = [pl.read_parquet(made.folder / "rollouts.parquet") for made in (one, two)]
    assert len(tables[0]) == 3 * 4 * 4
    exact = [table.drop("logprobs", "advantages") for table in tables]
    assert_frame_equal(*exact)
    assert_frame_equal(*tables, abs_tol=TOLERANCE)


def test_a_killed_run_ends_with_the_bytes_of_one_that_was_not(stages, inputs, whole, tmp_path):
    seen = {}

    def watch(event):
        if event["kind"] == "progress" and event["done"] == 3 and not seen:
            seen.update(stages.ranks())
            seen[1].kill()

    killed = stages.run("rl", tmp_path, config=BASE, inputs=inputs, watch=watch)
    assert killed.outcome.retryable
    _, alive = psutil.wait_procs(seen.values(), timeout=10)
    assert (sorted(seen), alive) == ([0, 1], [])
    again = stages.run("rl", tmp_path, config=BASE, inputs=inputs)
    assert any(note.startswith("resuming after step") for note in again.notes())
    assert again.digests() == whole.digests()


RESUMED = {name: said for name, said in KINDS.items() if name.startswith("values")}
RESUMED["narrow_within_the_backward_pass"] = {
    "learner": {"weights": "bf16"},
    "optimization": {
        **BASE["optimization"],
        "optimizer": "adamw",
        "in_backward": True,
        "max_grad_norm": None,
    },
    "algorithm": {"regularizers": {"kl": {"coefficient": 0.05}}},
}


@pytest.mark.parametrize("kind", RESUMED)
def test_what_learns_and_moves_beside_the_policy_is_resumed_too(stages, inputs, tmp_path, kind):
    config = BASE | {"steps": 4} | RESUMED[kind]
    whole = stages.run("rl", tmp_path / "whole", config=config, inputs=inputs)
    assert whole.outcome.error is None
    seen = {}

    def watch(event):
        if event["kind"] == "progress" and event["done"] == 3 and not seen:
            seen.update(stages.ranks())
            seen[0].kill()

    cut = tmp_path / "cut"
    assert stages.run("rl", cut, config=config, inputs=inputs, watch=watch).outcome.retryable
    again = stages.run("rl", cut, config=config, inputs=inputs)
    assert any(note.startswith("resuming after step") for note in again.notes())
    assert again.digests() == whole.digests()


class Killed(BaseException):
    """Stands for a kill of the only process."""


def test_models_of_the_reward_pay_two_processes_what_they_pay_one(stages, inputs, tmp_path):
    """The main process asks them, whose batches are those of one: not one bit of a score moves."""
    parts = {
        "correct": "verifier",
        "implied": {"kind": "log_ratio", "of": "start", "against": "other"},
        "near": {"kind": "embedding", "model": "start"},
        "best": {"kind": "best_length", "when": "correct"},
    }
    weights = {"correct": 1.0, "implied": 0.0, "near": 0.1, "best": 0.1}
    combine = {"kind": "sum", "weights": weights}
    reward = {"components": parts, "combine": combine, "bonus_may_outweigh": True}
    other = tmp_path / "other"
    policy = load_policy(inputs["policy"])
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(1.2)
    save_policy(policy.model, policy.tokenizer, other)
    wired = {**inputs, "references.start": inputs["policy"], "references.other": other}
    one, two = (
        stages.run(
            "rl",
            tmp_path / str(n),
            processes=n,
            config=BASE | {"steps": 2, "reward": reward},
            inputs=wired,
        )
        for n in (1, 2)
    )
    assert (one.outcome.error, two.outcome.error) == (None, None)
    tables = [pl.read_parquet(made.folder / "rollouts.parquet") for made in (one, two)]
    assert_frame_equal(*(t.select("token_ids", "components", "reward") for t in tables))
    scores = [{e["name"]: e["value"] for e in row} for row in tables[0]["components"]]
    assert len({row["implied"] for row in scores}) > 4


def half_alone(inputs, folder):
    """The first steps of the stage in this process, up to a checkpoint and a little further."""

    def stop(event):
        if event["kind"] == "progress" and event["done"] == 3:
            raise Killed

    scratch = folder / "scratch"
    context = StageContext(seed=3, threads=1, device="cpu", scratch=scratch, emit=stop)
    with pytest.raises(Killed):
        run(RlStageConfig.parse(BASE, where="rl"), inputs, {}, context)


def half_together(stages, inputs, folder):
    """The same in two processes."""

    def kill(event):
        if event["kind"] == "progress" and event["done"] == 3:
            for process in stages.ranks().values():
                process.kill()

    assert not stages.run("rl", folder, config=BASE, inputs=inputs, watch=kill).outcome.ok


@pytest.mark.parametrize("num_before", [1, 2])
def test_another_number_of_processes_goes_on(stages, inputs, whole, tmp_path, num_before):
    if num_before == 1:
        half_alone(inputs, tmp_path)
    else:
        half_together(stages, inputs, tmp_path)
    num_after = 3 - num_before
    made = stages.run("rl", tmp_path, processes=num_after, config=BASE, inputs=inputs)
    assert made.outcome.error is None
    assert any(note.startswith("resuming after step") for note in made.notes())
    assert gap(made.curve(), whole.curve()) < TOLERANCE


def test_a_router_is_kept_even_over_the_tokens_of_all_processes(stages, inputs, tmp_path):
    tokenizer = load_policy(inputs["policy"]).tokenizer
    model = model_of("qwen3_moe", vocab_size=len(tokenizer), initializer_range=0.02)
    save_policy(model, tokenizer, tmp_path / "mixture")
    given = {"policy": tmp_path / "mixture", "problems": inputs["problems"]}
    brief = {"correct": "verifier", "brief": {"kind": "shortness", "scale": 0.1}}
    config = BASE | {
        "steps": 2,
        "learner": {"router_loss": 0.5},
        "optimization": {**BASE["optimization"], "optimizer": "adamw"},
        "reward": {"components": brief, "bonus_may_outweigh": True},
    }
    one, two = (
        stages.run("rl", tmp_path / str(n), processes=n, config=config, inputs=given)
        for n in (1, 2)
    )
    assert (one.outcome.error, two.outcome.error) == (None, None)
    # The gap of the first routes that differ in a last bit would be larger at a later step.
    first = {key: value for key, value in one.curve().items() if key[0] == 1}
    assert max(abs(value - two.curve()[key]) for key, value in first.items()) < TOLERANCE
    assert first[1, "rl/router_loss"] > 1


def test_a_reward_model_keeps_its_router_even_in_one_process_and_in_two(stages, tmp_path):
    tokenizer = load_policy(stages.inputs["policy"]).tokenizer
    model = model_of("qwen3_moe", vocab_size=len(tokenizer), initializer_range=0.02)
    save_policy(model, tokenizer, tmp_path / "mixture")
    given = {"policy": tmp_path / "mixture", "samples": stages.inputs["samples"]}
    config = stages.steps | {
        "optimization": {"optimizer": "adamw", "warmup_steps": 2},
        "learner": {"router_loss": 0.5},
        "steps": 2,
    }
    one, two = (
        stages.run("reward", tmp_path / str(n), processes=n, config=config, inputs=given)
        for n in (1, 2)
    )
    assert (one.outcome.error, two.outcome.error) == (None, None)
    mine, other = one.curve(), two.curve()
    for metric in ("reward/loss", "reward/router_loss", "reward/grad_norm"):
        assert abs(mine[1, metric] - other[1, metric]) < TOLERANCE
    assert mine[1, "reward/router_loss"] > 1
