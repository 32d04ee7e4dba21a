"""Pages of MiniWoB++ in a real browser, read as a list of what can be used."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from posttrain.backends.browser.pages import CHROMIUM, evaluate
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Said,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.extras import extra_line

_Shown = Sequence[Sequence[str]]
"""Elements of a page: what each is, its text, and what is in it."""

_MOST_LETTERS = 24
"""Of an element's text that are read."""
_DRAWS = 200
"""Pages that are looked at before a task is said to have none that is small enough."""


def _quoted(goal: str, shown: _Shown) -> str:
    """Click what the goal names in quotes; so several tasks are solved."""
    named = re.findall(r'"([^"]*)"', goal)
    return _click(shown, lambda what, text: what not in ("text", "password") and text in named)


def _button(goal: str, shown: _Shown) -> str:
    return _click(shown, lambda _, text: text.lower() == goal.rstrip(".").split()[-1].lower())


def _close(goal: str, shown: _Shown) -> str:  # noqa: ARG001 - all are asked alike
    return _click(shown, lambda what, text: what == "button" and text.lower() in ("close", "x", ""))


def _pick(goal: str, shown: _Shown) -> str:
    """Choose what the goal names, one after the other, and submit."""
    names = re.sub(r"^Select (.*?)( from the list)? and click Submit\.$", r"\1", goal)
    left = [text for _, text, state in shown if text and not state]
    wanted = next((each for each in names.split(", ") if each in left), "Submit")
    return _click(shown, lambda _, text: text == wanted)


def _enter(goal: str, shown: _Shown) -> str:
    """Type what the goal names in quotes, in this order, and press the button."""
    fields = [at for at, (what, *_) in enumerate(shown, 1) if what in ("text", "password")]
    words = re.findall(r'"([^"]*)"', goal)
    for at, word in zip(fields, words * len(fields), strict=False):
        if shown[at - 1][2] != word:
            return f"type {at} {word}"
    return _click(shown, lambda what, _: what == "button")


def _focus(goal: str, shown: _Shown) -> str:
    fields = [at for at, (what, *_) in enumerate(shown, 1) if what == "text"]
    place = next((n for n, word in enumerate(("1st", "2nd", "3rd")) if word in goal), 0)
    return f"click {fields[place]}"


def _tab(goal: str, shown: _Shown) -> str:
    wanted = goal.rpartition(" on ")[2].rstrip(".")
    return _click(shown, lambda _, text: text == wanted)


def _click(shown: _Shown, fits: Callable[[str, str], bool]) -> str:
    places = (at for at, (what, text, _) in enumerate(shown, 1) if fits(what, text))
    return f"click {next(places, 1)}"


_TASKS: Mapping[str, Callable[[str, _Shown], str]] = {
    "choose-list": _pick,
    "click-button": _quoted,
    "click-checkboxes": _pick,
    "click-dialog": _close,
    "click-dialog-2": _quoted,
    "click-link": _quoted,
    "click-option": _pick,
    "click-tab": _tab,
    "click-test-2": _button,
    "enter-password": _enter,
    "enter-text": _enter,
    "focus-text-2": _focus,
    "login-user": _enter,
}
"""Tasks that depend on no clock and whose pages leave nothing behind, with how each is solved."""


def _known(task: str) -> str:
    if task not in _TASKS:
        raise ValueError(f"no such task: '{task}'{nearest(task, _TASKS)}")
    return task


