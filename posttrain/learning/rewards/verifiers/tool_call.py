"""How much of a tool call in JSON is right: the names, the arguments' names, their values."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.json_value import json_values
from posttrain.learning.rewards.extractors.registry import EXTRACTORS
from posttrain.learning.rewards.extractors.tag import TagAnswer
from posttrain.learning.rewards.score import CORRECT, Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NO_CALL = Score(0.0, "no_call")
_ARGUMENTS = ("arguments", "parameters")


class _Call(NamedTuple):
    name: str
    arguments: Mapping[str, Any]


class ToolCallVerifier(ComparingVerifier):
    """Score tool calls by part: the share of right names, of arguments' names, and of values.

    A call is an object with `name` and `arguments` (or `parameters`); there may be several, in a
    list or one a line. Further codes, for the first part that is not right: "no_call" (the answer
    is no such JSON), "wrong_name", "wrong_keys", "wrong_values".
    """

    SOURCE = "ToolRL, arXiv:2504.13958, correctness reward before it is scaled to -3..3; rlla.py"

    kind: Literal["tool_call"] = "tool_call"
    answer: Annotated[Extractor, InSlot(EXTRACTORS)] = TagAnswer(tag="tool_call")
    """Where the calls stand."""

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Score the calls; see `ComparingVerifier.compare`."""
        given, wanted = _calls(answer), _calls(self.expected(problem))
        if wanted is None:
            raise UserError(
                f"problem {problem.id} of '{problem.source}' is checked by the verifier"
                f" 'tool_call', but its answer is {problem.answer[-40:]!r}; give an object, or a"
                " list of objects, with `name` and `arguments`"
            )
        if given is None:
            return NO_CALL
        if sorted(map(_written, given)) == sorted(map(_written, wanted)):
            return CORRECT
        names = _overlap([call.name for call in given], [call.name for call in wanted])
        keys, values = _matched(given, wanted)
        asked = sum(len(call.arguments) for call in wanted)
        worth = (names + keys + values) / (1 + len(wanted) + asked)
        if names < 1:
            return Score(worth, "wrong_name")
        return Score(worth, "wrong_keys" if keys < len(wanted) else "wrong_values")


def _matched(given: Sequence[_Call], wanted: Sequence[_Call]) -> tuple[float, float]:
    """Credit for the arguments' names and for their values, each right call matched to its best."""
    left, all_keys, all_values = list(given), 0.0, 0.0
    for call in wanted:
        credits = [(_credit(each, call), each) for each in left if each.name == call.name]
        (keys, values), best = max(credits, key=lambda each: sum(each[0]), default=((0, 0), None))
        if keys + values:
            left = [each for each in left if each is not best]
            all_keys, all_values = all_keys + keys, all_values + values
    return all_keys, all_values


def _credit(given: _Call, wanted: _Call) -> tuple[float, float]:
    keys = _overlap([*given.arguments], [*wanted.arguments])
    same = (key for key in wanted.arguments.keys() & given.arguments.keys())
    values = sum(_equal(wanted.arguments[key], given.arguments[key]) for key in same)
    return keys, float(values)


def _overlap(given: Sequence[str], wanted: Sequence[str]) -> float:
    """Shared entries over all entries, repeated ones counted; 1 for two empty lists."""
    shared = (Counter(given) & Counter(wanted)).total()
    every = len(given) + len(wanted) - shared
    return shared / every if every else 1.0


def _calls(text: str) -> list[_Call] | None:
    """The calls of a text; None where something in it is none, or there is none."""
    found: list[_Call] = []
    for value in json_values(text):
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
                return None
            arguments: Any = next((each[key] for key in _ARGUMENTS if key in each), {})
            if not isinstance(arguments, Mapping):
                return None
            found.append(_Call(each["name"], arguments))
    return found or None


def _equal(one: Any, other: Any) -> bool:
    # Python's True equals 1; JSON's does not.
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _written(call: _Call) -> str:
    return json.dumps([call.name, call.arguments], sort_keys=True)
