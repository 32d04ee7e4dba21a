"""Rollouts: what a policy drew and what it earned, as records and as rows of a table."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from posttrain.data.schemas import IDENTITY, ROLLOUTS, Problem, with_row_ids
from posttrain.learning.rewards.components.base import Answers
from posttrain.learning.rewards.config import Earned
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, Sample
from posttrain.stage.errors import UserError

POLICY = "policy"
"""The role that is trained, and the origin of tokens that it drew itself."""

_ENDS: Mapping[FinishReason, str] = {FinishReason.STOP: "over", FinishReason.LENGTH: "tokens"}


class Span(NamedTuple):
    """Tokens `begin` to `end` (exclusive) of one turn; `drawn` ones bear loss."""

    begin: int
    end: int
    turn: int
    drawn: bool


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
    """Of the drawn tokens in order, by the sampler, in nats."""
    versions: tuple[int, ...]
    """Step whose policy drew each turn."""
    end: str
    """`over`, or what cut it short: `turns`, `tokens`, `time`, `failed`."""
    text: str
    """The drawn tokens as text."""
    components: tuple[tuple[str, float | None], ...] = ()
    """Each reward component's name and score; None where it could not be judged."""
    reward: float | None = None
    """What is learned from; None where it could not be judged, so that it bears no loss."""
    solved: bool | None = None
    """Whether it counts as right; None where it could not be judged."""
    advantages: tuple[float, ...] = ()
    """As learned from: one per drawn token, or one that all share; none if it bears no loss."""
    trained: bool = False
    """True where the learner was given it."""
    role: str = POLICY
    """Who drew it."""
    segment: int = 0
    """Place among the segments of its episode."""
    origin: str = POLICY
    """Who wrote the tokens: the policy itself, or a table of traces."""

    @property
    def num_drawn(self) -> int:
        """Drawn tokens."""
        return len(self.logprobs)

    @property
    def drawn(self) -> list[bool]:
        """True at the drawn ones of all tokens, ``[T]``."""
        return [span.drawn for span in self.spans for _ in range(span.begin, span.end)]

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
        """True where it was cut off at the limit of tokens."""
        return self.end == "tokens"

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
        _check_sample(sample)
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


def answers_of(group: Group, problem: Problem) -> Answers:
    """Return what reward components see of a group."""
    return Answers(
        problem=problem,
        texts=tuple(rollout.text for rollout in group),
        lengths=tuple(rollout.num_drawn for rollout in group),
        truncated=tuple(rollout.truncated for rollout in group),
    )


def rewarded(groups: Sequence[Group], earned: Sequence[Sequence[Earned]]) -> list[Group]:
    """Return the same groups, with what each rollout earned."""
    return [
        [
            rollout._replace(components=each.components, reward=each.reward, solved=each.solved)
            for rollout, each in zip(group, found, strict=True)
        ]
        for group, found in zip(groups, earned, strict=True)
    ]


def _prompt_and_answer(prompt: Sequence[int], answer: Sequence[int]) -> tuple[Span, ...]:
    begin, end = len(prompt), len(prompt) + len(answer)
    return (Span(0, begin, 0, drawn=False), Span(begin, end, 0, drawn=True))


