"""Why a stage ran, or will run: what differs between two of its keys, with both values at hand."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from posttrain.provenance.code import ModuleText, SourceArchive, recovered
from posttrain.provenance.git import file_at
from posttrain.provenance.key import ORDER, Components, Difference, differences
from posttrain.provenance.ledger.records import ArtifactRecord, StageRun
from posttrain.stage.hashing import sha256_of_file

_NOUNS = {
    "rules": ("rule of keys", "rules of keys"),
    "code": ("code symbol", "code symbols"),
    "params": ("parameter", "parameters"),
    "inputs": ("input", "inputs"),
    "packages": ("package", "packages"),
    "runtime": ("engine or runtime setting", "engine and runtime settings"),
}
_DIGEST_SHOWN = 12
_CONTEXT_LINES = 3


@dataclass(frozen=True)
class ComparedKey:
    """One of the two keys: what it was made of, under a name that a person knows it by."""

    name: str
    components: Components
    inputs: Mapping[str, ArtifactRecord]
    commit: str | None = None

    @classmethod
    def of(cls, record: StageRun, commit: str | None) -> "ComparedKey":
        """A stage run of the past."""
        inputs = {artifact.role: artifact for artifact in record.inputs}
        return cls(f"run {record.run_id}", record.components, inputs, commit)


@dataclass(frozen=True)
class Sources:
    """Where old code can be found: what earlier runs kept, else the commit of a run, else disk."""

    root: Path
    archive: SourceArchive
    packages: Sequence[str]

    def text(self, symbol: str, digest: str, commit: str | None) -> str | None:
        """Normalized source of `module:name` as it was when it had this digest."""
        if ":<file " in symbol:
            return self.archive.data(digest) or self._data_now(symbol, digest)
        return recovered(symbol, digest, self._versions(symbol, commit), self.packages)

    def _data_now(self, symbol: str, digest: str) -> str | None:
        module, _, name = symbol.removesuffix(">").partition(":<file ")
        beside = self.root.joinpath(*module.split("."))
        for folder in (self.root,) if name.startswith("./") else (beside, beside.parent):
            file = folder / name
            if file.is_file() and sha256_of_file(file) == digest:
                return file.read_text(encoding="utf-8", errors="replace")
        return None

    def _versions(self, symbol: str, commit: str | None) -> Iterator[ModuleText]:
        module = symbol.partition(":")[0]
        yield from self.archive.versions(module)
        stem = module.replace(".", "/")
        for path, is_package in ((f"{stem}.py", False), (f"{stem}/__init__.py", True)):
            if commit and (source := file_at(self.root, commit, path)) is not None:
                yield ModuleText(source, is_package)
            if (self.root / path).is_file():
                yield ModuleText((self.root / path).read_bytes(), is_package)


@dataclass(frozen=True)
class Explanation:
    """Everything that differs between two keys of one stage, what to look at first in front."""

    before: ComparedKey
    after: ComparedKey
    differences: Sequence[Difference]

    @classmethod
    def between(cls, before: ComparedKey, after: ComparedKey) -> "Explanation":
        """Compare two keys."""
        return cls(before, after, differences(before.components, after.components))

    def counts(self, *, skip: int = 1) -> str:
        """How many differences of each kind there are after the first `skip`, in words."""
        found = Counter(difference.component for difference in self.differences[skip:])
        parts = [f"{found[kind]} {_NOUNS[kind][found[kind] > 1]}" for kind in ORDER if found[kind]]
        return ", ".join(parts)

    def details(self, difference: Difference, sources: Sources) -> list[str]:
        """The lines below a difference's sentence: both values, or a diff of the code."""
        if difference.component == "code":
            return self._code(difference, sources)
        if difference.component == "inputs":
            return [
                f"{side.name}: {_facts(side.inputs.get(difference.name), digest)}"
                for side, digest in self._sides(difference)
            ]
        return [
            f"{side.name}: {difference.value_shown(value)}"
            for side, value in self._sides(difference)
        ]

    def _code(self, difference: Difference, sources: Sources) -> list[str]:
        texts = []
        for side, digest in self._sides(difference):
            text = sources.text(difference.name, digest, side.commit) if digest else ""
            if text is None:
                return [f"its source in {side.name} was not kept (digest {digest})"]
            texts.append(text.splitlines())
        names = (self.before.name, self.after.name)
        return list(
            unified_diff(texts[0], texts[1], names[0], names[1], lineterm="", n=_CONTEXT_LINES)
        )

    def _sides(self, difference: Difference) -> list[tuple[ComparedKey, str]]:
        values = ((self.before, difference.before), (self.after, difference.after))
        return [(side, "" if value is None else value) for side, value in values]


def _facts(record: ArtifactRecord | None, digest: str) -> str:
    if not digest:
        return "none"
    if record is None:
        return digest[:_DIGEST_SHOWN]
    rows = "" if record.rows is None else f", {record.rows:,} rows"
    made = f", made by stage '{record.producer}'" if record.producer else ", from outside"
    return f"{record.path} {digest[:_DIGEST_SHOWN]}{rows}, {record.size:,} bytes{made}"
