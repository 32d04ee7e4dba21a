"""Problems of the reasoning-gym library, at graded difficulty, and a teacher's solutions."""

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from posttrain.data.schemas import Completion, Problem
from posttrain.learning.rewards.verifiers.reasoning_gym import GymVerifier
from posttrain.stage.errors import UserError, nearest
from tasks.synthesize.config import GymSource
from tasks.synthesize.teachers import TEACHERS, Notes

_VERIFIER = GymVerifier()

# Distinct prompts run out at the easy end: after this many draws a level gives what it has.
_DRAWS_PER_PROBLEM = 3

# A small model needs no instructions for an answer format that its traces show it.
_PROMPTS: Mapping[str, Callable[[str], str]] = {
    "number_sorting": lambda question: question.split("\n")[0],
    "leg_counting": lambda question: question.split("\n")[-1],
}


def generate(
    source: GymSource, *, num_problems: int, seed: int, split: str, seen: set[str]
) -> list[Problem]:
    """Draw problems whose prompts are not in `seen`, and add them there."""
    shares = [
        num_problems * (i + 1) // len(source.levels) - num_problems * i // len(source.levels)
        for i in range(len(source.levels))
    ]
    problems = []
    for difficulty, (level, share) in enumerate(zip(source.levels, shares, strict=True), start=1):
        options = {**source.options, **dict.fromkeys(source.graded, level)}
        draw_seed = _seed(seed, source.name, split, str(difficulty))
        fresh = _fresh(source.name, options, share, seed=draw_seed, seen=seen)
        problems += [_problem(source.name, entry, difficulty) for entry in fresh]
    if not problems:
        raise UserError(
            f"source '{source.name}' has no {split} problem left; "
            "raise its levels or lower the counts"
        )
    return problems


def attempts(
    problems: list[Problem], *, per_problem: int, error_rate: float, seed: int
) -> Iterator[Completion]:
    """The teacher's worked solutions, each with the verifier's score."""
    generator = f"teacher:{error_rate:g}"
    for problem in problems:
        errors = random.Random(_seed(seed, "teacher", problem.id))
        metadata = json.loads(problem.metadata)
        for _ in range(per_problem):
            notes = Notes(errors, error_rate)
            text = notes.text(TEACHERS[problem.source](metadata, notes))
            score = _VERIFIER.score(text, problem)
            yield Completion(problem, text, generator, score.value, score.correct, score.reason)


def check_source(source: GymSource, *, programs_solve: bool) -> None:
    """Refuse a generator that the library or, where programs solve, the teacher does not know."""
    from reasoning_gym.factory import DATASETS

    if source.name not in DATASETS:
        raise UserError(
            f"synthesize.sources: reasoning-gym has no generator '{source.name}'"
            f"{nearest(source.name, DATASETS)}"
        )
    if programs_solve and source.name not in TEACHERS:
        raise UserError(
            f"synthesize.sources: no teacher solves '{source.name}' (there are "
            f"{', '.join(TEACHERS)}); write one in tasks/synthesize/teachers, use one of these, or"
            " give synthesize.teacher a model"
        )


def _fresh(
    name: str, options: Mapping[str, Any], wanted: int, *, seed: int, seen: set[str]
) -> Iterator[Mapping[str, Any]]:
    import reasoning_gym

    size = max(1, wanted * _DRAWS_PER_PROBLEM)
    try:
        drawn = reasoning_gym.create_dataset(name, size=size, seed=seed, **options)
    except (TypeError, AssertionError, ValueError) as error:
        raise UserError(f"synthesize.sources: options of '{name}': {error}") from None
    found = 0
    for index in range(size):
        if found == wanted:
            return
        entry = drawn[index]
        prompt = _prompt(name, entry["question"])
        if prompt not in seen:
            seen.add(prompt)
            found += 1
            yield entry


def _problem(name: str, entry: Mapping[str, Any], difficulty: int) -> Problem:
    return Problem(
        source=name,
        prompt=_prompt(name, entry["question"]),
        answer=str(entry["answer"]),
        difficulty=difficulty,
        verifier=_VERIFIER.kind,
        # In the library's own order: a teacher works in the order in which the prompt tells.
        metadata=json.dumps(entry["metadata"]),
    )


def _prompt(name: str, question: str) -> str:
    shorten = _PROMPTS.get(name)
    return (shorten(question.strip()) if shorten else question).strip()


def _seed(seed: int, *purpose: str) -> int:
    """A seed for one purpose; neighbouring seeds of the library share most of their problems."""
    text = ":".join([str(seed), *purpose])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
