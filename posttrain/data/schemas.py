"""Rows and tables: one polars schema per kind of table, and the ids that name their rows.

A row's `id` is 16 hexadecimal characters of a SHA-256 over the columns that make the row itself
(`IDENTITY`), so equal content has an equal id on every machine, and a change of an annotation
(difficulty, score, reward) keeps it. `parents` holds the ids of the rows that it was made from.
Only the columns in `NULLABLE` may hold nulls, which mean that something could not be judged; what
else is absent is an empty string, an empty list or zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from posttrain.stage.hashing import sha256_of

if TYPE_CHECKING:
    from posttrain.data.contexts import Turn

_ROW: dict[str, Any] = {"id": pl.String, "parents": pl.List(pl.String)}

# What stands around the prompt: JSON of a `posttrain.data.contexts.PromptContext`; mostly empty.
_CONTEXT = pl.String

PROBLEMS = pl.Schema(
    {
        **_ROW,
        "source": pl.String,
        "prompt": pl.String,
        "answer": pl.String,
        "difficulty": pl.Int32,
        "verifier": pl.String,  # a kind that the row itself names; empty for that of its source
        "metadata": pl.String,  # JSON; parameters of the row's own verifier stand under its kind
        "origin_file": pl.String,  # as the recipe names it; empty for a problem of no file
        "origin_line": pl.Int32,  # line or row, from 1; 0 for a problem of no file
        "context": _CONTEXT,
    }
)

COMPLETIONS = pl.Schema(
    {
        **_ROW,
        "problem_id": pl.String,
        "source": pl.String,
        "difficulty": pl.Int32,
        "prompt": pl.String,
        "text": pl.String,
        "generator": pl.String,
        "verifier": pl.String,
        "score": pl.Float64,
        "verified": pl.Boolean,
        "reason": pl.String,
        "weight": pl.Float64,  # how much it counts in training: 2 is as if it stood there twice
        "context": _CONTEXT,
    }
)

SOLVE_RATES = pl.Schema(
    {
        **_ROW,
        "problem_id": pl.String,
        "source": pl.String,
        "difficulty": pl.Int32,
        "attempts": pl.Int32,
        "solved": pl.Int32,
        "solve_rate": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "policy": pl.String,
    }
)

PAIRS = pl.Schema(
    {
        **_ROW,
        "problem_id": pl.String,
        "source": pl.String,
        "prompt": pl.String,
        "chosen": pl.String,
        "rejected": pl.String,
        "split": pl.String,  # train or heldout
        "chosen_score": pl.Float64,  # null where nobody scored it
        "rejected_score": pl.Float64,
        "label_prob": pl.Float64,  # that the chosen one is the better
        "rationale": pl.String,  # why it is; empty where nobody said
        "step_start": pl.Int32,  # where the step compared begins, from 1; 0 for whole answers
        "weight": pl.Float64,  # how much it counts in a loss: a weighted mean
        "context": _CONTEXT,
    }
)

SPAN = pl.Struct({"begin": pl.Int32, "end": pl.Int32, "turn": pl.Int32, "drawn": pl.Boolean})
"""Tokens `begin` to `end` (exclusive) of a turn, drawn by the role itself or read by it."""

COMPONENT = pl.Struct({"name": pl.String, "value": pl.Float64})
"""A reward component by name; null where it could not be judged."""

TURN = pl.Struct({"earned": pl.Float64, "key": pl.String})
"""A turn of the role: what its environment paid for it, and the key of where it was spoken."""

# One row a segment: a sequence of tokens that is trained on as one. An episode of one turn has one.
ROLLOUTS = pl.Schema(
    {
        **_ROW,
        "problem_id": pl.String,
        "source": pl.String,
        "step": pl.Int32,  # from 1
        "group": pl.Int32,  # within the step, from 0
        "episode": pl.String,  # within the step
        "segment": pl.Int32,  # within the episode, from 0
        "role": pl.String,
        "peers": pl.String,  # equal ones of a group are compared with each other; mostly empty
        "origin": pl.String,  # who wrote the tokens: policy, or a table of traces
        "token_ids": pl.List(pl.Int32),
        "spans": pl.List(SPAN),  # of all tokens, in order
        "logprobs": pl.List(pl.Float32),  # of the drawn tokens in order, by the engine
        "versions": pl.List(pl.Int32),  # of the policy, one per drawn span
        "end": pl.String,  # over, turns, tokens, time, failed; unfinished: goes on in a later step
        "text": pl.String,  # of the drawn tokens
        "turns": pl.List(TURN),  # where the environment says what an episode is worth; else none
        "shared": pl.Int32,  # of the drawn tokens, the first so many that are another rollout's too
        "facts": pl.List(COMPONENT),  # what the environment counted in it, such as tool_errors
        "components": pl.List(COMPONENT),
        "reward": pl.Float64,  # what is learned from
        "solved": pl.Boolean,  # what counts as right
        # The part of the reward that is paid token by token, one per drawn token; none if none is.
        "token_rewards": pl.List(pl.Float64),
        # As learned from, before an algorithm's bonuses: one per drawn token; none if not.
        "advantages": pl.List(pl.Float32),
        # Of the policy at each drawn token, before the step learned, in nats; none if not asked.
        "entropies": pl.List(pl.Float32),
        "trained": pl.Boolean,
    }
)

# What a judge said of something, once: a text, two texts, a turn, named by a digest.
VERDICTS = pl.Schema(
    {
        **_ROW,
        "subject": pl.String,
        "component": pl.String,
        "criterion": pl.String,
        "judge": pl.String,
        "draw": pl.Int32,
        "score": pl.Float64,
        "reason": pl.String,
        "text": pl.String,
    }
)

CURVE = pl.Schema({"step": pl.Int64, "metric": pl.String, "value": pl.Float64})

# The least that a table of dropped rows holds; it keeps the columns of the filtered table too.
DROPPED = pl.Schema({**_ROW, "reason": pl.String})

# Keyed by the value of posttrain.stage.spec.ArtifactKind.
SCHEMAS: dict[str, pl.Schema] = {
    "problems": PROBLEMS,
    "completions": COMPLETIONS,
    "solve_rates": SOLVE_RATES,
    "pairs": PAIRS,
    "rollouts": ROLLOUTS,
    "verdicts": VERDICTS,
    "curve": CURVE,
    "dropped": DROPPED,
}

NULLABLE: dict[str, frozenset[str]] = {
    "completions": frozenset({"score", "verified"}),
    "pairs": frozenset({"chosen_score", "rejected_score"}),
    "rollouts": frozenset({"reward", "solved"}),
    "verdicts": frozenset({"score"}),
    # A table of dropped rows keeps the columns of the table that they were dropped from.
    "dropped": frozenset({"score", "verified"}),
}
"""Columns that hold a null where something could not be judged, by kind of artifact."""

# What makes a row itself. Equal samples of one problem share an id: they are the same content.
IDENTITY: dict[str, tuple[str, ...]] = {
    "problems": ("source", "prompt", "answer", "verifier", "context"),
    "completions": ("problem_id", "text", "generator"),
    "solve_rates": ("problem_id", "policy", "attempts", "solved"),
    "pairs": ("problem_id", "chosen", "rejected", "context"),
    "rollouts": ("problem_id", "step", "role", "segment", "versions", "token_ids"),
    "verdicts": ("subject", "component", "criterion", "judge", "draw"),
}

_WHERE_STATED = frozenset({"context"})
"""Columns of `IDENTITY` that count where they are not empty."""

# What the problems of files, and those of no file, named while rows named their verifiers. It is
# in the id of a problem that names none, so that problems keep the ids that they had.
_NAMED_OF_FILES, _NAMED_OF_GENERATORS = "numeric", "reasoning_gym"

_ID_CHARS = 16


def row_id(*parts: str | int | Sequence[int]) -> str:
    """Name a row by its content: 16 hex characters of SHA-256 over the encoded `parts`.

    Every part is written as tag, length in bytes, colon, value (`s` text, `i` integer, `l` list
    of integers joined by commas), so no two different tuples share an encoding. Raises TypeError
    on other types: a float has no single decimal form.

    >>> row_id("ab", "c") == row_id("a", "bc")
    False
    >>> row_id("2 + 3 =", 5)
    '22572fadc9a9a58d'
    """
    return _short_digest("".join(map(_encode_part, parts)))


def with_row_ids(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return `frame` with its `id` column set to `row_id` of `columns`, row by row.

    Text, integer and list-of-integer columns are allowed; nulls and other types raise ValueError.
    Usual call: `with_row_ids(frame, IDENTITY["problems"])`.
    """
    nulls = [name for name in columns if frame[name].null_count()]
    if nulls:
        raise ValueError(f"columns {nulls} hold nulls, so they cannot name rows")
    encodings = [_encode_column(name, frame.schema[name]) for name in columns]
    encoded = frame.with_columns(_named_verifier(frame)).select(pl.concat_str(encodings))
    ids = pl.Series("id", [_short_digest(text) for text in encoded.to_series()], dtype=pl.String)
    if "id" in frame.columns:
        return frame.with_columns(ids)
    return frame.select(ids, pl.all())


