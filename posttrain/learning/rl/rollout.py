"""Rollouts: what a policy drew, and what it earned; the segments of one as a whole."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple, TypeVar

from posttrain.learning.curriculum.base import GroupResult
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.episode import Span

T = TypeVar("T")

EARLIER = "earlier"
"""Fact of a rollout that is drawn over several steps: its drawn tokens that are of earlier ones."""


class Rollout(NamedTuple):
    """One segment: a sequence of tokens with what it earned; a row of the table, but for its step.

    An episode of one turn is one segment of two spans: the prompt, and what was drawn.
    """

    problem_id: str
    source: str
    group: int
    """Which of its step's draws it belongs to; 0 for the first problem drawn."""
    episode: str
    """Problem and place in the group: with the seed, what every draw of it depends on."""
    token_ids: tuple[int, ...]
    """What was read and what was drawn, in order."""
    spans: tuple[Span, ...]
    """All tokens, in order: whose turn it was, and which of them the policy drew."""
    logprobs: tuple[float, ...]
    """Of the drawn tokens in order, by the engine, in nats."""
    versions: tuple[int, ...]
    """Step whose policy drew each drawn span: a turn, or what one policy drew of it."""
    end: str
    """`over`, what cut it short (`turns`, `tokens`, `time`, `failed`), or `unfinished`."""
    text: str
    """The drawn tokens as text, behind what its answer was given to begin with."""
    turns: tuple[tuple[float, str], ...] = ()
    """What the environment paid for each turn, and the key of where it was spoken; none where
    another part says what the episode is worth."""
    components: tuple[tuple[str, float | None], ...] = ()
    """Each reward component's name and score; None where it could not be judged."""
    reward: float | None = None
    """What is learned from; None where it could not be judged, so that it bears no loss."""
    solved: bool | None = None
    """Whether it counts as right; None where it could not be judged."""
    token_rewards: tuple[float, ...] = ()
    """The part of the reward that is paid token by token, one per drawn token; none if none is."""
    advantages: tuple[float, ...] = ()
    """As learned from: one per drawn token, or one that all share; none if it bears no loss."""
    trained: bool = False
    """True where the learner was given it."""
    role: str = POLICY
    """Who drew it."""
    segment: int = 0
    """Place among the segments of its role in its episode."""
    peers: str = ""
    """Those of its group that it is compared with: the same word, such as the role that they all
    play. Empty where there is one role, which is compared throughout the group."""
    origin: str = POLICY
    """Who wrote the tokens: the policy itself, or a table of traces."""
    read: tuple[str, ...] = ()
    """Ids of the rows that were shown in its episode: parents of its row, like the problem."""
    shared: int = 0
    """Of the drawn tokens so many, the first, are another rollout's, from which this branched off:
    they were drawn once, and are learned from in each."""
    facts: tuple[tuple[str, float], ...] = ()
    """What its environment counted in the episode, such as `tool_errors`, by name."""
    entropies: tuple[float, ...] = ()
    """Of the policy at each drawn token before the step learned, in nats; none if not kept."""

    @property
    def num_drawn(self) -> int:
        """Drawn tokens."""
        return len(self.logprobs)

    @property
    def earlier(self) -> int:
        """Drawn tokens, the first, that earlier steps were given already."""
        return int(dict(self.facts).get(EARLIER, 0.0))

    @property
    def num_new(self) -> int:
        """Drawn tokens that no other rollout has, and no earlier step had."""
        return self.num_drawn - self.shared - self.earlier

    @property
    def unfinished(self) -> bool:
        """True where it goes on in a later step, so that nobody can judge it yet."""
        return self.end == "unfinished"

    @property
    def foreign(self) -> bool:
        """True where others than the policy wrote it, as an answer to what it was asked."""
        return self.origin != POLICY

    @property
    def drawn(self) -> list[bool]:
        """True at the drawn ones of all tokens, ``[T]``."""
        return [span.drawn for span in self.spans for _ in range(span.begin, span.end)]

    @property
    def drawn_by_turn(self) -> tuple[int, ...]:
        """Drawn tokens of each turn that has some, in order."""
        counts: dict[int, int] = {}
        for span in self.spans:
            if span.drawn and span.end > span.begin:
                counts[span.turn] = counts.get(span.turn, 0) + span.end - span.begin
        return tuple(counts.values())

    @property
    def policy_version(self) -> int:
        """The oldest of the policies that drew it."""
        return min(self.versions)

    @property
    def token_versions(self) -> tuple[int, ...]:
        """Step whose policy drew each drawn token; none where one policy drew them all."""
        if len(set(self.versions)) == 1:
            return ()
        drawn = [span.end - span.begin for span in self.spans if span.drawn]
        each = zip(self.versions, drawn, strict=True)
        return tuple(version for version, count in each for _ in range(count))

    @property
    def mean_advantage(self) -> float:
        """Over the drawn tokens; 0 where it bears no loss."""
        return math.fsum(self.advantages) / len(self.advantages) if self.advantages else 0.0

    @property
    def truncated(self) -> bool:
        """True where it was cut off: at the limit of tokens, or of turns."""
        return self.end in ("tokens", "turns")

    @property
    def broke(self) -> bool:
        """True where nobody can judge it: its environment broke or was late, or it never spoke."""
        return self.end in ("failed", "time") or not self.logprobs

    @property
    def judged(self) -> bool:
        """False where nothing could tell what it is worth."""
        return self.reward is not None


