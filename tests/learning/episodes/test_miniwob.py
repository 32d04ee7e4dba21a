"""Pages of MiniWoB++: a page is what its seed and the turns made of it, and nothing stays."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from posttrain.backends.browser import pages
from posttrain.learning.episodes.environments.base import Act, Said
from posttrain.learning.episodes.worlds import miniwob
from posttrain.learning.episodes.worlds.miniwob import MiniWoB
from posttrain.pipeline.execution.sandboxes import circumstances_of
from posttrain.stage.errors import UserError

pytest.importorskip("miniwob")
if shutil.which("chromium") is None:
    pytest.skip("chromium is not installed", allow_module_level=True)

TASKS = tuple(miniwob._TASKS)


def begun(task, seed, **settings):
    world = MiniWoB(tasks=(task,), **{"elements": 20, "turns": 9, **settings})
    prompt, facts = world.pose(Random(seed))
    return world, prompt, world.begin(facts, 0)


def said(world, situation, text):
    return world.step(situation.state, [Act("policy", text)], 0)


def played(task, seed, *, by="best_move"):
    """All that an episode showed and paid."""
    world, prompt, situation = begun(task, seed)
    draw, steps = Random(seed), [prompt]
    while situation.asks:
        situation = said(world, situation, getattr(world, by)(situation.state, "policy", draw))
        steps.append((situation.state["shown"], dict(situation.earned), situation.asks))
        assert not situation.failed
    return steps


def test_a_page_is_told_as_lines_and_used_by_their_numbers():
    world = MiniWoB()
    page = {"task": "enter-text", "seed": 7, "turns": 4, "goal": "", "shown": []}
    situation = said(world, world.begin(page, 0), "type 1 a b")
    assert situation.asks[0].new[0].text == "1 text a b\n2 button Submit"
    for wrong in ("click 0", "click 3", "type 2 a"):
        told = said(world, situation, wrong)
        assert told.asks[0].new[0].text == "no such element"
        assert told.facts == {"tool_errors": 1.0}
    assert said(world, situation, "press 2").asks[0].new[0].text == "no such move"
    over = said(world, situation, "click 2")
    assert (over.asks, over.earned) == ((), {})  # not what was asked for: the page pays -1


@pytest.mark.parametrize("task", TASKS)
def test_the_script_solves_every_task(task):
    for seed in range(4):
        assert played(task, seed)[-1][1] == {"policy": 1.0}


@pytest.mark.slow
def test_a_page_that_was_used_is_as_one_that_was_just_opened():
    # What episodes before it did to the page must not be seen by one that comes after them, and
    # which other pages are open must not count.
    tasks = ("choose-list", "click-checkboxes", "enter-text", "focus-text-2")

    def all_played(seeds, tasks):
        return {task: [played(task, seed, by="random_move") for seed in seeds] for task in tasks}

    used = all_played((3, 1), tasks)
    pages.close()
    assert all_played((1,), reversed(tasks)) == {task: [last] for task, (_, last) in used.items()}


def test_every_page_has_the_focus_and_none_what_was_typed_in_an_episode_before():
    world, prompt, first = begun("focus-text-2", 1)
    begun("enter-text", 2)  # A page that was opened later, and has the focus of a window.
    assert said(world, first, "type 3 x").earned == {}  # To type is to focus, and 3 was wrong.
    assert world.pose(Random(1)).prompt == prompt
    assert said(world, first, "click 2").earned == {"policy": 1.0}


def test_episodes_that_share_a_page_do_not_see_each_other():
    alone = played("login-user", 5)
    world, prompt, first = begun("login-user", 5)
    _, _, other = begun("login-user", 6)
    steps = [prompt]
    while first.asks:
        other = said(world, other, "type 1 x") if other.asks else other
        first = said(world, first, world.best_move(first.state, "policy", Random(0)))
        steps.append((first.state["shown"], dict(first.earned), first.asks))
    assert steps == alone


def test_what_several_episodes_do_alike_is_done_once_and_is_what_each_does_alone(monkeypatch):
    world, _, first = begun("login-user", 5)
    _, _, other = begun("login-user", 6)
    turns = [
        Said(situation.state, [Act("policy", text)], seed)
        for seed, (situation, text) in enumerate(
            [(first, "type 1 a"), (other, "type 1 a"), (first, "type 1 a"), (first, "type 1 b")]
        )
    ]
    alone = [world.step(*turn) for turn in turns]
    asked, page = [], miniwob._looked_at
    monkeypatch.setattr(miniwob, "_looked_at", lambda *what: asked.append(what) or page(*what))
    assert world.step_all(turns) == alone
    assert len(asked) == 3


def test_an_episode_goes_on_where_its_browser_was_killed():
    alone = played("enter-password", 2)
    world, _, situation = begun("enter-password", 2)
    situation = said(world, situation, world.best_move(situation.state, "policy", Random(0)))
    (browser,) = pages._open
    os.killpg(browser.process, signal.SIGKILL)
    situation = said(world, situation, world.best_move(situation.state, "policy", Random(0)))
    assert situation.state["shown"] == alone[2][0]


def test_the_browser_is_given_no_variable_that_it_has_no_use_for(monkeypatch):
    pages.close()
    monkeypatch.setenv("SOME_TOKEN", "secret")
    monkeypatch.setenv("LANG", "de_DE")  # What a stage may not even read, as its key has none.
    assert pages.evaluate(Path("/"), "1 + 1") == 2
    (browser,) = pages._open
    given = Path(f"/proc/{browser.process}/environ").read_bytes().split(b"\0")
    known = dict(each.decode().split("=", 1) for each in given if each)
    assert known.keys() - {"PWD"} == {"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ"}
    assert (known["LANG"], known["TZ"]) == ("C.UTF-8", "UTC")


def test_a_stage_says_which_browser_showed_its_pages():
    begun("click-button", 0)
    told = circumstances_of(SimpleNamespace(device="cpu", view=None))
    assert re.fullmatch(r"(Headless)?Chrom\w+/[\d.]+", told["browser"])


def test_no_page_is_small_enough():
    with pytest.raises(
        UserError, match=r"no page of 'enter-password' .* at most 2 elements; raise"
    ):
        MiniWoB(tasks=("enter-password",), elements=2).pose(Random(0))


def test_a_task_that_is_not_known():
    with pytest.raises(UserError, match="no such task: 'click-buton'.*click-button"):
        MiniWoB.parse({"tasks": ["click-buton"]}, where="world")


def test_without_a_browser_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setattr(pages, "_PLACES", ())
    monkeypatch.setattr(pages, "_NAMES", ("no-such-browser",))
    with pytest.raises(UserError, match="not installed; run: apt-get install chromium"):
        pages.program()


def test_nothing_is_left_of_a_process_that_was_killed():
    code = (
        "from posttrain.backends.browser.pages import _open, evaluate; from pathlib import Path\n"
        "evaluate(Path('/'), '1'); print(_open[0].process, _open[0].folder, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        browser, folder = child.stdout.readline().split()
        assert _of_session(browser)
        assert Path(folder).exists()
        child.kill()
    deadline = time.monotonic() + 20
    while (left := _of_session(browser)) or Path(folder).exists():
        assert time.monotonic() < deadline, (left, folder)
        time.sleep(0.05)


def _of_session(session):
    """Processes of a session: the browser's shell has begun one."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == session and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


