"""Stages that begin while Prefect comes up: each runs once, and who takes over is told its end."""

import threading
from types import SimpleNamespace

import pytest

from posttrain.pipeline.execution.failures import StageFailed
from posttrain.pipeline.execution.head_start import HeadStart

# What stands before each stage.
DIAMOND = {"root": [], "left": ["root"], "right": ["root"], "join": ["left", "right"]}


class Work:
    """Plays the executor: notes what runs, and lets a stage go on only when it may."""

    def __init__(self, graph, *, held=(), failing=()):
        self.planner = SimpleNamespace(dag=SimpleNamespace(upstream=graph.__getitem__))
        self.may = {name: threading.Event() for name in graph}
        self.begun = {name: threading.Event() for name in graph}
        self.failing, self.runs = {*failing}, []
        self._running, self._lock, self.most = 0, threading.Lock(), 0
        for name in {*graph} - {*held}:
            self.may[name].set()

    def bring_up_to_date(self, name, *, attempt):
        with self._lock:
            self.runs.append((name, attempt))
            self._running += 1
            self.most = max(self.most, self._running)
        self.begun[name].set()
        assert self.may[name].wait(20)
        with self._lock:
            self._running -= 1
        if name in self.failing:
            self.failing.discard(name)
            raise StageFailed(name, "it broke", retryable=True, refused=False)
        return f"{name} is done"


def test_all_that_gets_ready_begins_and_runs_once():
    work = Work(DIAMOND, held=["join"])
    with HeadStart(work, [*DIAMOND], slots=2) as ahead:
        ahead.begin()
        assert work.begun["join"].wait(20)
        ahead.hand_over()
        work.may["join"].set()
        ended = [ahead.bring_up_to_date(name, attempt=1) for name in DIAMOND]
    assert ended == [f"{name} is done" for name in DIAMOND]
    assert sorted(work.runs) == [("join", 1), ("left", 1), ("right", 1), ("root", 1)]


def test_what_is_handed_over_is_begun_by_who_takes_it():
    work = Work(DIAMOND, held=["root"])
    with HeadStart(work, [*DIAMOND], slots=2) as ahead:
        ahead.begin()
        assert work.begun["root"].wait(20)
        ahead.hand_over()
        work.may["root"].set()
        assert ahead.bring_up_to_date("root", attempt=1) == "root is done"
        assert work.runs == [("root", 1)]
        assert ahead.bring_up_to_date("left", attempt=1) == "left is done"
    assert work.runs == [("root", 1), ("left", 1)]


def test_stages_before_those_that_run_count_as_made():
    work = Work({"left": ["root"]})
    with HeadStart(work, ["left"], slots=1) as ahead:
        ahead.begin()
        assert work.begun["left"].wait(20)


def test_no_more_run_at_once_than_may_whoever_began_them():
    graph = {name: [] for name in "abc"}
    work = Work(graph, held=["a"])
    with HeadStart(work, ["a", "b", "c"], slots=1) as ahead:
        ahead.begin()
        assert work.begun["a"].wait(20)
        ahead.hand_over()
        takers = [
            threading.Thread(target=ahead.bring_up_to_date, args=[name], kwargs={"attempt": 1})
            for name in "bca"
        ]
        for taker in takers:
            taker.start()
        work.may["a"].set()
        for taker in takers:
            taker.join(20)
    assert work.most == 1
    assert sorted(work.runs) == [("a", 1), ("b", 1), ("c", 1)]


def test_a_failure_is_told_to_who_takes_over_and_tried_again_by_them():
    work = Work(DIAMOND, failing=["root"])
    with HeadStart(work, [*DIAMOND], slots=2) as ahead:
        ahead.begin()
        assert work.begun["root"].wait(20)
        ahead.hand_over()
        with pytest.raises(StageFailed, match="it broke"):
            ahead.bring_up_to_date("root", attempt=1)
        assert ahead.bring_up_to_date("root", attempt=2) == "root is done"
    assert work.runs == [("root", 1), ("root", 2)]


def test_where_nobody_takes_over_what_has_begun_ends_and_nothing_begins(capsys):
    work = Work(DIAMOND, held=["root"])

    def come_up():
        with HeadStart(work, [*DIAMOND], slots=2) as ahead:
            ahead.begin()
            assert work.begun["root"].wait(20)
            threading.Timer(0.2, work.may["root"].set).start()
            raise OSError("no server")

    with pytest.raises(OSError, match="no server"):
        come_up()
    assert work.may["root"].is_set()
    assert work.runs == [("root", 1)]
    assert capsys.readouterr().err == "note: no server; first root ends\n"
