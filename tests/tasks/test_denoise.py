"""Masked diffusion from traces to RL: what the stages make, and that killed ones go on exactly."""

import polars as pl
import pytest
from pydantic import ValidationError

from posttrain.data.schemas import (
    COMPLETIONS,
    CURVE,
    IDENTITY,
    PROBLEMS,
    ROLLOUTS,
    Completion,
    Problem,
    completions_table,
    problems_table,
    with_row_ids,
)
from posttrain.data.tables import read_table, write_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.denoise import TASK
from tasks.denoise.config import DenoiseConfig
from tasks.denoise.stage import run as denoise
from tasks.evaluate import TASK as EVALUATE
from tasks.probe import TASK as PROBE
from tasks.reward import TASK as REWARD
from tasks.rl import TASK as REINFORCE
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run as reinforce
from tasks.sft import TASK as SFT

TEACHING = DenoiseConfig(
    steps=80,
    canvas=6,
    vocab_size=280,
    hidden=32,
    layers=1,
    heads=2,
    batch_tokens=1024,
    optimization={"learning_rate": 1e-2, "warmup_steps": 0},
    checkpoint_every=30,
)
RL = RlStageConfig(
    steps=2,
    problems_per_step=6,
    group_size=4,
    engine={"kind": "masked_diffusion"},
    producer={"kind": "noised", "draws": 3},
    algorithm={
        "advantage": {"baseline": "mean", "scale": "sample"},
        "surrogate": {"kind": "linear_bound"},
        "aggregation": {"kind": "sequence_mean_token_mean"},
    },
    updates={"minibatches": 2},
    optimization={"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    checkpoint_every=1,
)
PROBLEMS_ASKED = [
    Problem(side, f"{side} {index} =", answer, index % 2, "exact")
    for index in range(12)
    for side, answer in (("up", "1"), ("down", "2"))
]


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Right answers and wrong ones to each problem."""
    rows = [
        Completion(problem, f"#### {said}", "teacher", float(said == problem.answer), True, "")
        for problem in PROBLEMS_ASKED
        for said in ("1", "2", problem.answer)
    ]
    path = tmp_path_factory.mktemp("traces") / "traces.parquet"
    frame = completions_table(rows)
    write_table(frame, path, COMPLETIONS)
    return path


def taught(traces, scratch, config=TEACHING):
    outputs = {name: scratch / name for name in ("policy", "curve")}
    scratch.mkdir(exist_ok=True)
    return outputs["policy"], denoise(
        config, {"traces": traces}, outputs, StageContext.quiet(scratch)
    )


@pytest.fixture(scope="module")
def policy(traces, tmp_path_factory):
    return taught(traces, tmp_path_factory.mktemp("taught"))[0]


def digest(path):
    return weights_digest(load_policy(path).model)


def stopped_in(owner, name, call, run):
    """Run what is interrupted when a method is called for the so manieth time."""
    method, calls = getattr(owner, name), []

    def fail(self, *given, **more):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return method(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(KeyboardInterrupt):
            run()


def test_the_policy_is_a_plain_checkpoint_with_masks(policy):
    loaded = load_policy(policy)
    assert loaded.model.config.answer_canvas == 6
    assert loaded.tokenizer.mask_token_id == loaded.model.config.mask_token_id
    assert len(loaded.tokenizer) == loaded.model.config.vocab_size


@pytest.mark.slow
def test_teaching_goes_on_to_the_same_bits(traces, policy, tmp_path):
    from posttrain.learning.models.optim import Optimizer

    scratch = tmp_path / "scratch"
    stopped_in(Optimizer, "step", 50, lambda: taught(traces, scratch))
    assert digest(taught(traces, scratch)[0]) == digest(policy)


def test_a_longer_answer_than_the_canvas_is_refused(traces, tmp_path):
    config = TEACHING.model_copy(update={"canvas": 2})
    with pytest.raises(UserError, match="raise canvas to"):
        taught(traces, tmp_path / "scratch", config)


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    path = tmp_path_factory.mktemp("problems") / "problems.parquet"
    table = with_row_ids(problems_table(PROBLEMS_ASKED), IDENTITY["problems"])
    write_table(table, path, PROBLEMS)
    return path


def reinforced(policy, problems, scratch, config=RL):
    outputs = {name: scratch / "out" / name for name in ("policy", "rollouts", "curve", "report")}
    (scratch / "out").mkdir(parents=True, exist_ok=True)
    inputs = {"policy": policy, "problems": problems}
    reinforce(config, inputs, outputs, StageContext.quiet(scratch))
    return outputs


@pytest.fixture(scope="module")
def learned(policy, problems, tmp_path_factory):
    return reinforced(policy, problems, tmp_path_factory.mktemp("learned"))


def test_each_answer_is_rows_that_hide_a_part_of_it(policy, learned):
    mask = load_policy(policy).model.config.mask_token_id
    rows = read_table(learned["rollouts"], ROLLOUTS).to_dicts()
    # Two steps of six problems, four answers to each, three draws of each answer.
    assert len(rows) == 2 * 6 * 4 * 3
    for first in range(0, len(rows), 3):
        answer = rows[first : first + 3]
        assert [row["segment"] for row in answer] == [0, 1, 2]
        assert len({row["episode"] for row in answer}) == 1
        assert len({row["reward"] for row in answer}) == 1
        assert [bool(row["text"]) for row in answer[1:]] == [False, False]
        # Even: two, four and six of six tokens, or one, three and five, in some order.
        assert sorted(len(row["logprobs"]) for row in answer) in ([2, 4, 6], [1, 3, 5])
        for row in answer:
            _, said = row["spans"]
            assert row["token_ids"].count(mask) == said["end"] - said["begin"]


def test_rl_goes_on_between_two_updates_to_the_same_bits(policy, problems, learned, tmp_path):
    scratch = tmp_path / "scratch"
    stopped_in(PolicyLearner, "update", 2, lambda: reinforced(policy, problems, scratch))
    again = reinforced(policy, problems, scratch)
    assert digest(again["policy"]) == digest(learned["policy"]) != digest(policy)
    assert again["rollouts"].read_bytes() == learned["rollouts"].read_bytes()


def test_a_replay_reads_masks_as_the_run_did(policy, problems, learned, tmp_path):
    context = StageContext.quiet(tmp_path)
    found = replay(RL, {"policy": policy, "problems": problems}, learned["rollouts"], context)
    assert found == digest(learned["policy"])


def planned(*readers):
    """What the plan says of stages in a row, of which each reads the policy of the one before."""
    stages = {"denoise": Stage("denoise", TASK, TEACHING, {})}
    for number, (task, said) in enumerate(readers):
        name, last = f"reader{number}", [*stages][-1]
        config = said if isinstance(said, RlStageConfig) else task.config.parse(said, where=name)
        read = Reference(ArtifactKind.CHECKPOINT, stage=last, output="policy")
        stages[name] = Stage(name, task, config, {"policy": read})
    TASK.refuse(stages["denoise"], Dag(stages))


UNMASKS = {"engine": {"kind": "masked_diffusion"}}


def reinforcing(**said):
    return REINFORCE, RlStageConfig(**{**dict(RL), **said})


def test_those_that_unmask_are_planned():
    planned(reinforcing(), reinforcing(), (EVALUATE, UNMASKS))
    planned((PROBE, UNMASKS))


@pytest.mark.parametrize(
    ("readers", "remedy"),
    [
        ([(EVALUATE, {})], "reader0: .* set the engine of reader0 to masked_diffusion"),
        ([reinforcing(), (PROBE, {})], "reader1: .* set the engine of reader1"),
        ([(REINFORCE, {})], "set the engine of reader0"),
        ([(SFT, {})], "only RL can go on from it, so connect another policy to reader0"),
        ([(REWARD, {})], "only RL can go on from it"),
    ],
)
def test_who_would_read_from_left_to_right_is_refused_by_the_plan(readers, remedy):
    with pytest.raises(UserError, match=remedy):
        planned(*readers)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"producer": "plain"}, "set producer to noised"),
        ({"engine": "torch"}, "set engine to masked_diffusion"),
        ({"algorithm": {"advantage": {"kind": "gae"}, "critic": {}}}, "algorithm.critic takes"),
        (
            {"draw": {"additions": "refinements"}, "algorithm": {"foreign": "shaped"}},
            "draw.additions takes",
        ),
        ({"draw": {"mask": "nucleus"}}, "draw.mask takes what masks hide for what comes next"),
    ],
)
def test_what_reads_token_by_token_is_refused_beside_masks(said, message):
    with pytest.raises(ValidationError, match=message):
        reinforcing(**said)


def test_a_policy_that_reads_in_order_has_no_masks_to_score(base, problems, tmp_path):
    with pytest.raises(UserError, match="train one by a stage of tasks.denoise"):
        reinforced(base, problems, tmp_path / "scratch")


def test_a_reference_sees_the_masks_of_the_policy(policy, problems, tmp_path):
    """It is the policy itself until the first update, and behind it from then on."""
    held = {**RL.algorithm.model_dump(), "regularizers": {"kl": {"coefficient": 0.1}}}
    _, config = reinforcing(algorithm=held, updates={"minibatches": 1})
    outputs = reinforced(policy, problems, tmp_path / "scratch", config)
    curve = read_table(outputs["curve"], CURVE).filter(metric="rl/kl").sort("step")["value"]
    assert abs(curve[0]) < 1e-6 < curve[1]


def test_answers_that_would_be_cut_short_are_refused(policy, problems, tmp_path):
    config = RL.model_copy(update={"max_tokens": 4})
    with pytest.raises(UserError, match="set it to 6"):
        reinforced(policy, problems, tmp_path / "scratch", config)


@pytest.mark.slow
def test_rl_learns_what_is_right(policy, tmp_path):
    """The policy says either answer about as often; here one of them is always right."""
    down = [problem for problem in PROBLEMS_ASKED if problem.answer == "2"]
    slower = RL.optimization.model_copy(update={"learning_rate": 2e-3})
    config = RL.model_copy(update={"steps": 20, "optimization": slower, "checkpoint_every": 0})
    path = tmp_path / "down.parquet"
    write_table(with_row_ids(problems_table(down), IDENTITY["problems"]), path, PROBLEMS)
    outputs = reinforced(policy, path, tmp_path / "scratch", config)
    rows = read_table(outputs["rollouts"], ROLLOUTS).filter(segment=0)
    rewards = rows.group_by("step").agg(pl.col("reward").mean()).sort("step")["reward"]
    assert float(rewards[-4:].mean()) > float(rewards[:3].mean()) + 0.2, rewards.to_list()
