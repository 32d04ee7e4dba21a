"""Problems of the reasoning-gym library, at graded difficulty."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.gym_generators import SANDBOXED, SEVERAL_LINES, STATES_NO_ANSWER
from posttrain.data.sources.base import Source, SourceRequest, SourceRows
from posttrain.data.sources.graded import even_shares, refuse_half_graded
from posttrain.data.sources.gym_entries import fresh_entries, prompt_of, refuse_options
from posttrain.data.teachers.base import Teacher
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import stable_seed
from posttrain.stage.slots import InSlot, Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

# What stands behind the last marker, however many lines it has.
_TO_THE_END = {"kind": "regex", "pattern": r"(?sm)^####\s*((?:(?!^####).)+)"}


class ReasoningGymSource(Source):
    """Makes problems by one generator of the reasoning-gym library, at graded difficulty.

    They are scored by the library's own scorer, in the sandbox where that runs the answer as code,
    unless the recipe says otherwise.
    """

    SOURCE = "reasoning-gym, arXiv:2505.24760"

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    name: str
    """Generator, for example chain_sum; the source of its problems is called the same."""
    levels: tuple[int, ...] = ()
    """Values of the graded options, easy to hard; the first is difficulty 1. Without levels all
    problems are as the library makes them by default, of difficulty 1."""
    graded: tuple[str, ...] = ()
    """Options of the generator that take the level's value."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Further options of the generator."""
    verifier: Annotated[Part, InSlot("verifier")] = Field(
        default="reasoning_gym", validate_default=True
    )
    """What scores answers: a kind's name, or a mapping with the kind and its parameters. Unless it
    is given, the answer is all that stands behind `####` where a generator's has several lines."""

    @model_validator(mode="before")
    @classmethod
    def _choose_scorer(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        name = str(values.get("name"))
        kind = "reasoning_gym_sandboxed" if name in SANDBOXED else "reasoning_gym"
        scorer = {"kind": kind} | ({"answer": _TO_THE_END} if name in SEVERAL_LINES else {})
        return {"verifier": scorer, **values}

    @model_validator(mode="after")
    def _levels_grade_something(self) -> Self:
        refuse_half_graded(self.name, self.levels, self.graded, what="options")
        return self

    def remark(self, teacher: Teacher) -> str:
        """Say that SFT sees none of it; see `Source.remark`."""
        if teacher.solves(self.name):
            return ""
        return (
            f"no program solves '{self.name}', so no SFT and no pretraining sees it and RL alone"
            " learns it; a teacher of another kind may solve it, and programs with"
            " without_program: answer write bare answers"
        )

    def without_solutions(self, teacher: Teacher, path: Path | None) -> str:
        """Ask the teacher; see `TellsSolutions`."""
        if teacher.solves(self.name):
            return ""
        if self.name in STATES_NO_ANSWER:
            return "add a source with solutions"
        return "set synthesize.teacher to {kind: programs, without_program: answer}"

    def check(self) -> None:
        """Refuse a generator that the library does not know; see `Source.check`."""
        refuse_options(self.name, self._options())

    def _options(self) -> list[dict[str, Any]]:
        """Options of the generator by level, easy to hard; without levels once."""
        graded = [dict.fromkeys(self.graded, level) for level in self.levels] or [{}]
        return [{**self.options, **each} for each in graded]

    def read(self, request: SourceRequest) -> SourceRows:
        """Draw held-out problems, then training problems; see `Source.read`.

        Held-out problems are drawn first: the easy levels have few prompts to share.
        """
        seen = set(request.sides)
        heldout = self._draw(request, request.num_heldout, split="heldout", seen=seen)
        train = self._draw(request, request.num_problems, split="train", seen=seen)
        return SourceRows(train=train, heldout=heldout)

    def _draw(
        self, request: SourceRequest, num_problems: int, *, split: str, seen: set[str]
    ) -> "list[Problem]":
        """Draw problems whose prompts are not in `seen`, and add them there."""
        levels = self._options()
        shares = even_shares(num_problems, len(levels))
        problems = []
        for difficulty, (options, share) in enumerate(zip(levels, shares, strict=True), start=1):
            draw_seed = stable_seed(request.seed, self.name, split, str(difficulty))
            fresh = fresh_entries(self.name, options, share, seed=draw_seed, seen=seen)
            problems += [self._problem(entry, difficulty, request) for entry in fresh]
        if not problems:
            raise UserError(
                f"source '{self.name}' has no {split} problem left; "
                "raise its levels or lower the counts"
            )
        return problems

    def _problem(
        self, entry: Mapping[str, Any], difficulty: int, request: SourceRequest
    ) -> "Problem":
        from posttrain.data.schemas import Problem

        parameters = json.loads(request.metadata_of(self.verifier))
        return Problem(
            source=self.name,
            prompt=prompt_of(self.name, entry["question"]),
            answer=str(entry["answer"]),
            difficulty=difficulty,
            verifier=self.verifier.kind,
            # In the library's own order: a teacher works in the order in which the prompt tells.
            metadata=json.dumps({**entry["metadata"], **parameters}, default=str),
        )
