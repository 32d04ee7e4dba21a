"""The recipe of a project for a file that somebody has: what the file is decides the flow."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.data.formats.base import RowFormat
from posttrain.data.formats.forms import Form
from posttrain.operations.inspect_data import Encoding, Inspection, inspect_file
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted

_ROUND = 64
"""Limits of length are multiples of it."""
_LONGEST_SMALL = 2048
"""Most tokens of a row for a model that is made on the spot."""
_DEFAULT_LENGTH = 512
_BROKEN = "cannot be read"


@dataclass(frozen=True)
class BroughtData:
    """What a project is made for."""

    files: tuple[Path, ...]
    """All are learned from, as sources of one recipe."""
    model: Path | None = None
    """Folder of the model to start from; without it a tiny one is trained on the spot."""
    wanted: RowFormat | None = None
    """The format of all files, where somebody said which."""


def recipe_for(data: BroughtData, folder: Path) -> str:
    """Write the recipe of a project for files.

    Args:
        data: The files, the model, and the format where it was said.
        folder: Where the project will be; paths are relative to it.

    Returns:
        The text of recipe.yaml.

    Raises:
        UserError: A file cannot be read, is of no format or of two, or nothing can be learned of
            it; what it holds is learned otherwise than what another does; or it needs a model, and
            none is given.

    """
    found = {file: _inspected(data, file) for file in data.files}
    form = _form_of(found)
    sections = _sections(data, form, found)
    sources = {_relative(file, folder): each for file, each in found.items()}
    model = None if data.model is None else _relative(data.model, folder)
    head = [line for file, each in found.items() for line in _told(file, each)]
    head += [
        "# Only what differs from the defaults stands here; params.yaml, which is generated, has",
        "# every field. `posttrain plan` says what would run.",
    ]
    return "\n".join([*head, *_written(sections, model, sources), ""])


def _told(file: Path, found: Inspection) -> Sequence[str]:
    rows = counted(found.num_usable, "row")
    return f"# {file.name}: {rows} to learn from, read as", f"# {found.reading}."


def _form_of(found: Mapping[Path, Inspection]) -> type[Form]:
    """What the files hold, by which their flow is chosen: of all the same."""
    forms = {file: each.reading.format.FORM for file, each in found.items()}
    (first, form), *others = forms.items()
    for file, other in others:
        if (form.TEACHES, form.JUDGES_ALONE) != (other.TEACHES, other.JUDGES_ALONE):
            raise UserError(
                f"{first} holds {form.WHAT}, and {file} {other.WHAT}: these are learned by"
                " different stages; make a project for one, and add a stage for the other to it"
            )
    return form


def _inspected(data: BroughtData, file: Path) -> Inspection:
    encoding = None
    if data.model is not None:
        from posttrain.learning.models.load import load_tokenizer

        encoding = Encoding(load_tokenizer(data.model))
    found = inspect_file(file, wanted=data.wanted, encoding=encoding)
    if found.num_broken:
        raise UserError(
            f"{counted(found.num_broken, 'row')} {_BROKEN}, such as {found.broken[0]};"
            f" `posttrain data inspect {file}` lists more"
        )
    if found.num_usable < 2:
        why = "; ".join(f"{count} {reason}" for reason, count in found.left_out.items())
        raise UserError(
            f"{file}: {counted(found.num_usable, 'row')} can be learned, and two are needed,"
            f" one of them to hold out{f' (left out: {why})' if why else ''}"
        )
    return found


def _sections(
    data: BroughtData, form: type[Form], found: Mapping[Path, Inspection]
) -> Mapping[str, Sequence[str]]:
    """The sections of the recipe, each as the lines below its name."""
    length = _length_lines(data, list(found.values()))
    if form.TEACHES:
        base = {} if data.model else {"pretrain": ["  steps: 200", *length]}
        return {"flow": ["flows.own_chats"], **base, "sft": length}
    if data.model is None:
        raise UserError(
            f"{next(iter(found))} holds {form.WHAT}, from which a model that is there learns;"
            " name its folder with --model"
        )
    if form.JUDGES_ALONE:
        return {
            "flow": ["flows.own_preferences"],
            "preference": ["  algorithm: kto", *length],
        }
    return {
        "flow": ["flows.own_pairs"],
        "reward": length,
        "preference": ["  algorithm: dpo", *length],
    }


def _length_lines(data: BroughtData, found: Sequence[Inspection]) -> list[str]:
    """The limit of length that the rows ask for, where the default is not enough."""
    longest = max(max(each.lengths["whole row"]) for each in found)
    most = _context_of(data.model) if data.model else _LONGEST_SMALL
    wanted = min(-(-(longest + 2) // _ROUND) * _ROUND, most)
    if wanted <= _DEFAULT_LENGTH:
        return []
    cut = sum(each.over("whole row", wanted) for each in found)
    said = f"the longest row has {longest:,} {found[0].unit}"
    if cut:
        share = cut / sum(each.num_measured for each in found)
        said += f"; {share:.1%} of the rows are longer than that, and left out"
    return [f"  max_length: {wanted}  # {said}"]


def _context_of(model: Path) -> int:
    """How many tokens a model can read, as far as it says so."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        return int(config["max_position_embeddings"])
    except (OSError, ValueError, LookupError, TypeError):
        return _LONGEST_SMALL


def _written(
    sections: Mapping[str, Sequence[str]], model: str | None, sources: Mapping[str, Inspection]
) -> list[str]:
    (flow,) = sections["flow"]
    lines = [f"flow: {flow}", "format: 3", ""]
    if model is not None:
        lines += [f"import_model: {{path: {json.dumps(model)}}}"]
    teaches = all(each.reading.format.FORM.TEACHES for each in sources.values())
    lines += ["import_chats:" if teaches else "import_pairs:", "  sources:"]
    for path, found in sources.items():
        stated = found.reading.format.model_dump(mode="json", exclude_defaults=True)
        said = {"kind": found.reading.format.kind, **stated}
        lines += [f"  - path: {json.dumps(path)}"]
        lines += [f"    format: {json.dumps(said) if stated else said['kind']}"]
    for name, inner in sections.items():
        if name != "flow":
            lines += [f"{name}:", *inner] if inner else [f"{name}: {{}}"]
    return lines


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
