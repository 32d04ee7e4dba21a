"""Rollouts: what a policy drew, and what it earned."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.config import role_of
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.episode import Episode, Span
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, Sample
from posttrain.stage.errors import UserError

_ENDS: Mapping[FinishReason, str] = {FinishReason.STOP: "over", FinishReason.LENGTH: "tokens"}


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
    """Step whose policy drew each turn."""
    end: str
    """`over`, or what cut it short: `turns`, `tokens`, `time`, `failed`."""
    text: str
    """The drawn tokens as text."""
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

    @property
    def num_drawn(self) -> int:
        """Drawn tokens."""
        return len(self.logprobs)

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
        """The oldest of its turns' policies."""
        return min(self.versions)

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
        """True where nobody can judge it: its environment broke, or kept it waiting until the
        deadline, or it never came to speak.
        """
        return self.end in ("failed", "time") or not self.logprobs

    @property
    def judged(self) -> bool:
        """False where nothing could tell what it is worth."""
        return self.reward is not None


Group = list[Rollout]


def as_groups(
    samples: Sequence[Sample],
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    *,
    first: int = 0,
) -> list[Group]:
    """Turn samples into rollouts that have earned nothing yet.

    Args:
        samples: As many of each prompt, adjacent.
        problems: The problems of the prompts, in the same order.
        prompts: What was sampled from.
        first: Number of the first group.

    Returns:
        One group per prompt.

    Raises:
        UserError: A sample has no tokens, or not one finite log-probability for each.

    """
    size = len(samples) // len(prompts)
    for sample in samples:
        _check_drawn(sample.prompt_id, len(sample.token_ids), sample.logprobs)
    rollouts = [
        Rollout(
            problem_id=sample.prompt_id,
            source=problems[index // size].source,
            group=first + index // size,
            episode=f"{sample.prompt_id}/{index % size}",
            token_ids=prompts[index // size].token_ids + sample.token_ids,
            spans=_prompt_and_answer(prompts[index // size].token_ids, sample.token_ids),
            logprobs=sample.logprobs,
            versions=(sample.policy_version,),
            end=_ENDS[sample.finish_reason],
            text=sample.text,
        )
        for index, sample in enumerate(samples)
    ]
    return grouped(rollouts)


def of_episode(
    episode: Episode,
    problem: Problem,
    *,
    group: int,
    version: int,
    learning: Sequence[str] = (POLICY,),
    within: Literal["problem", "episode"] = "problem",
) -> list[Rollout]:
    """Turn what the policy read and drew in an episode into rollouts that have earned nothing yet.

    Args:
        episode: That is over.
        problem: What it was about.
        group: Number of its group.
        version: Step whose policy would have spoken, where the environment broke before it could.
        learning: Roles that the trained policy plays, by name or by what stands before a colon.
        within: Whose rollouts are compared: those of a role in all episodes of the problem, or
            those of the roles of one name in the episode itself, such as several solvers', where
            there are several.

    Returns:
        A rollout for each sequence of each of these roles that drew something, and of the policy
        also where its environment broke at once. Its text is what was said in it, a line a turn.

    Raises:
        UserError: The policy drew no token, or not one finite log-probability for each.

    """
    names = dict.fromkeys((POLICY, *(each.role for each in episode.segments)))
    roles = [(name, known) for name in names if (known := role_of(name, learning)) is not None]
    rows: list[Rollout] = []
    for name, known in roles:
        # A role that is alone in the episode has nobody to be compared with there.
        several = sum(other == known for _, other in roles) > 1
        peers = f"{known}@{episode.id}" if within == "episode" and several else known
        if len(learning) == 1 and not several:
            peers = ""
        rows += _of_role(episode, problem, name, group=group, version=version, peers=peers)
    return rows


def _of_role(
    episode: Episode, problem: Problem, role: str, *, group: int, version: int, peers: str
) -> Iterator[Rollout]:
    """A rollout for each sequence that a role drew in."""
    turns = iter(zip(episode.earned(role), episode.keys(role), strict=True))
    for place, segment in enumerate(episode.of(role)):
        drawn = sum(span.end - span.begin for span in segment.spans if span.drawn)
        if not drawn and (place or role != POLICY):
            # It was begun, and the episode ended before the role came to speak in it.
            continue
        if segment.versions:
            _check_drawn(problem.id, drawn, segment.logprobs)
        own = [*islice(turns, len(segment.said)), *[(0.0, "")] * segment.summed_up]
        yield Rollout(
            problem_id=problem.id,
            source=problem.source,
            group=group,
            episode=episode.id,
            token_ids=segment.token_ids,
            spans=segment.spans,
            logprobs=segment.logprobs,
            versions=segment.versions or (version,),
            end=episode.end,
            text="\n".join(segment.said),
            turns=() if episode.is_one_answer else tuple(own),
            read=episode.read,
            role=role,
            segment=place,
            peers=peers,
        )


def _prompt_and_answer(prompt: Sequence[int], answer: Sequence[int]) -> tuple[Span, ...]:
    begin, end = len(prompt), len(prompt) + len(answer)
    return (Span(0, begin, 0, drawn=False), Span(begin, end, 0, drawn=True))


def _check_drawn(problem: str, num_tokens: int, logprobs: Sequence[float]) -> None:
    """Refuse what no learner could use, whichever engine drew it."""
    if not num_tokens or num_tokens != len(logprobs):
        raise UserError(
            f"rl: a sample of problem {problem} has {num_tokens} tokens and {len(logprobs)}"
            " log-probabilities; a learner needs one for each token, and at least one token: check"
            " the engine's settings"
        )
    if not math.isfinite(math.fsum(logprobs)):
        raise UserError(
            f"rl: a sample of problem {problem} has a log-probability that is not finite; the"
            " engine drew what its policy excludes: check its number format"
        )


def grouped(rollouts: Sequence[Rollout]) -> list[Group]:
    """Put adjacent rollouts of one group together."""
    groups: list[Group] = []
    for rollout in rollouts:
        if groups and groups[-1][0].group == rollout.group:
            groups[-1].append(rollout)
        else:
            groups.append([rollout])
    return groups


def marked(group: Group, *, trained: bool) -> Group:
    """Return the same group, given to the learner or not.

    Args:
        group: Rollouts of one problem.
        trained: True where the learner is given it.

    Returns:
        New rollouts; the old ones are left as they are.

    """
    return [rollout._replace(trained=trained) for rollout in group]


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
    lists = ("token_ids", "logprobs", "versions", "token_rewards", "advantages", "read")
    return Rollout(
        **{
            **values,
            **{name: tuple(values[name]) for name in lists},
            "spans": tuple(Span(**span) for span in values["spans"]),
            "turns": tuple((earned, key) for earned, key in values["turns"]),
            "components": tuple((name, value) for name, value in values["components"]),
        }
    )