@dataclass(frozen=True, slots=True)
class Problem:
    """One training or test item: a prompt, its reference answer, and how to check an answer.

    `verifier` is a kind that the problem itself names, and then part of what it is; where it names
    none, `scored_by` is JSON of the verifier of its source, which is not. `metadata` is JSON for
    the verifier, with parameters of this problem under the kind; `source` is the generator or file
    that the problem came from; `difficulty` is a small integer;
    `origin_file` and `origin_line` say where it stands in a file; `context` what stands around its
    prompt, as `PromptContext.written` spells it.

    >>> Problem(source="sums", prompt="2 + 3 =", answer="5", difficulty=2, verifier="exact").id
    '72378daa8a9b7231'
    """

    source: str
    prompt: str
    answer: str
    difficulty: int
    verifier: str
    metadata: str = "{}"
    parents: tuple[str, ...] = ()
    origin_file: str = ""
    origin_line: int = 0
    context: str = ""
    scored_by: str = ""

    @property
    def id(self) -> str:
        """Content hash of source, prompt, answer, own verifier, and context if it has one."""
        context = (self.context,) if self.context else ()
        named = _NAMED_OF_FILES if self.origin_file else _NAMED_OF_GENERATORS
        return row_id(self.source, self.prompt, self.answer, self.verifier or named, *context)


