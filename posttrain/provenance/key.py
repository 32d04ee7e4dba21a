"""The key of a stage: all that decides whether it is up to date, and one digest of it."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from posttrain.provenance.code import CodeClosure, installed_versions
from posttrain.stage.hashing import KeyDigest, canonical_json, sha256_of_json

Components = Mapping[str, Mapping[str, str]]
DifferenceKind = Literal["changed", "added", "removed"]

# From what a person edits to what merely is there: the first difference is the one to look at.
ORDER = ("rules", "code", "params", "inputs", "packages", "runtime")
_KINDS: tuple[DifferenceKind, ...] = ("changed", "added", "removed")
_MAX_SHOWN = 60
_DIGEST_SHOWN = 12
_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"|[^.]+')

RULES = "3"
"""Version of the rules by which keys are made; raised when equal work gets another key.

Records of 0.1 have none. 2: modules moved, a package of an extra counts where it is asked for.
3: packages count with those behind them, the seed of a stage by value, what changes no byte not.
"""

_OF_RULES = "keys are made by other rule"
_SENTENCES: dict[str, dict[DifferenceKind, str]] = {
    "rules": {
        "changed": f"{_OF_RULES}s {{after}}, and it was recorded by rules {{before}}",
        "added": f"{_OF_RULES}s than in posttrain 0.1, which recorded it",
        "removed": f"{_OF_RULES}s than in posttrain 0.1, which this is",
    },
    "code": {
        "changed": "the code of {name} changed",
        "added": "its code now reaches {name}",
        "removed": "its code no longer reaches {name}",
    },
    "params": {
        "changed": "parameter {name} changed from {before} to {after}",
        "added": "parameter {name} is new, with the value {after}",
        "removed": "parameter {name} is gone; it was {before}",
    },
    "inputs": {
        "changed": "input {name} has other bytes: {after} instead of {before}",
        "added": "input {name} is new: {after}",
        "removed": "input {name} is gone; it was {before}",
    },
    "packages": {
        "changed": "package {name} changed from {before} to {after}",
        "added": "its code now imports {name} {after}",
        "removed": "its code no longer imports {name} {before}",
    },
    "runtime": {
        "changed": "{name} changed from {before} to {after}",
        "added": "{name} is now part of the key: {after}",
        "removed": "{name} is no longer part of the key; it was {before}",
    },
}


@dataclass(frozen=True)
class Key:
    """Hex SHA-256 of the canonical JSON of `components`: group -> name -> value, all text."""

    digest: KeyDigest
    components: Components


@dataclass(frozen=True)
class Difference:
    """One value by which two keys differ; None where one of them does not have it."""

    component: str
    name: str
    before: str | None
    after: str | None

    @property
    def kind(self) -> DifferenceKind:
        """Whether the value is another one, new, or gone."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"

    def value_shown(self, value: str) -> str:
        """Return a value as a person is to read it; of a declared variable only a hash is kept."""
        is_hash = self.name.startswith("environment ") and value != "not set"
        return f"a value with the SHA-256 {value[:_DIGEST_SHOWN]}" if is_hash else value

    @property
    def sentence(self) -> str:
        """The difference in one line."""
        template = _SENTENCES.get(self.component, _SENTENCES["runtime"])[self.kind]
        before, after = (
            _shown(self.component, None if value is None else self.value_shown(value))
            for value in (self.before, self.after)
        )
        return template.format(name=self.name, before=before, after=after)


def stage_key(
    *,
    code: CodeClosure,
    params: Mapping[str, object],
    inputs: Mapping[str, str],
    runtime: Mapping[str, str],
) -> Key:
    """Make the key of one stage: a stage with the same key need not run again.

    Args:
        code: Everything of ours that it executes, and the packages that this uses; their installed
            versions count, and those of the packages behind them.
        params: Resolved parameters, nested.
        inputs: Digest of each input, by port.
        runtime: Seed, device and the like, as far as they can change a result.

    Returns:
        The key, with the components that say why one differs from another.

    """
    components = {
        "rules": {"keys": RULES},
        "code": dict(code.symbols),
        "params": flattened(params),
        "inputs": dict(inputs),
        "packages": installed_versions(code.packages),
        "runtime": dict(runtime),
    }
    return Key(KeyDigest(sha256_of_json(components)), components)


def checkpoints_digest(components: Components) -> str:
    """Digest all that a stage's checkpoints depend on: its key, but for the number of processes.

    They are the same from any number, so that a stage goes on where another number left it.

    Args:
        components: Of the stage's key.

    Returns:
        SHA-256 in hexadecimal.

    """
    runtime = {k: v for k, v in components["runtime"].items() if k != "processes"}
    return sha256_of_json({**components, "runtime": runtime})


def differences(before: Components, after: Components) -> list[Difference]:
    """Compare two keys component by component.

    Args:
        before: Components of the one.
        after: Components of the other.

    Returns:
        All values that differ: what a person edits first, and changed values before new and gone
        ones.

    """
    found = [
        Difference(component, name, old.get(name), new.get(name))
        for component in sorted(before.keys() | after.keys(), key=_rank)
        for old, new in [(before.get(component, {}), after.get(component, {}))]
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    return sorted(found, key=lambda diff: (_rank(diff.component), _KINDS.index(diff.kind)))


def is_of_other_rules(sentence: str) -> bool:
    """Whether the sentence of a difference says that another version made the key."""
    return sentence.startswith(_OF_RULES)


def flattened(values: Mapping[str, object]) -> dict[str, str]:
    """Flatten nested parameters to dotted names, each value as canonical JSON.

    >>> flattened({"a": {"b": 1, "c.d": [2]}})
    {'a.b': '1', 'a."c.d"': '[2]'}

    Args:
        values: Parameters by name.

    Returns:
        Values by dotted name.

    """
    return dict(_flattened(values))


def nested(params: Mapping[str, str]) -> dict[str, Any]:
    """Nest what `flattened` gave.

    >>> nested({"a.b": "1", 'a."c.d"': "[2]"})
    {'a': {'b': 1, 'c.d': [2]}}

    Args:
        params: Values by dotted name, as JSON.

    Returns:
        Parameters by name.

    """
    values: dict[str, Any] = {}
    for name, value in params.items():
        *above, last = [
            json.loads(part) if part.startswith('"') else part for part in _PARTS.findall(name)
        ]
        place = values
        for part in above:
            place = place.setdefault(part, {})
        place[last] = json.loads(value)
    return values


def _rank(component: str) -> tuple[int, str]:
    return (ORDER.index(component) if component in ORDER else len(ORDER), component)


def _flattened(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested parameters by dotted name, so that a difference names the one field that changed."""
    for key, value in values.items():
        name = prefix + (json.dumps(key) if "." in key else key)
        if isinstance(value, Mapping) and value:
            yield from _flattened(value, f"{name}.")
        else:
            yield name, canonical_json(value, finite=False)


def _shown(component: str, value: str | None) -> str:
    text = value or ""
    if component == "inputs":
        return text[:_DIGEST_SHOWN]
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
