"""Problems that come from a file, with the solutions that the file has."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posttrain.data.readers import read_rows
from posttrain.data.schemas import Completion, Problem, row_id
from posttrain.learning.rewards.score import final_answer
from posttrain.learning.rewards.verify import metadata_for, verify_all
from tasks.synthesize.config import FileSource

Side = Literal["train", "heldout"] | None
"""Where a problem goes; None leaves it out."""


@dataclass(frozen=True)
class Found:
    """Problems of a file, parted, and solutions of those to train on."""

    sides: dict[Literal["train", "heldout"], list[Problem]]
    solutions: list[Completion]


def read_file_source(
    source: FileSource, path: Path | None, *, side: Callable[[str], Side], scratch: Path
) -> Found:
    """Read, check and part a file; `side` says by the prompt where a problem goes."""
    rows = read_rows(
        source.kind,
        path or source.hub or source.name,
        columns=source.columns,
        scratch=scratch,
        revision=source.revision,
        split=source.split,
        subset=source.subset,
    )
    metadata = metadata_for(source.verifier)
    found = Found({"train": [], "heldout": []}, [])
    solved: list[tuple[str, Problem]] = []
    for row in rows:
        problem = Problem(
            source=source.name,
            prompt=row.prompt,
            answer=final_answer(row.answer) or row.answer,
            difficulty=row.difficulty,
            verifier=source.verifier.kind,
            metadata=metadata,
        )
        where = side(row.prompt)
        if where is not None:
            found.sides[where].append(problem)
        if where == "train" and row.solution:
            solved.append((row.solution, problem))
    for (text, problem), score in zip(solved, verify_all(solved), strict=True):
        found.solutions.append(
            Completion(
                problem,
                text,
                f"file:{source.name}",
                score.value,
                score.correct,
                score.reason,
            )
        )
    return found


def falls_in_heldout(prompt: str, fraction: float) -> bool:
    """Whether a prompt is among the `fraction` of all prompts that is held out."""
    digest = row_id(prompt)
    return int(digest, 16) < fraction * 16.0 ** len(digest)
