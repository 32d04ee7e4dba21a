"""What an artifact carries inside: a model its tokenizer and template, a table its verifiers.

Read in the stage's own process, where the heavy libraries are. A part is told by what makes it
behave as it does, so that the same tokenizer in two checkpoints is one node of the lineage.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.stage.errors import UserError
from posttrain.stage.hashing import ArtifactDigest, sha256_of, sha256_of_file, sorted_json
from posttrain.stage.spec import ArtifactKind

# A model without a chat template is prompted with the plain text and what `data.templates` puts
# behind it. Every such model shares this one, which no chat template disagrees with.
PLAIN = f"{ArtifactKind.TEMPLATE}:plain"
OF_SOURCE = ""
"""Stands for the verifiers of the sources: a table of completions was scored by them."""

_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
_VOCABULARIES = ("vocab.json", "merges.txt", "tokenizer.model", "spiece.model")


@dataclass(frozen=True)
class ArtifactPart:
    """One part, under its own name or, where it has none, that of the artifact around it.

    `digest` is None for a verifier, which is told by its code: the executor reads that.
    """

    type: ArtifactKind
    name: str | None = None
    size: int = 0
    digest: ArtifactDigest | None = None

    def path(self, whole: str) -> str:
        """What `posttrain lineage` finds it by."""
        return f"{whole}#{self.type}" if self.name is None else f"{self.type}:{self.name}"


def parts_of(path: Path, kind: ArtifactKind) -> tuple[ArtifactPart, ...]:
    """Parts of an output that was found to be of its type."""
    if kind.shape == "models":
        found = (part for model in _models_in(path) for part in _of_model(model))
        return tuple(dict.fromkeys(found))
    if kind.is_directory:
        return _of_model(path)
    if kind == ArtifactKind.VERIFIERS:
        return _of_sources(path)
    return _of_table(path, kind) if kind.suffix == ".parquet" else ()


def checked_rows(path: Path, kind: ArtifactKind, where: str) -> int | None:
    """Count the rows of a table, and refuse an output that is missing, empty or not of its kind.

    Args:
        path: Of the output.
        kind: What it is to be.
        where: Stage and output, for the error.

    Returns:
        The number of rows; None where it is no table.

    Raises:
        UserError: It is not there, or something else.

    """
    if not path.exists():
        raise UserError(f"{where} was not written; the task must create {path.name}")
    if kind.is_directory:
        models = _models_in(path) if kind.shape == "models" else [path]
        for model in models:
            if not any(model.glob("*.safetensors")) or not (model / "config.json").is_file():
                told = f"{where} is no model" if model == path else f"{where}: {model.name} is none"
                raise UserError(f"{told}: it lacks config.json or *.safetensors")
        return None
    if kind.shape == "report":
        json.loads(path.read_text(encoding="utf-8"))
        return None
    if kind.shape != "table":
        return None
    from posttrain.data.tables import check_table, schema_of

    return check_table(path, schema_of(kind))


def _models_in(folder: Path) -> list[Path]:
    """The models of a folder of several, by their names."""
    return sorted(each for each in folder.iterdir() if each.is_dir())


def _of_sources(path: Path) -> tuple[ArtifactPart, ...]:
    from posttrain.data.source_verifiers import read_verifiers
    from posttrain.pipeline.execution.verifier_parts import names_of_sources

    return _verifiers(names_of_sources(read_verifiers(path).values()))


def _of_table(path: Path, kind: ArtifactKind) -> tuple[ArtifactPart, ...]:
    import polars as pl

    from posttrain.pipeline.execution.verifier_parts import names_of_rows

    frame = pl.scan_parquet(path)
    if "verifier" not in frame.collect_schema():
        return ()
    names = names_of_rows(frame)
    if kind == ArtifactKind.COMPLETIONS and len(frame.filter(verifier="").head(1).collect()):
        names.add(OF_SOURCE)
    return _verifiers(names)


def _verifiers(names: set[str]) -> tuple[ArtifactPart, ...]:
    return tuple(ArtifactPart(ArtifactKind.VERIFIER, name) for name in sorted(names))


def with_settings(
    parts: Mapping[str, Sequence[ArtifactPart]], given: Collection[str]
) -> dict[str, tuple[ArtifactPart, ...]]:
    """The same parts, but a verifier named by its kind alone is one of those named in full.

    A table of completions says only that a model judged it; which model, and asked what, is with
    the problems: in another output of the stage, or among its inputs (`given`, names of verifiers).
    """
    named = {part.name for each in parts.values() for part in each if part.name is not None}
    full = sorted(name for name in named | set(given) if "/" in name)

    def meant(part: ArtifactPart) -> list[ArtifactPart]:
        if part.type != ArtifactKind.VERIFIER:
            return [part]
        if part.name == OF_SOURCE:
            every = sorted((named | set(given)) - {OF_SOURCE})
            return [ArtifactPart(ArtifactKind.VERIFIER, name) for name in every]
        found = [name for name in full if name.partition("/")[0] == part.name]
        return [ArtifactPart(ArtifactKind.VERIFIER, name) for name in found] or [part]

    return {role: tuple(m for part in each for m in meant(part)) for role, each in parts.items()}


def _of_model(folder: Path) -> tuple[ArtifactPart, ...]:
    settings = _json(folder / "tokenizer_config.json")
    rules = _rules(folder)
    if rules is None:
        return ()
    special = {name: _content(settings.get(name)) for name in _SPECIAL}
    template = _template(folder, settings)
    return (
        _part_of_identity(ArtifactKind.TOKENIZER, None, [rules, special]),
        _part_of_identity(ArtifactKind.TEMPLATE, "plain" if template is None else None, template),
    )


def _rules(folder: Path) -> object:
    """How text becomes ids, as one JSON value; None for a model without a tokenizer."""
    whole = folder / "tokenizer.json"
    if whole.is_file():
        from tokenizers import Tokenizer

        # Through the library, so that two spellings of one tokenizer are one.
        rules = json.loads(Tokenizer.from_file(str(whole)).to_str())
        # Left over from the last call that padded; no part of what it is.
        return rules | {"padding": None, "truncation": None}
    found = [folder / name for name in _VOCABULARIES if (folder / name).is_file()]
    return [[each.name, sha256_of_file(each)] for each in found] or None


def _template(folder: Path, settings: Mapping[str, Any]) -> object:
    written = folder / "chat_template.jinja"
    if written.is_file():
        return written.read_text(encoding="utf-8")
    return settings.get("chat_template")


def _part_of_identity(kind: ArtifactKind, name: str | None, identity: object) -> ArtifactPart:
    body = sorted_json(identity).encode()
    return ArtifactPart(kind, name, len(body), ArtifactDigest(sha256_of(body)))


def _content(token: Any) -> object:
    """A special token may be written as its text or as an object around it."""
    return token.get("content") if isinstance(token, Mapping) else token


def _json(path: Path) -> Mapping[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