class MiniWoB(World):
    """Use a page: click what it shows, and type into it, until what it asks for is done.

    What can be used is told as numbered lines; a turn is `click 3` or `type 4 word`. The page pays
    its raw reward, which does not fall with the clock. A page is what its task, its seed and the
    turns so far made of it, and is made anew where another was played in between.
    """

    SOURCE: ClassVar[str] = "MiniWoB++ 1.1.0, arXiv 1802.08802: pages and rewards"
    PACKAGES = frozenset({"miniwob"})
    PROGRAMS = {"chromium": CHROMIUM}
    SIZES: ClassVar[tuple[str, ...]] = ("elements",)

    kind: Literal["miniwob"] = "miniwob"
    tasks: tuple[Annotated[str, AfterValidator(_known)], ...] = Field(
        default=("click-button", "click-option", "choose-list", "enter-text"), min_length=1
    )
    """Tasks of which each problem takes one, by their names in MiniWoB++."""
    elements: int = Field(default=8, ge=2)
    """The most elements that a page begins with."""
    turns: int = Field(default=6, ge=1)
    """Turns of an episode."""

    def pose(self, draw: Random) -> Posed:
        """Draw pages until one is small enough; see `World.pose`."""
        task = draw.choice(self.tasks)
        for _ in range(_DRAWS):
            seed = draw.getrandbits(31)
            page = _looked_at(task, seed, ())
            if 0 < len(page["shown"]) <= self.elements:
                break
        else:
            raise UserError(
                f"miniwob: no page of '{task}' begins with at most {self.elements} elements; raise"
                " elements, or leave the task out"
            )
        facts = {"task": task, "seed": seed, "turns": self.turns, "goal": page["goal"]}
        return Posed(f"{page['goal']}\n{_told(page)}", {**facts, "shown": page["shown"]})

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - the facts' decides
        """Ask for a turn, no page is looked at yet; see `World.begin`."""
        return _asked({**facts, "done": [], "left": facts["turns"]}, "")

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Do what is said in the page; see `Environment.step`."""
        after = {**state, "left": state["left"] - 1}
        act = _read(acts[0].text)
        if act is None:
            return _asked(after, "no such move", errors=1.0)
        try:
            page = _looked_at(state["task"], state["seed"], [*state["done"], act])
        except (OSError, RuntimeError) as error:
            return Situation(after, failed=f"the page broke: {error}")
        if page["wrong"]:
            return _asked(after, "no such element", errors=1.0)
        after.update(done=[*state["done"], act], shown=page["shown"])
        if page["over"]:
            paid = min(1.0, max(0.0, page["reward"]))
            return Situation(after, earned={POLICY: paid} if paid else {})
        return _asked(after, _told(page))

    def step_all(self, turns: Sequence[Said]) -> list[Situation]:
        """Do once what episodes of a problem do alike; see `Environment.step_all`."""
        # A page costs milliseconds, and most turns of a group are those of another of its episodes.
        told = [json.dumps([state, acts[0].text]) for state, acts, _ in turns]
        answers = {
            name: self.step(*turn) for name, turn in dict(zip(told, turns, strict=True)).items()
        }
        return [answers[name] for name in told]

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Do the next that the task needs; see `World.best_move`."""
        return _TASKS[state["task"]](state["goal"], state["shown"])

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Click anything, or type a word of the goal; see `World.random_move`."""
        at = draw.randrange(len(state["shown"])) + 1
        if state["shown"][at - 1][0] in ("text", "password") and draw.random() < 0.5:
            word = draw.choice(re.findall(r"\w+", state["goal"]))
            return f"type {at} {word}"
        return f"click {at}"


def _read(text: str) -> list[Any] | None:
    found = re.fullmatch(r"click (\d{1,3})|type (\d{1,3}) ([^\x00-\x1f\x7f]{1,200})", text.strip())
    if found is None:
        return None
    clicked, typed, word = found.groups()
    return [int(clicked)] if clicked else [int(typed), word]


def _told(page: Mapping[str, Any]) -> str:
    lines = enumerate(page["shown"], 1)
    return "\n".join(" ".join(filter(None, (str(at), *element))) for at, element in lines)


def _asked(state: EpisodeState, told: str, *, errors: float = 0.0) -> Situation:
    """Ask for a turn, if there is one left."""
    facts = {"tool_errors": errors} if errors else {}
    if not state["left"]:
        return Situation(state, facts=facts)
    new = (Told("user", told),) if told else ()
    key = json.dumps([state["goal"], state["shown"], state["left"]])
    return Situation(state, (Ask(POLICY, new),), key=key, facts=facts)


@cache
def _folder() -> Path:
    try:
        import miniwob
    except ImportError:
        raise UserError(
            f"the world 'miniwob' needs miniwob, which is not installed; run: {extra_line('web')}"
        ) from None
    return Path(str(miniwob.__file__)).parent / "html" / "miniwob"


def _looked_at(task: str, seed: int, acts: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Find what a page shows after some acts, the last of which may be one that is new."""
    asked = json.dumps([seed, acts, _MOST_LETTERS])
    found = evaluate(_folder() / f"{task}.html", f"({_SCRIPT})(...{asked})")
    return dict(found)