Group = list[Rollout]


def grouped(rollouts: Sequence[Rollout]) -> list[Group]:
    """Put adjacent rollouts of one group together."""
    groups: list[Group] = []
    for rollout in rollouts:
        if groups and groups[-1][0].group == rollout.group:
            groups[-1].append(rollout)
        else:
            groups.append([rollout])
    return groups


def own(groups: Sequence[Group]) -> list[Group]:
    """Return the groups with what the policy drew in them alone; a group without any is gone."""
    kept = [[rollout for rollout in group if not rollout.foreign] for group in groups]
    return [group for group in kept if group]


def marked(group: Group, *, trained: bool) -> Group:
    """Return the same group, given to the learner or not.

    Args:
        group: Rollouts of one problem.
        trained: True where the learner is given it.

    Returns:
        New rollouts; the old ones are left as they are.

    """
    return [rollout._replace(trained=trained) for rollout in group]


def learned_from(groups: Sequence[Group]) -> list[Group]:
    """Return the rollouts that the learner is given, without the groups that have none."""
    given = [[rollout for rollout in group if rollout.trained] for group in groups]
    return [group for group in given if group]


def plain(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return groups as plain values by name, for a checkpoint."""
    return [
        rollout._asdict() | {"spans": [span._asdict() for span in rollout.spans]}
        for group in groups
        for rollout in group
    ]


def from_plain(rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    """Return the groups that `plain` was given."""
    return grouped([from_values(row) for row in rows])


def from_values(values: Mapping[str, Any]) -> Rollout:
    """Return the rollout whose fields these are, with lists where it has tuples."""
    per_token = ("token_ids", "logprobs", "token_rewards", "advantages", "entropies")
    return Rollout(
        **{
            **values,
            **{name: tuple(values[name]) for name in (*per_token, "versions", "read")},
            "spans": tuple(Span(**span) for span in values["spans"]),
            "turns": tuple((earned, key) for earned, key in values["turns"]),
            "facts": tuple((name, value) for name, value in values["facts"]),
            "components": tuple((name, value) for name, value in values["components"]),
        }
    )


def places_of_wholes(rollouts: Sequence[Rollout]) -> list[list[int]]:
    """Find the rows that belong together: the segments of a role in an episode, in their order.

    Args:
        rollouts: Rows of any groups.

    Returns:
        Places by whole, in the order in which each begins; one place each where no episode was cut
        into segments.

    """
    found: list[list[int]] = []
    begun: dict[tuple[int, str, str], list[int]] = {}
    for place, row in enumerate(rollouts):
        of = (row.group, row.episode, row.role)
        if row.segment == 0 or of not in begun:
            found.append([])
            begun[of] = found[-1]
        begun[of].append(place)
    return found


def wholes(group: Group) -> list[Rollout]:
    """Return the rollouts of a group with the segments of each episode and role joined."""
    return [as_one([group[place] for place in places]) for places in places_of_wholes(group)]


def sides(group: Group) -> list[list[list[int]]]:
    """Find the wholes of a group that are compared with each other.

    Args:
        group: Rollouts of one problem.

    Returns:
        Places of the rows of each whole, by role and by who is compared with whom, in the order in
        which each begins.

    """
    found: dict[tuple[str, str], list[list[int]]] = {}
    for places in places_of_wholes(group):
        first = group[places[0]]
        found.setdefault((first.role, first.peers), []).append(places)
    return list(found.values())


def result_of(group: Group, problem: int) -> GroupResult:
    """Say what became of a problem: by the role that is given it, and no other that the policy has.

    Args:
        group: Rollouts of one problem.
        problem: Place of the problem.

    Returns:
        What a problem sampler sees of it.

    """
    attempts = [whole for whole in wholes(group) if whole.role == POLICY and not whole.foreign]
    return GroupResult(
        problem=problem,
        rewards=tuple(rollout.reward for rollout in attempts),
        solved=tuple(rollout.solved for rollout in attempts),
        lengths=tuple(rollout.num_drawn for rollout in attempts),
        advantages=tuple(rollout.mean_advantage for rollout in attempts),
    )


def as_one(segments: Sequence[Rollout]) -> Rollout:
    """Join the segments of a role in an episode, one behind the other.

    What a later segment read again stands in it again, as read: the drawn tokens are each there
    once, in the order in which they were drawn.

    Args:
        segments: At least one; all share what they earned.

    Returns:
        The segment itself where there is one.

    """
    if len(segments) == 1:
        return segments[0]
    *_, last = segments
    alone = len({each.advantages for each in segments}) == 1 and len(last.advantages) <= 1
    return last._replace(
        token_ids=_chained(each.token_ids for each in segments),
        spans=_chained(_shifted(segments)),
        logprobs=_chained(each.logprobs for each in segments),
        versions=_chained(each.versions for each in segments),
        text="\n".join(each.text for each in segments if each.text),
        turns=_chained(each.turns for each in segments),
        token_rewards=_chained(each.token_rewards for each in segments),
        advantages=last.advantages if alone else _chained(map(_spread, segments)),
        entropies=_chained(each.entropies for each in segments),
        segment=0,
        shared=sum(each.shared for each in segments),
    )


def parted(values: Sequence[T], segments: Sequence[Rollout]) -> list[tuple[T, ...]]:
    """Part what a whole has back among its segments.

    Args:
        values: One per drawn token of the whole, or one or none for all of it.
        segments: Of the whole, in their order.

    Returns:
        What each segment has; a number that all tokens share is each one's.

    Raises:
        ValueError: There is not one for every drawn token.

    """
    lengths = [each.num_drawn for each in segments]
    if len(values) <= 1:
        return [tuple(values)] * len(segments)
    if len(values) != sum(lengths):
        raise ValueError(f"{len(values)} numbers for {sum(lengths)} drawn tokens")
    return [tuple(values[a:b]) for a, b in pairwise(accumulate(lengths, initial=0))]


def of_wholes(rows: Sequence[Sequence[T]], places: Sequence[Sequence[int]]) -> list[tuple[T, ...]]:
    """Join what the rows of each whole have.

    Args:
        rows: Numbers of each row, one per drawn token.
        places: As `places_of_wholes` gives them.

    Returns:
        The numbers of each whole, in the order in which its tokens were drawn.

    """
    return [tuple(chain.from_iterable(rows[at] for at in each)) for each in places]


def by_row(
    values: Sequence[Sequence[T]], rollouts: Sequence[Rollout], places: Sequence[Sequence[int]]
) -> list[tuple[T, ...]]:
    """Give each row its part of what its whole has.

    Args:
        values: Numbers of each whole, as in `parted`.
        rollouts: The rows.
        places: As `places_of_wholes` gives them.

    Returns:
        The numbers of each row.

    """
    found: list[tuple[T, ...]] = [()] * len(rollouts)
    for whole, each in zip(values, places, strict=True):
        parts = parted(whole, [rollouts[at] for at in each])
        for at, part in zip(each, parts, strict=True):
            found[at] = part
    return found


def _chained(parts: "Iterator[Sequence[T]] | map[Sequence[T]]") -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))


def _spread(segment: Rollout) -> tuple[float, ...]:
    given = segment.advantages
    return given * segment.num_drawn if len(given) == 1 else given


def _shifted(segments: Sequence[Rollout]) -> Iterator[list[Span]]:
    tokens = turns = 0
    for each in segments:
        yield [Span(s.begin + tokens, s.end + tokens, s.turn + turns, s.drawn) for s in each.spans]
        tokens += len(each.token_ids)
        turns += each.spans[-1].turn + 1
