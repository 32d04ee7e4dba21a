"""Typed, frozen configuration, and the sentence that says what is wrong with it."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from posttrain.errors import UserError, nearest


class StageConfig(BaseModel):
    """The parameters of one stage: frozen, fully typed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, where: str) -> Self:
        """Validate `values`, or raise a `UserError` that names `where.key` and the remedy."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise UserError(_sentence(cls, error, where)) from None

    def local_files(self) -> Mapping[str, str]:
        """Files that this config names, by name; the flow hands them to the task's `files` port."""
        return {}


def _sentence(config: type[BaseModel], error: ValidationError, where: str) -> str:
    """Turn pydantic's first complaint into one sentence with a path that the user typed."""
    first = error.errors(include_url=False)[0]
    path = ".".join([where, *(str(part) for part in first["loc"])])
    if first["type"] == "extra_forbidden":
        return f"{path}: unknown key{nearest(str(first['loc'][-1]), _keys(config, first['loc']))}"
    if first["type"] == "missing":
        return f"{path}: a value is required here"
    if first["type"] in ("value_error", "assertion_error"):
        return f"{path}: {first['ctx']['error']}"
    return f"{path}: {first['msg'][:1].lower()}{first['msg'][1:]}, got {first['input']!r}"


def _keys(config: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Field names valid at the place of the offending key, for the nearest-name hint."""
    owner: Any = config
    for part in loc[:-1]:
        field = owner.model_fields.get(part) if isinstance(part, str) else None
        nested = _nested_model(field.annotation) if field is not None else owner
        owner = nested or owner
    return list(owner.model_fields)


def _nested_model(annotation: Any) -> type[BaseModel] | None:
    """Find the model inside `Model`, `Model | None` or `tuple[Model, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_nested_model(arg) for arg in getattr(annotation, "__args__", ()))
    return next((model for model in inner if model is not None), None)
