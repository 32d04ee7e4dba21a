"""Environments of the library verifiers: its tasks, its agents' conversations, its rewards."""

import json
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.environments.calls import arguments_of, last_call
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts
from posttrain.learning.episodes.worlds.underway import Underway
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_json

if TYPE_CHECKING:
    from posttrain.backends.verifiers.library import LibraryEnv
    from posttrain.backends.verifiers.runs import EpisodeRun
    from posttrain.backends.verifiers.seats import SeatAnswer

_OPENS = re.compile(r"([A-Za-z_][\w.-]*)\(")


class VerifiersWorld(World):
    """Play in an environment of the library verifiers: its taskset, its agents, its rewards.

    An agent's turn is the policy's; a turn that ends in `tool({"key": value})` calls a tool of the
    task. The weighted sum of its rewards, times `scale`, is what is earned at the end, held within
    0 and 1. All of it runs in this process, without the library's harnesses: a task that asks for a
    container or a box is refused.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("taskset", "tasks", "turns")
    SOURCE: ClassVar[str] = "verifiers 0.4.0: tasksets and environments of verifiers.v1"
    PACKAGES: ClassVar[frozenset[str]] = frozenset({"verifiers"})
    SET_BY_STAGES: ClassVar[frozenset[str]] = frozenset({"taskset", "others", "author", "seconds"})
    EXACT: ClassVar[bool] = False

    kind: Literal["verifiers"] = "verifiers"
    taskset: str = Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")
    """Module of the taskset, which is installed or stands beside the recipe. Stages name it too,
    so that its code is in their keys."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """What the taskset is set to."""
    env: dict[str, JsonValue] = Field(default_factory=dict)
    """Of the environment: its `id`, where it is not the taskset's own, its agents by name and what
    else it is set to."""
    seat: str = ""
    """Agent that is the policy; the only one if empty."""
    others: tuple[str, ...] = ()
    """Agents beside it, each asked as the role of its name. Stages name them too."""
    tasks: int | None = Field(default=None, ge=1)
    """So many of the taskset's first tasks are posed; all of one that ends if null."""
    turns: int = Field(default=8, ge=1)
    """Turns of the policy after which an episode is over, and scored as it stands."""
    scale: float = Field(default=1.0, gt=0.0)
    """What a reward of 1 earns."""
    author: Literal["tool", "user"] = "tool"
    """As whose message the chat template writes a tool's result; `user` where it knows no tools."""
    seconds: float = Field(default=60.0, gt=0.0, le=3600.0)
    """Most seconds until somebody is asked again, after which the episode counts as broken."""

    @model_validator(mode="after")
    def _others_are_others(self) -> Self:
        if {POLICY, self.seat} & {*self.others} or len({*self.others}) < len(self.others):
            raise ValueError(
                f"others: name each agent once, and neither `{POLICY}` nor the policy's own"
            )
        if {"taskset"} & self.env.keys():
            raise ValueError("env.taskset: write its module as `taskset`, the rest as `settings`")
        return self

    def roles_asked(self) -> frozenset[str]:
        """Name the agents beside the policy's; see `Environment.roles_asked`."""
        return frozenset(self.others)

    def authors(self) -> tuple[str, ...]:
        """Name who speaks; see `Environment.authors`."""
        return ("user", self.author)

    def has_script(self) -> bool:
        """Tell that nobody knows how its tasks are solved; see `World.has_script`."""
        return False

    def pose(self, draw: Random) -> Posed:
        """Draw a task, and begin it to see what is read; see `World.pose`."""
        env = self._env({"taskset": self.taskset, "settings": self.settings, "env": self.env})
        index = draw.randrange(env.num_tasks(self.tasks))
        key = env.task(index).key
        facts = {
            "taskset": self.taskset,
            "settings": self.settings,
            "env": self.env,
            "seat": env.seat(self.seat),
            "others": list(self.others),
            "index": index,
            "key": key,
            "turns": self.turns,
            "scale": self.scale,
            # Of the task alone: a task is one problem, and not held out where it is trained on.
            "seed": Random(key).getrandbits(31),
        }
        run = self._begun(facts)
        run.close()
        asked = run.asked
        if asked is None:
            raise UserError(
                f"environment verifiers: task {index} of {self.taskset} asks nobody:"
                f" {run.end.failed if run.end else ''}; correct the taskset or its settings"
            )
        return Posed(_joined(asked.new) if asked.role == POLICY else key, facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - the facts decide
        """Begin the task; see `World.begin`."""
        if facts["taskset"] != self.taskset:
            raise UserError(
                f"environment verifiers: this problem is of the taskset {facts['taskset']}, and the"
                f" stage names {self.taskset}; name the same one in source and stage"
            )
        run = self._begun(facts)
        return self._situation({**facts, "said": []}, run, first=True)

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:
        """Say it to whom it is said; see `Environment.step`."""
        (act,) = acts
        run = self._at(state)
        if run is None:
            why = "it does not come to the same again by what was said in it"
            return Situation(state, failed=f"verifiers: {why}")
        said = _understood(run, act)
        run.answer(said, seed)
        after = {**state, "said": [*state["said"], [*said, seed]]}
        return self._situation(after, run, first=False)

    def close(self, state: EpisodeState) -> None:
        """Forget an episode; see `Environment.close`."""
        if (run := _UNDERWAY.take(*_name(state))) is not None:
            run.close()

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Refuse: there is no script; see `World.best_move`."""
        raise UserError(
            "environment verifiers: no script knows how its tasks are solved; set demonstrations: 0"
            f" in the source, and say under `roles` who plays {role}"
        )

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Say a digit: nobody knows how a move looks; see `World.random_move`."""
        return str(draw.randrange(10))

    def _situation(self, state: EpisodeState, run: "EpisodeRun", *, first: bool) -> Situation:
        facts = {"tool_errors": float(run.tool_errors)} if run.tool_errors else {}
        if run.end is not None:
            run.close()
            if run.end.failed:
                return Situation(state, failed=f"verifiers: {run.end.failed}", facts=facts)
            scale = state["scale"]
            earned = {role: _held(each * scale) for role, each in run.end.rewards.items()}
            return Situation(state, earned=earned, key=_key(state), facts=facts)
        assert run.asked is not None
        after = {**state, "told": run.told.hexdigest()}
        for late in _UNDERWAY.keep(*_name(after), run):
            late.close()
        by_problem = first and run.asked.role == POLICY
        new = () if by_problem else tuple(self._told(each) for each in run.asked.new)
        return Situation(after, (Ask(run.asked.role, new),), key=_key(after), facts=facts)

    def _told(self, each: tuple[str, str]) -> Told:
        author, text = each
        return Told(author if self.author == "tool" else "user", text.strip() or ".")

    def _at(self, state: EpisodeState) -> "EpisodeRun | None":
        """The episode as it stands in a state: as it was kept, or by what was said in it."""
        from posttrain.backends.verifiers.seats import SeatAnswer

        if (kept := _UNDERWAY.take(*_name(state))) is not None:
            return kept
        run = self._begun(state)
        for *said, seed in state["said"]:
            if run.asked is None:
                break
            run.answer(SeatAnswer(*said), seed)
        if run.asked is None or run.told.hexdigest() != state["told"]:
            run.close()
            return None
        return run

    def _begun(self, facts: WorldFacts) -> "EpisodeRun":
        from posttrain.backends.verifiers.runs import EpisodeRun

        env = self._env(facts)
        task = env.task(facts["index"], facts["key"])
        named = {facts["seat"]: POLICY, **{name: name for name in facts["others"]}}
        return EpisodeRun(
            env,
            task,
            policy=facts["seat"],
            named=named,
            turns=facts["turns"],
            seconds=self.seconds,
            seed=facts["seed"],
        )

    def _env(self, facts: Mapping[str, Any]) -> "LibraryEnv":
        from posttrain.backends.verifiers.library import library_env

        taskset = {**facts["settings"], "id": facts["taskset"]}
        return library_env({**facts["env"], "taskset": taskset})


_UNDERWAY = Underway["EpisodeRun"](1024)


def _understood(run: "EpisodeRun", act: Act) -> "SeatAnswer":
    """What was said as the library has it: a text, with a call of a tool if it ends in one."""
    from posttrain.backends.verifiers.seats import SeatAnswer

    tools = run.asked.tools if run.asked is not None else {}
    called = last_call(act.text, tools, opens=_OPENS, also_unknown=True) if tools else None
    if called is None or act.cut:
        return SeatAnswer(act.text, act.cut)
    name, inside = called
    if name not in tools:
        return SeatAnswer(act.text, called=name, wrong=f"no tool {name}")
    try:
        return SeatAnswer(act.text, called=name, arguments=arguments_of(tools[name], inside))
    except ValueError as error:
        return SeatAnswer(act.text, called=name, wrong=str(error))


def _joined(new: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(text for _, text in new).strip() or "."


def _held(reward: float) -> float:
    return min(1.0, max(0.0, reward))


def _name(state: EpisodeState) -> tuple[str, str]:
    begun = {name: each for name, each in state.items() if name not in ("said", "told")}
    return json.dumps(begun, sort_keys=True), json.dumps(state["said"])


def _key(state: EpisodeState) -> str:
    return sha256_of_json([state["index"], state["key"], state["seed"], state["said"]])