@dataclass(frozen=True, slots=True)
class Completion:
    r"""One answer to a problem, with the score of the problem's verifier.

    `text` is what was written after `problem.prompt`; `generator` says who wrote it (a teacher's
    name, a policy's digest); `verified` is true where the verifier accepted it; `reason` is the
    verifier's code, "correct" if it did. Score and `verified` are None where it could not score.

    >>> problem = Problem("sums", "2 + 3 =", "5", difficulty=2, verifier="exact")
    >>> Completion(problem, "2 + 3 = 5\n#### 5", "teacher", 1.0, True, "correct").id
    '28b034e78534406c'
    """

    problem: Problem
    text: str
    generator: str
    score: float | None
    verified: bool | None
    reason: str
    weight: float = 1.0
    between: "tuple[Turn, ...]" = ()
    """What was said between the prompt and the text, where there were several turns."""
    read: tuple[str, ...] = ()
    """Ids of the rows that were shown before the text, such as passages: parents, like the problem.
    """

    @property
    def context(self) -> str:
        """The problem's, with what was said between prompt and text."""
        if not self.between:
            return self.problem.context
        from posttrain.data.contexts import PromptContext

        context = PromptContext.read(self.problem.context)
        between = context.between + self.between
        return context.model_copy(update={"between": between}).written()

    @property
    def id(self) -> str:
        """Content hash of problem id, text and generator, and of turns before the text."""
        turns = (self.context,) if self.between else ()
        return row_id(self.problem.id, self.text, self.generator, *turns)


def problems_table(problems: Sequence[Problem]) -> pl.DataFrame:
    """Lay problems out as a PROBLEMS frame, in the given order."""
    columns = {name: [getattr(row, name) for row in problems] for name in PROBLEMS}
    return pl.DataFrame(columns, schema=PROBLEMS)


def completions_table(completions: Sequence[Completion]) -> pl.DataFrame:
    """Lay completions out as a COMPLETIONS frame, in the given order."""
    inherited = ("source", "difficulty", "prompt", "verifier")
    problem_ids = [row.problem.id for row in completions]
    columns: dict[str, list[Any]] = {
        "parents": [[row.problem.id, *row.read] for row in completions],
        "problem_id": problem_ids,
        **{name: [getattr(row.problem, name) for row in completions] for name in inherited},
    }
    own = (name for name in COMPLETIONS if name not in columns)
    columns |= {name: [getattr(row, name) for row in completions] for name in own}
    return pl.DataFrame({name: columns[name] for name in COMPLETIONS}, schema=COMPLETIONS)


def _named_verifier(frame: pl.DataFrame) -> list[pl.Expr]:
    """The column of verifiers as ids have it, where it is one of problems."""
    if not {"verifier", "origin_file"} <= set(frame.columns):
        return []
    of_file = pl.col("origin_file") != ""
    named = pl.when(of_file).then(pl.lit(_NAMED_OF_FILES)).otherwise(pl.lit(_NAMED_OF_GENERATORS))
    own = pl.col("verifier")
    return [pl.when(own == "").then(named).otherwise(own).alias("verifier")]


def _short_digest(encoded: str) -> str:
    """Shorten a SHA-256 to the width of a row id."""
    return sha256_of(encoded)[:_ID_CHARS]


def _encode_part(part: str | int | Sequence[int]) -> str:
    """Write one part so that where it ends is known before it is read."""
    if isinstance(part, str):
        tag, text = "s", part
    elif isinstance(part, int) and not isinstance(part, bool):
        tag, text = "i", str(part)
    elif isinstance(part, Sequence):
        tag, text = "l", ",".join(str(int(item)) for item in part)
    else:
        raise TypeError(f"a row id is made of text, integers and lists of integers, not {part!r}")
    return f"{tag}{len(text.encode())}:{text}"


def _encode_column(name: str, dtype: pl.DataType) -> pl.Expr:
    """The encoding of `_encode_part`, as an expression over a whole column."""
    column = pl.col(name)
    if dtype == pl.String:
        tag, text = "s", column
    elif dtype.is_integer():
        tag, text = "i", column.cast(pl.String)
    elif isinstance(dtype, pl.List) and pl.Series(dtype=dtype.inner).dtype.is_integer():
        tag, text = "l", column.cast(pl.List(pl.String)).list.join(",")
    else:
        raise ValueError(f"column '{name}' is {dtype}, which cannot name rows")
    encoded = pl.concat_str(pl.lit(tag), text.str.len_bytes(), pl.lit(":"), text)
    if name in _WHERE_STATED:
        return pl.when(text != "").then(encoded).otherwise(pl.lit(""))
    return encoded
