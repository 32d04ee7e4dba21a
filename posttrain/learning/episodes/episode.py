"""What is kept of an episode: its tokens, who drew them, and what was said."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from posttrain.learning.episodes.environments.base import Act, Situation, Told
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.learning.rollouts.engines.base import Sample

End = Literal["over", "turns", "tokens", "time", "failed"]
"""How an episode ended: by itself, at the most turns, without room for more tokens, at the deadline
of its round, or because the environment broke. What the last two earned nobody can tell."""


def start_seed(seed: int, problem: str) -> int:
    """Derive the seed of how the episodes of a problem begin: all of them alike.

    Args:
        seed: Of the round of episodes.
        problem: Its id.

    Returns:
        What `Environment.start` is given.

    """
    return purpose_seed(seed, "start", problem)


def turn_seed(seed: int, episode: str, turn: int) -> int:
    """Derive the seed of what an environment draws in its answer to a turn.

    Args:
        seed: Of the round of episodes.
        episode: Its id, or that of the problem where that has one episode.
        turn: 0-based.

    Returns:
        What `Environment.step` is given.

    """
    return purpose_seed(seed, "turn", episode, turn)


def answered_as(episode: str, turn: int) -> str:
    """Name the episode in which a turn was said, and by which it was answered.

    >>> answered_as("p/9<3@2<0@1", 2), answered_as("p/9<3@2<0@1", 1), answered_as("p/9<3@2", 0)
    ('p/9<3@2<0@1', 'p/3<0@1', 'p/3')

    Args:
        episode: Its id, or that of a branch, which says from which place of the group and before
            which turn it branched off, then from which that one did.
        turn: 0-based.

    Returns:
        The id of the episode itself, or of the one that it shares the turn with.

    """
    problem, _, place = episode.rpartition("/")
    own, *others = place.split("<")
    while others and turn < int(others[0].partition("@")[2]):
        own, others = others[0].partition("@")[0], others[1:]
    return f"{problem}/{'<'.join([own, *others])}"


class Span(NamedTuple):
    """Tokens `begin` to `end` (exclusive) of one turn; `drawn` ones bear loss."""

    begin: int
    end: int
    turn: int
    drawn: bool


class Segment(NamedTuple):
    """What one role read and drew in one sequence: what a learner trains on as one."""

    role: str
    token_ids: tuple[int, ...] = ()
    """What was read and what was drawn, in order."""
    spans: tuple[Span, ...] = ()
    """All tokens, in order: whose turn it was, and which of them the role drew."""
    logprobs: tuple[float, ...] = ()
    """Of the drawn tokens in order, by the engine, in nats."""
    versions: tuple[int, ...] = ()
    """Step whose policy drew each drawn span: one for each turn, but where a turn was begun by one
    policy and gone on with by a later one."""
    texts: tuple[str, ...] = ()
    """What was drawn in each turn that is over."""
    summed_up: bool = False
    """Whether its last turn is no act but a summary, from which the next segment goes on."""

    @property
    def said(self) -> tuple[str, ...]:
        """What the role said in it to the environment, turn by turn."""
        return self.texts[:-1] if self.summed_up else self.texts

    def read(self, token_ids: tuple[int, ...]) -> "Segment":
        """Return the segment with what was read behind it, as part of the turn to come."""
        return self._behind(token_ids, drawn=False)

    @property
    def begun(self) -> tuple[int, ...]:
        """Tokens that were drawn in a turn that is not over; none where all are."""
        spans = [span for span in self.spans if span.drawn and span.turn == len(self.texts)]
        return self.token_ids[spans[0].begin : spans[-1].end] if spans else ()

    def drew(self, sample: "Sample", *, text: str) -> "Segment":
        """Return the segment with a turn that is over, its tokens as they were drawn.

        Args:
            sample: What was drawn of the turn last.
            text: All that was drawn in it.

        """
        return self.drew_part(sample)._replace(texts=(*self.texts, text))

    def drew_part(self, sample: "Sample") -> "Segment":
        """Return the segment with a part of a turn, which is to be gone on with."""
        grown = self._behind(sample.token_ids, drawn=True)
        *spans, last = grown.spans
        versions = (*self.versions, sample.policy_version)
        if self.begun and self.versions[-1] == sample.policy_version:
            # What one policy drew in a turn is one span, however often it was interrupted.
            *spans, before = spans
            last, versions = last._replace(begin=before.begin), self.versions
        logprobs = self.logprobs + sample.logprobs
        return grown._replace(spans=(*spans, last), logprobs=logprobs, versions=versions)

    def until_said(self) -> "Segment":
        """Return the segment without a turn that is not over."""
        kept = tuple(span for span in self.spans if span.turn < len(self.texts))
        versions = self.versions[: sum(span.drawn for span in kept)]
        end = kept[-1].end if kept else 0
        drawn = sum(span.end - span.begin for span in kept if span.drawn)
        return self._replace(
            token_ids=self.token_ids[:end],
            spans=kept,
            logprobs=self.logprobs[:drawn],
            versions=versions,
        )

    def until_drawn(self) -> "Segment":
        """Return the segment without what was read behind the last draw; whole if none was."""
        drawn = [place for place, span in enumerate(self.spans) if span.drawn]
        if not drawn:
            return self
        kept = self.spans[: drawn[-1] + 1]
        return self._replace(token_ids=self.token_ids[: kept[-1].end], spans=kept)

    def _behind(self, token_ids: tuple[int, ...], *, drawn: bool) -> "Segment":
        begin = len(self.token_ids)
        span = Span(begin, begin + len(token_ids), len(self.texts), drawn)
        return self._replace(token_ids=self.token_ids + token_ids, spans=(*self.spans, span))


class Episode(NamedTuple):
    """One episode from its beginning to its end."""

    id: str
    """Problem and place in the group: with the seed, what every draw of it depends on. Of a branch,
    also where it branched off: see `answered_as`."""
    segments: tuple[Segment, ...]
    """Those of each role that speaks by tokens, in order; several of one whose context was begun
    afresh."""
    situations: tuple[Situation, ...]
    """The first, and one after every turn."""
    log: tuple[tuple[Act, ...], ...]
    """What was said in each turn: with problem and seed, enough to stand at any of them again."""
    end: End
    shared: Mapping[str, int] = {}
    """Role -> how many tokens it drew before the episode branched off from another one."""

    def of(self, role: str) -> tuple[Segment, ...]:
        """Return what a role read and drew; one empty segment where it never came to speak."""
        found = tuple(each for each in self.segments if each.role == role)
        return found or (Segment(role),)

    def text(self, role: str) -> str:
        """Return what a role said, a line a turn."""
        return "\n".join(text for segment in self.of(role) for text in segment.said)

    @property
    def is_one_answer(self) -> bool:
        """True where nothing answered the only act, and no situation has a key or paid."""
        told = any(each.key or each.earned for each in self.situations)
        return len(self.log) <= 1 and not told

    def earned(self, role: str) -> tuple[float, ...]:
        """Return what each turn of a role earned; what comes after its last act is of that one."""
        paid: list[float] = []
        for acts, after in zip(self.log, self.situations[1:], strict=True):
            if any(act.role == role for act in acts):
                paid.append(0.0)
            if paid:
                paid[-1] += after.earned.get(role, 0.0)
        return tuple(paid)

    def keys(self, role: str) -> tuple[str, ...]:
        """Return the key of the situation in which a role was asked, for each of its turns."""
        return tuple(
            before.key
            for acts, before in zip(self.log, self.situations, strict=False)
            if any(act.role == role for act in acts)
        )

    def facts(self) -> Mapping[str, float]:
        """Return what was counted, over all steps."""
        names = dict.fromkeys(name for each in self.situations for name in each.facts)
        return {
            name: math.fsum(each.facts.get(name, 0.0) for each in self.situations) for name in names
        }

    @property
    def read(self) -> tuple[str, ...]:
        """Ids of the rows that were shown before something was said, each once, in order."""
        before = zip(self.situations, self.log, strict=False)
        return tuple(dict.fromkeys(name for shown, _ in before for name in shown.read))

    def said(self, role: str) -> Iterator[Told]:
        """Give what a role said and was told after the problem's prompt, in order.

        Args:
            role: Whose view it is.

        Yields:
            Messages; those of the role itself are by `assistant`.

        """
        for situation, acts in zip(self.situations, (*self.log, ()), strict=True):
            for ask in situation.asks:
                if ask.role == role and acts:
                    yield from ask.new
            for act in acts:
                if act.role == role:
                    yield Told("assistant", act.text)
