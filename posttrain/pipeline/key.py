"""The key of a stage run: everything that may change its result, and a hash over it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from posttrain.pipeline.code import CodeClosure, version

ORDER = ("code", "params", "inputs", "packages", "runtime")
_ABSENT = "(none)"


@dataclass(frozen=True)
class Key:
    """SHA-256 over the canonical JSON of `components`: group -> name -> value."""

    digest: str
    components: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Difference:
    """One component that two keys disagree on; None stands for one that is not there."""

    component: str
    name: str
    before: str | None
    after: str | None

    @property
    def sentence(self) -> str:
        """The difference in words."""
        before = _ABSENT if self.before is None else self.before
        after = _ABSENT if self.after is None else self.after
        if self.component in ("code", "inputs"):
            before, after = before[:12], after[:12]
        return f"{self.component} {self.name}: {before} -> {after}"


def stage_key(
    *,
    code: CodeClosure,
    params: Mapping[str, object],
    inputs: Mapping[str, str],
    runtime: Mapping[str, str],
) -> Key:
    """Compute the key from code, resolved parameters, input digests and runtime settings."""
    components = {
        "code": dict(code.symbols),
        "params": {name: json.dumps(value, sort_keys=True) for name, value in params.items()},
        "inputs": dict(inputs),
        "packages": {name: version(name) for name in sorted(code.packages)},
        "runtime": dict(runtime),
    }
    text = json.dumps(components, sort_keys=True, separators=(",", ":"))
    return Key(hashlib.sha256(text.encode()).hexdigest(), components)


def differences(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> list[Difference]:
    """Every component that differs, code first, then parameters, inputs, packages, runtime."""
    found = []
    for component in ORDER:
        old, new = before.get(component, {}), after.get(component, {})
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                found.append(Difference(component, name, old.get(name), new.get(name)))
    return found
