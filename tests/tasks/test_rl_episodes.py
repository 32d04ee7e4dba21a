"""RL over episodes of several turns: stored, learned from where the policy spoke, and replayed."""

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.episodes.episode import Span
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.batch import TrainSample, collate
from posttrain.learning.rl.replay import replay
from posttrain.learning.rl.rollout import Rollout
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run
from tests.learning.episodes.environments import Absent, Counting, Flaky

SMALL = {
    "steps": 3,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 6,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "updates": {"minibatches": 2},
    "checkpoint_every": 0,
}


def trained(inputs, folder, **config):
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    config = RlStageConfig(**SMALL | config)
    run(config, inputs, outputs, StageContext.quiet(folder / "scratch", seed=3))
    return config, outputs


@pytest.fixture(scope="module")
def inputs(guesser, coins_path):
    return {"policy": guesser, "problems": coins_path}


@pytest.fixture(scope="module")
def ran(inputs, tmp_path_factory):
    producer = {"kind": "episodes", "environment": Counting(rounds=2)}
    return trained(inputs, tmp_path_factory.mktemp("rl"), producer=producer)


def test_rows_hold_each_turn_with_its_tokens(ran, guesser):
    _, outputs = ran
    tokenizer = load_policy(guesser).tokenizer
    rows = read_table(outputs["rollouts"], ROLLOUTS).to_dicts()
    assert {len(row["versions"]) for row in rows} == {3}
    for row in rows:
        drawn = [span for span in row["spans"] if span["drawn"]]
        texts = [
            tokenizer.decode(
                row["token_ids"][span["begin"] : span["end"]], skip_special_tokens=True
            )
            for span in drawn
        ]
        assert row["text"] == "\n".join(texts)
        assert len(row["logprobs"]) == sum(span["end"] - span["begin"] for span in drawn)
        # What the environment said between two turns is there, and was not drawn.
        between = [span for span in row["spans"] if not span["drawn"]][1:]
        for span, text in zip(between, texts, strict=False):
            told = tokenizer.decode(row["token_ids"][span["begin"] : span["end"]])
            assert told.removeprefix("<eos>") == f"{len(text)} = 5 more\n"


def test_the_engine_agrees_with_the_learner_over_joined_turns(ran):
    _, outputs = ran
    gaps = read_table(outputs["curve"], CURVE).filter(metric="rl/logprob_gap")["value"]
    assert len(gaps) == 3
    assert gaps.max() < 1e-5


def test_the_stored_rows_alone_lead_to_the_same_weights(ran, inputs, tmp_path):
    config, outputs = ran
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    policy = load_policy(outputs["policy"])
    assert found == weights_digest(policy.model)
    assert found != weights_digest(load_policy(inputs["policy"]).model)


def test_episodes_of_one_turn_are_answers_bit_for_bit(inputs, tmp_path):
    _, plain = trained(inputs, tmp_path / "plain")
    _, single = trained(inputs, tmp_path / "single", producer="episodes")
    for name, schema in (("rollouts", ROLLOUTS), ("curve", CURVE)):
        assert read_table(plain[name], schema).equals(read_table(single[name], schema)), name
    digests = {weights_digest(load_policy(each["policy"]).model) for each in (plain, single)}
    assert len(digests) == 1


def test_an_episode_whose_environment_broke_is_neither_right_nor_wrong(inputs, tmp_path):
    producer = {"kind": "episodes", "environment": Flaky(rounds=1)}
    config, outputs = trained(inputs, tmp_path, producer=producer)
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    broke = rows.filter(end="failed")
    assert 0 < len(broke) < len(rows)
    assert broke["reward"].null_count() == broke["solved"].null_count() == len(broke)
    assert broke["advantages"].list.len().sum() == 0
    assert rows.filter(end="over")["reward"].null_count() == 0
    curve = read_table(outputs["curve"], CURVE)
    shares = curve.filter(metric="rl/episodes_failed").sort("step")["value"].to_list()
    by_step = rows.group_by("step").agg((pl.col("end") == "failed").mean().alias("share"))
    counted = by_step.filter(pl.col("share") > 0).sort("step")["share"].to_list()
    assert shares == pytest.approx(counted)
    # Two turns where it did not break in the first: 2 of 2, else what was said until then.
    turns = rows.group_by("step").agg(pl.col("versions").list.len().mean()).sort("step")
    assert curve.filter(metric="rl/turns").sort("step")["value"].to_list() == pytest.approx(
        turns["versions"].to_list()
    )
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_some_that_break_at_once_cost_the_others_nothing(inputs, tmp_path):
    producer = {"kind": "episodes", "environment": Absent(rounds=1)}
    config, outputs = trained(inputs, tmp_path, producer=producer)
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    broke = rows.filter(end="failed")
    assert 0 < len(broke) < len(rows)
    assert broke["logprobs"].list.len().sum() == 0
    assert broke["reward"].null_count() == len(broke)
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_an_environment_that_answers_nobody_ends_the_run(inputs, tmp_path):
    producer = {"kind": "episodes", "environment": Absent(always=True)}
    with pytest.raises(UserError, match="broke in all 16 episodes of a round: no sandbox came up"):
        trained(inputs, tmp_path, producer=producer)


def test_lengths_are_held_against_all_turns_together():
    config = RlStageConfig(max_tokens=6, producer={"kind": "episodes", "most_turns": 3})
    assert (config.limit, config.longest) == (6, 18)
    assert RlStageConfig(max_tokens=6).longest == 6


layouts = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(st.lists(layouts, min_size=1, max_size=4))
def test_what_was_read_never_bears_loss(rows):
    """Of any layout of what was read and drawn, the gradient is 0 exactly where it was read."""
    rollouts = []
    for turns in rows:
        spans, place = [], 0
        for turn, (read, drew) in enumerate(turns):
            spans.append(Span(place, place + read, turn, drawn=False))
            spans.append(Span(place + read, place + read + drew, turn, drawn=True))
            place += read + drew
        drawn = sum(drew for _, drew in turns)
        rollouts.append(
            Rollout(
                problem_id="p", source="s", group=0, episode="p/0", token_ids=(5,) * place,
                spans=tuple(spans), logprobs=(-0.5,) * drawn, versions=(0,) * len(turns),
                end="over", text="",
            )
        )  # fmt: skip
    batch = collate([TrainSample.bare(each) for each in rollouts], pad=0, device="cpu")
    for row, rollout in zip(batch.mask_BT, rollouts, strict=True):
        wanted = torch.zeros_like(row)
        for span in rollout.spans:
            wanted[span.begin : span.end] = span.drawn
        assert torch.equal(row, wanted)
        assert torch.equal(row, batch.sampled_logprobs_BT[rollouts.index(rollout)] != 0)
