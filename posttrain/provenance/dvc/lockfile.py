"""`dvc.lock` as text: the entries of some stages replaced, every other byte kept.

DVC rewrites the whole file through a round-trip parser for each stage, which is quadratic in the
number of stages and leaves half a file behind when it is killed. Here a stage's entry is a block
of lines that is spliced, and the file is replaced by one rename. A test holds the text against
DVC's own.
"""

import io
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from posttrain.stage.errors import UserError
from posttrain.stage.files import replacing

_HEAD = "schema: '2.0'\nstages:\n"
_STAGE = re.compile(r"^  (?! )(?P<name>\S.*):\n", re.MULTILINE)
_AFTER_STAGES = re.compile(r"^[^ \n]", re.MULTILINE)
_CONFLICT = re.compile(r"^(<<<<<<<|=======|>>>>>>>)", re.MULTILINE)
# Text that every YAML reader takes for a string: words that start with a letter, other than those
# that mean something, and digests with a letter that no number has. The rest: see `_scalar`.
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*( [\w./-]+)*|(?=[0-9be]*[acdf])[0-9a-f]{32}", re.ASCII)
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])

Entry = Mapping[str, object]


def replace(path: Path, entries: Mapping[str, Entry], keep: Collection[str] | None) -> bool:
    """Put entries into a lock file, by one rename.

    Args:
        path: The lock file, made where it is not there.
        entries: Entries by name of their stage.
        keep: Names of the other stages that stay; None keeps all of them, byte for byte.

    Returns:
        False if the file already said so, and was not written.

    """
    old, blocks, tail = _read(path)
    if keep is not None:
        blocks = {name: block for name, block in blocks.items() if name in keep}
    blocks.update({name: _block(name, entry) for name, entry in entries.items()})
    new = _HEAD + "".join(blocks.values()) + tail if blocks or tail else ""
    if new == old:
        return False
    with replacing(path) as partial:
        partial.write_text(new, encoding="utf-8")
    return True


def check_lock(path: Path) -> None:
    """Refuse a lock file that entries cannot be put into, before anything is made for them."""
    _read(path)


def _read(path: Path) -> tuple[str, dict[str, str], str]:
    """The text, its blocks by stage, and what follows them."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except UnicodeDecodeError:
        raise UserError(
            f"{path} is not a lock file that DVC wrote; restore it with git checkout"
        ) from None
    return text, *_split(text, path)


def _split(text: str, path: Path) -> tuple[dict[str, str], str]:
    """Cut the file into one block of lines for each stage, and whatever follows the stages."""
    if not text:
        return {}, ""
    if _CONFLICT.search(text):
        raise UserError(f"{path} holds a merge conflict; resolve it, then run again")
    if not text.startswith(_HEAD):
        raise UserError(f"{path} is not a lock file that DVC wrote; restore it with git checkout")
    after = _AFTER_STAGES.search(text, len(_HEAD))
    end = after.start() if after else len(text)
    stages = list(_STAGE.finditer(text, len(_HEAD), end))
    starts = [stage.start() for stage in stages]
    if starts[:1] != [len(_HEAD)][: end - len(_HEAD)]:
        raise UserError(f"{path} is damaged at its first stage; restore it with git checkout")
    spans = zip(stages, [*starts[1:], end], strict=True)
    return {_unquoted(stage["name"]): text[stage.start() : stop] for stage, stop in spans}, text[
        end:
    ]


def _unquoted(name: str) -> str:
    return name[1:-1] if name[0] in "'\"" and name[-1] == name[0] else name


def _block(name: str, entry: Entry) -> str:
    """Render one stage's entry as DVC's dumper does, two levels deep in the file."""
    rest = {key: value for key, value in entry.items() if key not in ("deps", "outs")}
    lines = _yaml({"stages": {name: {"cmd": rest.pop("cmd")}}}).splitlines(keepends=True)[1:]
    lines += _render_files("deps", entry.get("deps"))
    if rest:
        lines += _yaml({"stages": {name: rest}}).splitlines(keepends=True)[2:]
    lines += _render_files("outs", entry.get("outs"))
    return "".join(lines)


def _render_files(section: str, files: object) -> list[str]:
    """Render the files of a section; by hand, because there are hundreds and the dumper is slow."""
    if not isinstance(files, list) or not files:
        return []
    lines = [f"    {section}:\n"]
    for fields in files:
        marks = ["    - "] + ["      "] * len(fields)
        pairs = zip(marks, fields.items(), strict=False)
        lines += [f"{mark}{key}: {_scalar(value)}\n" for mark, (key, value) in pairs]
    return lines


def _scalar(value: object) -> str:
    """Render one scalar; plain where that is beyond doubt, through the dumper otherwise."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if len(text) < 60 and _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    # Nested as deep as the real thing, so that long values are folded at the same column.
    dumped = _yaml({"a": {"b": {"c": [{"path": text}]}}})
    return dumped.split("path:", 1)[1].lstrip(" ").removesuffix("\n")


def _yaml(data: object) -> str:
    """Dump as DVC's lock files are dumped."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    stream = io.StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()
