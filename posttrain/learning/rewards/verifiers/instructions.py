"""How many of its instructions a text follows, each a constraint that a program can check."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from posttrain.learning.rewards.constraints.base import Constraint
from posttrain.learning.rewards.constraints.registry import CONSTRAINTS
from posttrain.learning.rewards.score import NO_ANSWER, Score, graded
from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_IDS, _ARGUMENTS = "instruction_id_list", "kwargs"


class InstructionsVerifier(Verifier):
    """Score the share of its constraints that a text follows; 1 where it follows all of them.

    The rows of IFEval may be given as they are: `instruction_id_list` and `kwargs` in place of
    `constraints`. Further code: "not_followed".
    """

    SOURCE = "IFEval, arXiv:2311.07911: accuracy by instruction; `loose` as in section 2.2"
    REFERENCE: ClassVar[bool] = False

    kind: Literal["instructions"] = "instructions"
    constraints: tuple[Annotated[Constraint, InSlot(CONSTRAINTS)], ...] = ()
    """What the text is to follow: usually of each row."""
    loose: bool = False
    """Forgive Markdown's asterisks, a first line that introduces and a last one that closes."""

    @model_validator(mode="before")
    @classmethod
    def _as_constraints(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or not {_IDS, _ARGUMENTS} & values.keys():
            return values
        kinds, arguments = values.get(_IDS), values.get(_ARGUMENTS)
        if not (isinstance(kinds, list | tuple) and isinstance(arguments, list | tuple)):
            raise ValueError(f"{_IDS} and {_ARGUMENTS} must both be lists")
        if len(kinds) != len(arguments):
            raise ValueError(f"{_IDS} has {len(kinds)} entries, {_ARGUMENTS} {len(arguments)}")
        made = [
            # Tables keep every argument of every kind, null where it is another's.
            {"kind": kind, **{name: value for name, value in each.items() if value is not None}}
            for kind, each in zip(kinds, arguments, strict=True)
        ]
        others = {name: each for name, each in values.items() if name not in (_IDS, _ARGUMENTS)}
        return {**others, "constraints": [*others.get("constraints", ()), *made]}

    def score(self, text: str, problem: "Problem") -> Score:
        """Check every constraint; see `Verifier.score`."""
        if not self.constraints:
            raise UserError(
                f"problem {problem.id} of '{problem.source}' is checked by the verifier"
                " 'instructions', and has no constraint; name the column that holds them in"
                " `parameters` of its source"
            )
        if not text.strip():
            return NO_ANSWER
        texts = [each for each in _variants(text) if each.strip()] if self.loose else [text]
        followed = [any(map(each.followed, texts)) for each in self.constraints]
        return graded(sum(followed) / len(followed), reason="not_followed")


def _variants(text: str) -> Iterator[str]:
    """The eight texts of IFEval's loose accuracy."""
    lines: Sequence[str] = text.split("\n")
    for kept in (lines, lines[1:], lines[:-1], lines[1:-1]):
        part = "\n".join(kept).strip() if kept is not lines else text
        yield part
        yield part.replace("*", "")
