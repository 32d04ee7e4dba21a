"""An answer is right if it is JSON of a schema."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import field_validator

from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.json_value import json_values
from posttrain.learning.rewards.extractors.registry import EXTRACTORS
from posttrain.learning.rewards.extractors.whole import WholeAnswer
from posttrain.learning.rewards.score import CORRECT, Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NOT_JSON = Score(0.0, "not_json")
NOT_VALID = Score(0.0, "not_valid")


class SchemaVerifier(ComparingVerifier):
    """Accept an answer whose last JSON object or list is valid by a JSON schema.

    Further codes: "not_json" (there is none in it), "not_valid". References to other documents are
    not fetched.
    """

    SOURCE = "JSON Schema, draft 2020-12"
    REFERENCE: ClassVar[bool] = False

    kind: Literal["schema"] = "schema"
    answer: Annotated[Extractor, InSlot(EXTRACTORS)] = WholeAnswer()
    """Where the answer stands."""
    json_schema: Mapping[str, Any] | None = None
    """The schema; null if rows state their own."""

    @field_validator("json_schema", mode="after")
    @classmethod
    def _is_one(cls, schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        try:
            Draft202012Validator.check_schema(dict(schema or {}))
        except SchemaError as error:
            raise ValueError(f"this is no JSON schema: {error.message}") from None
        return schema

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Validate the answer's JSON; see `ComparingVerifier.compare`."""
        from jsonschema import Draft202012Validator
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        if self.json_schema is None:
            raise UserError(
                f"problem {problem.id} of '{problem.source}' is checked by the verifier 'schema',"
                " and neither its source nor its row has a json_schema; set one of them"
            )
        found = json_values(answer)
        if not found:
            return NOT_JSON
        # A registry of its own: without one, what a reference names would be fetched.
        validator = Draft202012Validator(self.json_schema, registry=Registry())
        try:
            return CORRECT if validator.is_valid(found[-1]) else NOT_VALID
        except Unresolvable as error:
            raise UserError(
                f"problem {problem.id} of '{problem.source}': its json_schema refers to"
                f" '{error.ref}', which is not in it; write that part out"
            ) from None
