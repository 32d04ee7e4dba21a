"""Pairs of the user's own: imported, and a reward model and a policy trained on them."""

import json

import polars as pl
import pytest

from posttrain.data.schemas import PAIRS
from posttrain.data.tables import write_table
from posttrain.learning.models.reward_head import load_reward_model
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.import_pairs import TASK
from tasks.import_pairs.stage import run
from tasks.reward import TASK as REWARD
from tasks.reward.stage import run as train_reward


def rows():
    """60 sums, of which the answer marked with a seven is preferred; one twice, one both ways."""
    made = [
        {"prompt": f"{a} + {b} =", "chosen": f"#### 7 {a + b}", "rejected": f"#### 8 = {a + b}"}
        for a in range(10)
        for b in range(6)
    ]
    changed_over = {**made[1], "chosen": made[1]["rejected"], "rejected": made[1]["chosen"]}
    return [*made, made[0], changed_over]


@pytest.fixture
def imported(tmp_path):
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows())))
    config = TASK.config(path="mine.jsonl")
    names = {"pairs": "pairs.parquet", "dropped": "dropped.parquet", "report": "report.json"}
    outputs = {name: tmp_path / file for name, file in names.items()}
    inputs = {"files.pairs": tmp_path / "mine.jsonl"}
    metrics = run(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch"))
    return outputs, metrics


def test_what_is_in_the_file_is_counted(imported):
    outputs, metrics = imported
    pairs = pl.read_parquet(outputs["pairs"])
    assert set(pairs["source"]) == {"mine"}
    wanted = {
        "pairs": 61,
        "problems": 60,
        "duplicates": 1,
        "contradictions": 2,
        "heldout": 0,
        "judged_alone": 0,
        "left_out": 0,
        "scored": 0,
        "scores_against_the_label": 0,
    }
    assert metrics == {f"import_pairs/{name}": float(count) for name, count in wanted.items()}
    assert json.loads(outputs["report"].read_text()) == wanted


def train(pairs, base, tmp_path, **more):
    names = ("reward_model", "pairs.parquet", "curve.parquet", "report.json")
    outputs = {name.split(".")[0]: tmp_path / "out" / name for name in names}
    (tmp_path / "out").mkdir()
    config = REWARD.config(
        epochs=4.0, batch_tokens=1024, optimization={"learning_rate": 0.003, "warmup_steps": 2}
    )
    context = StageContext.quiet(tmp_path / "training")
    return outputs, train_reward(config, {"policy": base, "pairs": pairs, **more}, outputs, context)


def test_a_reward_model_learns_from_them(imported, base, tmp_path):
    outputs, metrics = train(imported[0]["pairs"], base, tmp_path)
    assert metrics["reward/accuracy"] > 0.95
    assert metrics["reward/num_pairs"] == 61
    right, wrong = load_reward_model(outputs["reward_model"]).score(
        ["2 + 2 ="] * 2, ["#### 7 4", "#### 8 = 4"]
    )
    assert right > wrong


def test_a_reward_model_reads_weights_and_soft_labels(imported, base, tmp_path):
    pairs = pl.read_parquet(imported[0]["pairs"])
    odd = pl.int_range(pl.len()) % 2 == 1
    tables = {
        "plain": pairs,
        # A weight that all have is none.
        "heavy": pairs.with_columns(weight=pl.lit(4.0)),
        "uneven": pairs.with_columns(weight=pl.when(odd).then(4.0).otherwise(1.0)),
        "soft": pairs.with_columns(label_prob=pl.lit(0.75)),
    }
    margins = {}
    for name, table in tables.items():
        write_table(table, tmp_path / f"{name}.parquet", PAIRS)
        (tmp_path / name).mkdir()
        _, metrics = train(tmp_path / f"{name}.parquet", base, tmp_path / name)
        margins[name] = metrics["reward/loss"]
    assert margins["heavy"] == pytest.approx(margins["plain"], rel=1e-4)
    assert abs(margins["uneven"] - margins["plain"]) > 1e-4
    # A model that is never surer than 3 in 4 pays the entropy of its labels at the least.
    assert margins["soft"] > 0.5623 > margins["plain"]


def test_pairs_of_one_prompt_have_nothing_to_hold_out(imported, base, tmp_path):
    few = tmp_path / "few.parquet"
    write_table(pl.read_parquet(imported[0]["pairs"]).head(1), few, PAIRS)
    with pytest.raises(UserError, match="1 problem has pairs that can be used"):
        train(few, base, tmp_path)
