"""Episodes of training, turn by turn: what was read, what was drawn and learned, what it paid."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.stage.spec import ArtifactKind
from posttrain.views.report.facts import StageFacts, found

if TYPE_CHECKING:
    import polars as pl

Decode = Callable[[Sequence[int]], str]
"""Makes text of tokens, marks of the chat template among it."""

_POLICY = "policy"
"""Whose rows are shown: what another role read and drew stands in rows of its own."""
_LAST_PART = 10
"""Episodes are chosen from the last tenth of the steps."""
_COLUMNS = (
    "step", "group", "episode", "segment", "role", "token_ids", "spans", "end", "turns", "reward",
    "solved", "advantages", "trained",
)  # fmt: skip


@dataclass(frozen=True)
class PlayedSpan:
    """Tokens of one turn that were read, or that were drawn."""

    role: str
    text: str
    tokens: int
    drawn: bool
    learned: bool
    """Whether they bear loss."""
    earned: float | None = None
    """What the environment paid for the turn; None where it says nothing, or they were read."""
    key: str = ""
    """Of the situation in which the turn was spoken."""
    advantage: float | None = None
    """Mean over the drawn tokens, as learned from."""


@dataclass(frozen=True)
class ShownEpisode:
    """One episode of a training step."""

    name: str
    """Best, median or worst."""
    step: int
    reward: float | None
    solved: bool | None
    end: str
    spans: tuple[PlayedSpan, ...]


@dataclass(frozen=True)
class PlayedTraining:
    """Some episodes that a stage learned from."""

    stage: str
    steps: tuple[int, int]
    """The first and the last of the steps that they are chosen from."""
    number: int
    """Of how many."""
    episodes: tuple[ShownEpisode, ...]


def played_trainings(
    stages: Sequence[StageFacts], artifacts: Mapping[str, Path]
) -> list[PlayedTraining]:
    """Choose episodes of every stage that played some of more than one turn.

    Args:
        stages: Of the run.
        artifacts: `stage.output` -> where it lies.

    Returns:
        The best, the median and the worst of the last steps, by the policy's reward; nothing of a
        stage whose policy has no `tokenizer.json` beside it.

    """
    shown = []
    policies = {each.stage: each.path for each in found(stages, artifacts, ArtifactKind.CHECKPOINT)}
    for item in found(stages, artifacts, ArtifactKind.ROLLOUTS):
        rows = _rows_of_last_steps(item.path)
        decode = decoder(policies[item.stage]) if item.stage in policies else None
        if rows.is_empty() or decode is None:
            continue
        chosen = _chosen(rows)
        episodes = tuple(_shown(name, part, decode) for name, part in chosen)
        steps = (rows["step"].min(), rows["step"].max())
        number = rows.select("step", "group", "episode").n_unique()
        shown.append(PlayedTraining(item.stage, steps, number, episodes))  # type: ignore[arg-type]
    return shown


def decoder(checkpoint: Path) -> Decode | None:
    """Return what makes text of a checkpoint's tokens; None where it has no `tokenizer.json`."""
    from tokenizers import Tokenizer

    file = checkpoint / "tokenizer.json"
    if not file.is_file():
        return None
    tokenizer = Tokenizer.from_file(str(file))
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))


def spans_of(row: Mapping[str, Any], decode: Decode) -> Iterator[PlayedSpan]:
    """Give the turns of one row of ROLLOUTS.

    Args:
        row: With `token_ids`, `spans`, `turns`, `advantages`, `role` and `trained`.
        decode: Makes text of its tokens.

    Yields:
        What was read and what was drawn, in order.

    """
    turns, spans, drawn_before = row["turns"] or (), row["spans"], 0
    for span, after in zip_longest(spans, spans[1:]):
        ids = row["token_ids"][span["begin"] : span["end"]]
        text = decode(ids).strip("\n")
        if not span["drawn"]:
            yield PlayedSpan(row["role"], text, len(ids), drawn=False, learned=False)
            continue
        # What two policies drew of a turn is two spans: what it earned stands at its end.
        ends = after is None or after["turn"] != span["turn"]
        turn = turns[span["turn"]] if ends and span["turn"] < len(turns) else None
        advantages = row["advantages"][drawn_before : drawn_before + len(ids)]
        drawn_before += len(ids)
        yield PlayedSpan(
            row["role"],
            text,
            len(ids),
            drawn=True,
            learned=bool(row["trained"]),
            earned=turn["earned"] if turn else None,
            key=turn["key"] if turn else "",
            advantage=sum(advantages) / len(advantages) if advantages else None,
        )


def _rows_of_last_steps(path: Path) -> "pl.DataFrame":
    """The policy's rows of the last steps, if any episode has more than one turn."""
    import polars as pl

    table = pl.scan_parquet(path)
    if not {*_COLUMNS} <= {*table.collect_schema().names()}:
        # Of an older format, which shows no turns.
        return pl.DataFrame(schema=dict.fromkeys(_COLUMNS, pl.Null))
    table = table.select(_COLUMNS).filter(pl.col("role") == _POLICY)
    turns = pl.col("spans").list.eval(pl.element().struct.field("turn")).list.max()
    most = table.select(turns.max().alias("turn"), pl.col("step").max()).collect()
    if not most["turn"][0]:
        return table.collect().clear()
    first = most["step"][0] - max(1, most["step"][0] // _LAST_PART) + 1
    return table.filter(pl.col("step") >= first).collect()


def _chosen(rows: "pl.DataFrame") -> list[tuple[str, "pl.DataFrame"]]:
    """The best, the median and the worst by reward, all segments of each; every one once."""
    import polars as pl

    keys = ("step", "group", "episode")
    ranked = (
        rows.filter(pl.col("reward").is_not_null())
        .group_by(keys)
        .agg(pl.col("reward").max())
        .sort("reward", *keys)
    )
    places = {"best": ranked.height - 1, "median": ranked.height // 2, "worst": 0}
    named: list[tuple[str, pl.DataFrame]] = []
    for name, place in places.items() if ranked.height else ():
        if place in [places[other] for other, _ in named]:
            continue
        one = ranked[place].select(keys)
        named.append((name, rows.join(one, on=keys, how="semi").sort("segment")))
    return named


def _shown(name: str, rows: "pl.DataFrame", decode: Decode) -> ShownEpisode:
    parts = rows.to_dicts()
    first = parts[0]
    spans = tuple(span for row in parts for span in spans_of(row, decode))
    return ShownEpisode(name, first["step"], first["reward"], first["solved"], first["end"], spans)