def _check_sample(sample: Sample) -> None:
    """Refuse a sample that no learner could use, whichever engine drew it."""
    if not sample.token_ids or len(sample.token_ids) != len(sample.logprobs):
        raise UserError(
            f"rl: a sample of problem {sample.prompt_id} has {len(sample.token_ids)} tokens and"
            f" {len(sample.logprobs)} log-probabilities; a learner needs one for each token, and"
            " at least one token: check the engine's settings"
        )
    if not math.isfinite(math.fsum(sample.logprobs)):
        raise UserError(
            f"rl: a sample of problem {sample.prompt_id} has a log-probability that is not finite;"
            " the engine drew what its policy excludes: check its number format"
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
    """Return the same group, given to the learner or not."""
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
    return grouped([_from_values(row) for row in rows])


def rollouts_table(rollouts: Sequence[tuple[int, Rollout]]) -> pl.DataFrame:
    """Lay rollouts, each with its step, out as a ROLLOUTS frame, in the given order."""
    rows = [rollout for _, rollout in rollouts]
    columns: dict[str, Any] = {
        name: [row[place] for row in rows] for place, name in enumerate(Rollout._fields)
    }
    spans = [row.spans for row in rows]
    columns |= {
        "step": [step for step, _ in rollouts],
        "token_ids": _lists(columns["token_ids"], np.int32),
        "logprobs": _lists(columns["logprobs"], np.float32),
        "versions": _lists(columns["versions"], np.int32),
        "spans": _records(spans, ROLLOUTS["spans"]),
        "components": _records(columns["components"], ROLLOUTS["components"]),
        "advantages": _lists(_per_token(rows), np.float32),
    }
    schema = {name: kind for name, kind in ROLLOUTS.items() if name in columns}
    frame = pl.DataFrame({name: columns[name] for name in schema}, schema=schema)
    frame = frame.with_columns(parents=pl.concat_list("problem_id"))
    return with_row_ids(frame, IDENTITY["rollouts"]).select(ROLLOUTS.names())


def stored_groups(frame: pl.DataFrame) -> Iterator[tuple[int, list[Group]]]:
    """Return the groups of a ROLLOUTS table by step, in the order in which they were drawn."""
    for part in frame.partition_by("step", maintain_order=True):
        rows = part.select(Rollout._fields).iter_rows(named=True)
        yield part["step"][0], grouped([_from_row(row) for row in rows])


def _from_row(row: Mapping[str, Any]) -> Rollout:
    components = [(each["name"], each["value"]) for each in row["components"]]
    return _from_values({**row, "components": components})


def _from_values(values: Mapping[str, Any]) -> Rollout:
    lists = ("token_ids", "logprobs", "versions", "advantages")
    return Rollout(
        **{
            **values,
            **{name: tuple(values[name]) for name in lists},
            "spans": tuple(Span(**span) for span in values["spans"]),
            "components": tuple((name, value) for name, value in values["components"]),
        }
    )


def _per_token(rows: Sequence[Rollout]) -> list[Sequence[float]]:
    """Spread an advantage that all drawn tokens share over them."""
    return [
        row.advantages * row.num_drawn if len(row.advantages) == 1 else row.advantages
        for row in rows
    ]


def _lists(rows: Sequence[Sequence[float]], kind: type[np.generic]) -> pl.Series:
    """Build a list column through one flat array.

    Polars is slow at many small Python lists, and pyarrow imports pandas for its first array.
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    values = np.fromiter(chain.from_iterable(rows), kind, lengths.sum())
    return _nested(pl.DataFrame({"value": values}), lengths)


def _records(rows: Sequence[Sequence[tuple[Any, ...]]], kind: pl.DataType) -> pl.Series:
    """Build a column of lists of records, likewise."""
    assert isinstance(kind, pl.List)
    assert isinstance(kind.inner, pl.Struct)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    flat = pl.DataFrame(
        list(chain.from_iterable(rows)),
        schema={f.name: f.dtype for f in kind.inner.fields},
        orient="row",
    )
    return _nested(pl.DataFrame({"value": flat.to_struct("value")}), lengths)


def _nested(flat: pl.DataFrame, lengths: np.ndarray[Any, np.dtype[np.int64]]) -> pl.Series:
    """One list of `value` per length; empty ones too."""
    owners = np.arange(len(lengths), dtype=np.uint32)
    found = (
        flat.with_columns(owner=owners.repeat(lengths))
        .group_by("owner", maintain_order=True)
        .agg("value")
    )
    whole = pl.DataFrame({"owner": owners}).join(
        found, on="owner", how="left", maintain_order="left"
    )
    return whole["value"].fill_null([])