@pytest.mark.slow
def test_pages_pay_and_ask_as_in_the_package_itself(monkeypatch):
    # The package's own environment, through selenium: equal seeds ask and pay alike.
    if shutil.which("chromedriver") is None:
        pytest.skip("chromedriver is not installed")
    from miniwob.action import ActionTypes
    from miniwob.environment import MiniWoBEnvironment

    monkeypatch.setenv("SE_OFFLINE", "true")
    clicked = 0
    for task in ("click-button", "click-link", "click-dialog-2", "click-tab"):
        theirs = MiniWoBEnvironment(task, reward_processor=lambda told: told["raw_reward"])
        try:
            for seed in range(3):
                world, prompt, situation = begun(task, seed)
                state = situation.state
                seen, _ = theirs.reset(seed=state["seed"])
                assert seen["utterance"] == state["goal"]
                for move in range(len(state["shown"])):
                    seen, _ = theirs.reset(seed=state["seed"])
                    what, text, _ = state["shown"][move]
                    alike = [
                        e
                        for e in seen["dom_elements"]
                        if (e["text"].strip(), e["ref"] > 0) == (text, True)
                    ]
                    if text and len(alike) == 1:
                        action = theirs.unwrapped.create_action(
                            ActionTypes.CLICK_ELEMENT, ref=alike[0]["ref"]
                        )
                        _, paid, over, _, _ = theirs.step(action)
                        ours = said(world, situation, f"click {move + 1}")
                        assert over == (not ours.asks)
                        assert max(0.0, paid) == ours.earned.get("policy", 0.0)
                        clicked += 1
        finally:
            theirs.close()
    assert clicked > 10
