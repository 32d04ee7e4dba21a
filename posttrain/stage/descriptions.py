"""What the fields of a config mean: the texts below them in its source, read when asked for.

Pydantic can look for them itself, whenever a class is made: for the 250 classes of a flow that
takes longer than all else that a plan does, and few commands show a text.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


def descriptions(config: type[BaseModel]) -> dict[str, str]:
    """Find what each field of a config means.

    Args:
        config: Its class; fields of its bases are its own, unless it states them anew.

    Returns:
        Text by name of a field; fields that nothing is said of are left out.

    """
    found: dict[str, str] = {}
    for each in reversed(config.__mro__):
        for name in each.__dict__.get("__annotations__", {}):
            found.pop(name, None)
        found |= _texts_in(each.__module__).get(each.__qualname__, {})
    given = {name: field.description for name, field in config.model_fields.items()}
    told = {name: given[name] or found.get(name) for name in given}
    return {name: text for name, text in told.items() if text}


class DescribedJsonSchema(GenerateJsonSchema):
    """Writes JSON schemas of configs in which every field says what it means."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """See `GenerateJsonSchema.model_schema`."""
        made = super().model_schema(schema)
        config, fields = schema["cls"], made.get("properties", {})
        for name, text in descriptions(config).items():
            spelled = config.model_fields[name].alias or name
            if spelled in fields:
                fields[spelled] = {"description": text} | fields[spelled] | {"description": text}
        return made


@cache
def _texts_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """Texts by field, by class, of a module that is imported."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return dict(_of_classes(ast.parse(source), ""))


def _of_classes(body: ast.AST, above: str) -> Iterator[tuple[str, dict[str, str]]]:
    for node in ast.iter_child_nodes(body):
        if isinstance(node, ast.ClassDef):
            yield f"{above}{node.name}", dict(_texts(node))
            yield from _of_classes(node, f"{above}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield from _of_classes(node, f"{above}{node.name}.<locals>.")
        elif not isinstance(node, ast.expr):  # no class stands in one, and most nodes do
            yield from _of_classes(node, above)


def _texts(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(said))),
            ):
                yield name, inspect.cleandoc(said)
