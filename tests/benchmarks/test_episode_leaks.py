"""The count of what many episodes leave behind, and the figures that the documents state."""

import gc
import json
import os
from pathlib import Path
from typing import Literal

import pytest

from benchmarks.reliability import episodes
from benchmarks.reliability.escapes.attempts import held_now
from posttrain.learning.episodes.environments.base import POLICY, Ask, Environment, Situation

ROOT = Path(__file__).parents[2]


class Filing(Environment):
    """Open a file for each episode, and close it, or not."""

    kind: Literal["filing"] = "filing"
    closes: bool = True

    def start(self, problem, seed):
        return Situation({"file": os.open(os.devnull, os.O_RDONLY)}, (Ask(POLICY),))

    def step(self, state, acts, seed):
        return Situation(state)

    def close(self, state):
        if self.closes:
            os.close(state["file"])
        else:
            LEFT.append(state["file"])


LEFT = []


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Wait for no process that other tests have."""
    monkeypatch.setattr(episodes, "held_now", lambda: held_now(settle=0.0))
    yield
    while LEFT:
        os.close(LEFT.pop())


def test_what_is_left_open_is_counted_and_what_is_closed_is_not():
    # What other tests left to be collected would be closed in the middle.
    gc.collect()
    found = episodes.counted([Filing()], 130, 60.0)
    assert (found["episodes"], found["leaks"].get("files")) == (130, None)
    assert found["how they ended"] == {"over": 130}
    assert episodes.counted([Filing(closes=False)], 130, 60.0)["leaks"]["files"] == 30


def test_it_stops_at_its_minutes_and_says_how_many_were_played():
    assert episodes.counted([Filing()], 500, 0.0)["of"] == {"filing": 100}


@pytest.mark.usefixtures("sandboxed")
def test_what_holds_something_is_among_them():
    assert {each.kind for each in episodes.holding()} >= {"python", "sql", "repair"}


def test_the_documents_state_the_figures():
    figures = json.loads((ROOT / "benchmarks/reliability/episodes.json").read_text())
    assert figures["leaks"] == {}
    assert f"{figures['episodes']:,} episodes" in (ROOT / "docs/reliability.md").read_text()
