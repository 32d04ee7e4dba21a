"""An episode that is being played: where it stands, as what is kept of it between two rounds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.asked import Cue, Reply
from posttrain.learning.episodes.environments.base import POLICY, Act, Ask, Situation, Told
from posttrain.learning.episodes.episode import End, Episode, Segment, Span
from posttrain.learning.rollouts.engines.base import Prompt

_LISTS = ("token_ids", "logprobs", "versions", "texts")


@dataclass
class Game:
    """An episode that is being played; it can be interrupted between any two rounds."""

    problem: Problem
    prompt: Prompt
    index: int
    seed: int
    """Of the round of sampling in which it began: all chance in it is by this seed."""
    situations: list[Situation]
    segments: dict[str, tuple[Segment, ...]] = field(default_factory=dict)
    """What each role has read and drawn."""
    said: dict[str, Act] = field(default_factory=dict)
    """The last act of each role."""
    spoken: dict[str, Act] = field(default_factory=dict)
    """What was said in this turn, while others are still to speak in it."""
    heard: dict[str, tuple[Told, ...]] = field(default_factory=dict)
    """What each role has been told and has said, in order."""
    log: list[tuple[Act, ...]] = field(default_factory=list)
    """What was said in each turn that is over."""
    end: End | None = None
    late: bool = False
    """Whether it began after others of its group."""
    origin: str = ""
    """Of a branch, the rest of its id: where it branched off."""
    shared: Mapping[str, int] = field(default_factory=dict)
    """Of a branch, how many tokens each role had drawn then."""
    entropies: tuple[tuple[float, ...], ...] = ()
    """At the first tokens of the policy's turns, where somebody asks for them."""

    @property
    def id(self) -> str:
        """Problem and place in the group, and of a branch where it branched off."""
        return f"{self.prompt.id}/{self.index}{self.origin}"

    @property
    def turn(self) -> int:
        """0-based number of this turn."""
        return len(self.log)

    @property
    def waiting(self) -> tuple[Ask, ...]:
        """Who is to speak in this turn and has not."""
        return tuple(ask for ask in self.situations[-1].asks if ask.role not in self.spoken)

    @property
    def policy_spoke(self) -> bool:
        """Whether the policy was among those who spoke last."""
        return bool(self.log) and any(act.role == POLICY for act in self.log[-1])

    @property
    def episode(self) -> Episode:
        """What is kept of it, once it is over."""
        assert self.end is not None
        # A policy that never came to speak has its prompt, and nothing that could be judged.
        self.segments.setdefault(POLICY, (Segment(POLICY).read(self.prompt.token_ids),))
        # Whoever was interrupted, and came to speak no more as another role had no room, said
        # nothing in that turn.
        kept = tuple(
            segment.until_said() if segment.begun else segment
            for each in self.segments.values()
            for segment in each
        )
        situations, log = tuple(self.situations), tuple(self.log)
        return Episode(self.id, kept, situations, log, self.end, self.shared)

    def asked(self, ask: Ask) -> Cue:
        """Everything that whoever plays a role may go by."""
        last, heard = self.said.get(ask.role), self.heard.get(ask.role)
        before = self.segments.get(ask.role, ())
        begun = len(before[-1].begun) if before else 0
        # What is read first is one message, in place of the prompt or the prompt itself.
        told = "\n".join(each.text for each in ask.new) if ask.new else self.problem.prompt
        first = (Told("user", told),)
        return Cue(
            episode=self.id,
            index=self.index,
            turn=self.turn,
            problem=self.problem,
            prompt=self.prompt,
            state=self.situations[-1].state,
            ask=ask,
            before=before,
            heard=first if heard is None else (*heard, *ask.new),
            cut=last is not None and last.cut,
            late=self.late,
            begun=begun,
        )

    def branch(self, index: int) -> "Game":
        """Return another episode that goes on from here, of which all was said that was in this.

        Args:
            index: Its place in the group.

        """
        drawn = {
            role: sum(len(segment.logprobs) for segment in segments)
            for role, segments in self.segments.items()
        }
        return replace(
            self,
            index=index,
            situations=[*self.situations],
            segments={**self.segments},
            said={**self.said},
            spoken={**self.spoken},
            heard={**self.heard},
            log=[*self.log],
            origin=f"<{self.index}@{self.turn}{self.origin}",
            shared=drawn,
        )

    def take(self, asked: Cue, reply: Reply) -> None:
        """Keep what a role said, and what it has read and drawn by now.

        Args:
            asked: As it was asked.
            reply: What came of it.

        """
        role = asked.ask.role
        if reply.segments:
            self.segments[role] = reply.segments
        if reply.act is not None:
            self.said[role] = self.spoken[role] = reply.act
            self.heard[role] = (*asked.heard, Told("assistant", reply.act.text))

    def close_turn(self) -> tuple[Act, ...]:
        """Put behind what is over what was said in this turn, and return it."""
        acts = tuple(self.spoken[ask.role] for ask in self.situations[-1].asks)
        self.log.append(acts)
        self.spoken = {}
        return acts

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "problem": asdict(self.problem),
            "prompt": {"id": self.prompt.id, "token_ids": list(self.prompt.token_ids)},
            "index": self.index,
            "seed": self.seed,
            "situations": [_plain_situation(each) for each in self.situations],
            "segments": {
                role: [_plain_segment(segment) for segment in each]
                for role, each in self.segments.items()
            },
            "said": {role: list(act) for role, act in self.said.items()},
            "spoken": {role: list(act) for role, act in self.spoken.items()},
            "heard": {role: [list(told) for told in each] for role, each in self.heard.items()},
            "log": [[list(act) for act in acts] for acts in self.log],
            "end": self.end,
            "late": self.late,
            "origin": self.origin,
            "shared": dict(self.shared),
            "entropies": [list(each) for each in self.entropies],
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "Game":
        """Return the game that gave `state_dict`."""
        prompt = state["prompt"]
        return cls(
            problem=Problem(**state["problem"]),
            prompt=Prompt(prompt["id"], tuple(prompt["token_ids"])),
            index=state["index"],
            seed=state["seed"],
            situations=[_situation(each) for each in state["situations"]],
            segments={
                role: tuple(_segment(each) for each in kept)
                for role, kept in state["segments"].items()
            },
            said={role: Act(*act) for role, act in state["said"].items()},
            spoken={role: Act(*act) for role, act in state["spoken"].items()},
            heard={
                role: tuple(Told(*told) for told in each) for role, each in state["heard"].items()
            },
            log=[tuple(Act(*act) for act in acts) for acts in state["log"]],
            end=state["end"],
            late=state["late"],
            origin=state["origin"],
            shared=state["shared"],
            entropies=tuple(map(tuple, state["entropies"])),
        )


def _plain_segment(segment: Segment) -> dict[str, Any]:
    lists = {name: list(getattr(segment, name)) for name in _LISTS}
    return segment._asdict() | lists | {"spans": [list(span) for span in segment.spans]}


def _segment(state: Mapping[str, Any]) -> Segment:
    tuples = {name: tuple(state[name]) for name in _LISTS}
    return Segment(**{**state, **tuples, "spans": tuple(Span(*span) for span in state["spans"])})


def _plain_situation(situation: Situation) -> dict[str, Any]:
    asks = [[ask.role, [list(told) for told in ask.new]] for ask in situation.asks]
    plain = {name: dict(getattr(situation, name)) for name in ("state", "earned", "facts")}
    return situation._asdict() | plain | {"asks": asks, "read": list(situation.read)}


def _situation(state: Mapping[str, Any]) -> Situation:
    asks = tuple(Ask(role, tuple(Told(*told) for told in new)) for role, new in state["asks"])
    return Situation(**{**state, "asks": asks, "read": tuple(state["read"])})
