"""Episodes on the page and in the table: figures, exhibits, and those that RL learned from."""

from dataclasses import replace

import polars as pl
import pytest
from rich.console import Console
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from posttrain.data.schemas import ROLLOUTS
from posttrain.views.report import summary_table
from posttrain.views.report.episodes import played_trainings
from posttrain.views.report.evaluation import evaluations
from tasks.evaluate.report import EpisodesReport, Estimate, ShownCompletion, ShownTurn
from tasks.evaluate.report import write_report as write_evaluation
from tests.views.report.conftest import HOSTILE, evaluation, record
from tests.views.report.test_page import page_of, sections, words

WORDS = ["ask", "12", "lower", "9", "<end>"]


def means(score):
    near = Estimate(score, score - 0.1, score + 0.1)
    ends = {"over": Estimate(0.75, 0.7, 0.8), "turns": Estimate(0.25, 0.2, 0.3)}
    counts = {"tool_errors": Estimate(0.5, 0.25, 0.75)}
    single = Estimate(9.0, float("-inf"), float("inf"))
    return EpisodesReport(near, Estimate(3.5, 3.0, 4.0), single, single, counts, ends)


@pytest.fixture
def played(workspace):
    """The evaluation of the small run, as if its policies had played."""
    told = evaluation()
    policies = tuple(
        replace(each, episodes=means(score))
        for each, score in zip(told.policies, (0.4, 0.8), strict=True)
    )
    turns = (
        ShownTurn("assistant", "12", 0.0, "1-16/4"),
        ShownTurn("user", HOSTILE, None, ""),
        ShownTurn("assistant", "9", 0.75, "1-11/3"),
    )
    shown = ShownCompletion("rl", "12\n9", 0.75, "", 0.5, turns, "turns")
    (exhibit,) = told.exhibits
    exhibits = (replace(exhibit, completions=(exhibit.completions[0], shown)),)
    changed = replace(told, policies=policies, exhibits=exhibits)
    write_evaluation(changed, workspace.artifacts["judge.report"])
    return workspace


def test_means_and_ends_stand_below_the_policies(played, tmp_path):
    text = words(page_of(played, tmp_path))
    assert "mean score turns tool errors tokens drawn tokens read ended: over ended: turns" in text
    assert "rl 0.8 0.7 to 0.9 3.5 3 to 4 0.5 0.25 to 0.75 9 9 75.0% 70.0 to 80.0 25.0%" in text
    console = Console(width=200, record=True)
    console.print(summary_table(played.stages, played.artifacts))
    table = " ".join(console.export_text().split())
    assert "rl: mean score 0.8, turns 3.5, tool errors 0.5, tokens drawn 9" in table
    assert "; ended: over 75.0% [70.0, 80.0], turns 25.0% [20.0, 30.0]" in table


def test_an_exhibit_shows_who_said_what(played, tmp_path):
    page = page_of(played, tmp_path)
    text = words(page)
    assert "policy 1-16/4 12 user" in text
    assert "policy earned 0.75 1-11/3 9" in text
    assert "score 0.75, ended: turns" in text
    assert HOSTILE not in page
    (report,) = evaluations(played.stages, played.artifacts)
    assert report.policies[1].episodes.score.value == 0.8


def rollout(step, episode, reward, *, spans=4, trained=True):
    whole = [
        {"begin": 0, "end": 1, "turn": 0, "drawn": False},
        {"begin": 1, "end": 3, "turn": 0, "drawn": True},
        {"begin": 3, "end": 4, "turn": 1, "drawn": False},
        {"begin": 4, "end": 5, "turn": 1, "drawn": True},
    ]
    empty = dict.fromkeys(ROLLOUTS)
    return {
        **empty, "id": f"{step}{episode}", "step": step, "group": 0, "episode": episode,
        "segment": 0, "role": "policy", "token_ids": [0, 1, 4, 2, 3][: whole[spans - 1]["end"]],
        "spans": whole[:spans], "end": "over", "reward": reward, "solved": reward == 1.0,
        "turns": [{"earned": 0.0, "key": "k1"}, {"earned": reward, "key": "k2"}][: spans // 2],
        "advantages": [0.5, 1.5, -1.0][: 2 if spans == 2 else 3], "trained": trained,
    }  # fmt: skip


@pytest.fixture
def trained(workspace, tmp_path):
    """A stage that learned from a few episodes."""

    def write(rows):
        folder = tmp_path / "rl"
        (folder / "policy").mkdir(parents=True)
        vocabulary = {word: place for place, word in enumerate(WORDS)}
        Tokenizer(WordLevel(vocabulary, "ask")).save(str(folder / "policy/tokenizer.json"))
        pl.DataFrame(rows, schema=ROLLOUTS).write_parquet(folder / "rollouts")
        outputs = [
            replace(workspace.stages[0].record.outputs[0], role=role, type=kind)
            for role, kind in (("policy", "checkpoint"), ("rollouts", "rollouts"))
        ]
        workspace.stages.append(record("rl", {"curve": "train"}, outputs))
        for role in ("policy", "rollouts"):
            workspace.artifacts[f"rl.{role}"] = folder / role
        return workspace

    return write


def test_the_best_the_median_and_the_worst_of_the_last_steps_are_shown(trained, tmp_path):
    rows = [rollout(20, str(place), place / 4, trained=place != 1) for place in range(5)]
    workspace = trained([rollout(1, "first", 7.0), *rows])
    (told,) = played_trainings(workspace.stages, workspace.artifacts)
    assert (told.stage, told.steps, told.number) == ("rl", (20, 20), 5)
    assert [(each.name, each.reward) for each in told.episodes] == [
        ("best", 1.0), ("median", 0.5), ("worst", 0.0)
    ]  # fmt: skip
    read, drawn, more, last = told.episodes[0].spans
    assert (read.text, read.drawn, read.learned) == ("ask", False, False)
    assert (drawn.text, drawn.tokens, drawn.key, drawn.advantage) == ("12 <end>", 2, "k1", 1.0)
    assert (more.text, last.text, last.earned, last.learned) == ("lower", "9", 1.0, True)
    page = page_of(workspace, tmp_path)
    assert "episodes" in sections(page)
    assert "policy earned 1 advantage -1.00 1 token k2 9" in words(page)


def test_it_goes_by_the_policy_whatever_others_earn(trained):
    """An opponent has what the policy has not, and its name stands before the policy's."""
    own = [rollout(20, str(place), place / 4) for place in range(5)]
    others = [{**row, "role": "opponent", "reward": 1.0 - row["reward"]} for row in own]
    workspace = trained([row for pair in zip(others, own, strict=True) for row in pair])
    (told,) = played_trainings(workspace.stages, workspace.artifacts)
    assert [(each.name, each.reward) for each in told.episodes] == [
        ("best", 1.0), ("median", 0.5), ("worst", 0.0)
    ]  # fmt: skip
    assert {span.role for each in told.episodes for span in each.spans} == {"policy"}
    assert [len(each.spans) for each in told.episodes] == [4, 4, 4]


def test_a_policy_without_a_tokenizer_has_no_section(trained):
    workspace = trained([rollout(20, str(place), place / 4) for place in range(5)])
    (workspace.artifacts["rl.policy"] / "tokenizer.json").unlink()
    assert played_trainings(workspace.stages, workspace.artifacts) == []


def test_single_answers_have_no_section(trained, tmp_path):
    workspace = trained([rollout(step, "0", 1.0, spans=2) for step in range(1, 4)])
    assert played_trainings(workspace.stages, workspace.artifacts) == []
    assert "episodes" not in sections(page_of(workspace, tmp_path))