# It is evaluated in the page, so that a turn is one call. The page keeps what was done in it: where
# that is not what the turn follows on, the page begins again by its seed and all is done anew.
_SCRIPT = """(seed, acts, letters) => {
  const plain = text => text.replace(/\\s+/g, ' ').trim().slice(0, letters).trim();
  const fields = ['text', 'password', 'textarea'];
  const own = ['reward-display', 'sync-task-cover', 'click-canvas', 'query'];
  const visible = element => {
    const box = element.getBoundingClientRect();
    return element.tagName === 'OPTION' || (box.width > 0 && box.height > 0);
  };
  const used = element => getComputedStyle(element).cursor === 'pointer';
  const label = input => {
    const around = input.closest('label'), before = input.previousElementSibling;
    const told = around || (before && before.tagName === 'LABEL' && before);
    return told ? told.textContent : '';
  };
  const listed = () => {
    const found = [];
    const walk = element => {
      if (own.includes(element.id) || !visible(element)) return;
      const tag = element.tagName.toLowerCase();
      if (tag === 'input' || tag === 'textarea') {
        const what = tag === 'input' ? element.type : tag;
        const on = ['checkbox', 'radio'].includes(what);
        const state = on ? (element.checked ? 'on' : '') : element.value;
        found.push([element, what, plain(label(element)), on ? state : plain(state)]);
      } else if (tag === 'option') {
        const chosen = element.selected && element.parentNode.dataset.chosen;
        found.push([element, tag, plain(element.textContent), chosen ? 'on' : '']);
      } else if (tag === 'button' || tag === 'a') {
        found.push([element, tag === 'a' ? 'link' : tag, plain(element.textContent), '']);
      } else if (!element.children.length && tag !== 'label' && used(element)) {
        found.push([element, 'link', plain(element.textContent), '']);
      } else for (const child of element.children) walk(child);
    };
    for (const child of document.body.children) walk(child);
    return found;
  };
  const changed = element => ['input', 'change'].forEach(name =>
    element.dispatchEvent(new Event(name, {bubbles: true})));
  const act = ([place, word]) => {
    const [element, what] = listed()[place - 1] || [null, ''];
    if (!element || (word !== undefined && !fields.includes(what))) return false;
    if (word !== undefined) {
      element.focus(); element.value = word; changed(element);
    } else if (what === 'option') {
      element.selected = true; element.parentNode.dataset.chosen = 'on';
      changed(element.parentNode);
    } else {
      element.click(); element.focus();
    }
    return true;
  };
  const last = acts.slice(-1), before = acts.slice(0, -1);
  const name = done => JSON.stringify([seed, done]);
  if (window.posttrain_at !== name(before) || WOB_DONE_GLOBAL) {
    if (window.jQuery) jQuery.fx.off = true;
    if (document.activeElement) document.activeElement.blur();
    core.EPISODE_MAX_TIME = 1e9;
    core.endEpisode(0);
    Math.seedrandom(seed);
    core.startEpisodeReal();
    document.querySelectorAll('select').forEach(each => delete each.dataset.chosen);
    // Some pages keep their fields, with what was typed.
    document.querySelectorAll('input:not([type=radio]):not([type=checkbox]), textarea')
      .forEach(each => { each.value = each.defaultValue; });
    before.forEach(act);
  }
  const wrong = last.some(each => !act(each));
  window.posttrain_at = name(wrong ? before : acts);
  const goal = core.getUtterance();
  return {
    goal: goal.utterance || goal, shown: listed().map(each => each.slice(1)), wrong,
    over: WOB_DONE_GLOBAL, reward: WOB_RAW_REWARD_GLOBAL,
  };
}"""
