"""Spliced lock files hold to the text that DVC's own dumper makes of the same data."""

import io
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from posttrain.provenance.dvc import lockfile

ORDER = ["cmd", "deps", "params", "outs", "path", "hash", "md5", "size", "nfiles", "isexec"]


def in_order(fields: dict[str, object]) -> dict[str, object]:
    """Fields in DVC's order, whatever order they were drawn in."""
    return {key: fields[key] for key in ORDER if key in fields}


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1)
PATHS = st.one_of(
    TEXT,
    st.from_regex(r"[\w./-]{1,40}( [\w./-]{1,40}){0,3}", fullmatch=True),
    st.sampled_from(["data/a b", "yes", "null", "1e5", "12", "- x", "a: b", "#c", "~", "x" * 200]),
)
DIGESTS = st.one_of(
    st.text("0123456789abcdef", min_size=32, max_size=32),
    st.text("01e", min_size=32, max_size=32),
    st.text("01b", min_size=32, max_size=32),
)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT)
PARAMS = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
FILES = st.lists(
    st.fixed_dictionaries(
        {"path": PATHS, "hash": st.just("md5"), "md5": DIGESTS, "size": st.integers(0)},
        optional={"nfiles": st.integers(0), "isexec": st.just(True)},
    ).map(in_order),
    max_size=3,
)
ENTRIES = st.fixed_dictionaries(
    {"cmd": st.one_of(PATHS, st.just("python -m posttrain stage run " + "x" * 90))},
    optional={
        "deps": FILES.filter(bool),
        "params": st.dictionaries(TEXT, PARAMS, min_size=1, max_size=3).map(
            lambda values: {"params.yaml": values}
        ),
        "outs": FILES.filter(bool),
    },
).map(in_order)
NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True)


def dump(data: object) -> str:
    """As `dvc.utils.serialize` dumps a lock file."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.Representer.add_representer(OrderedDict, yaml.Representer.represent_dict)
    stream = io.StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


def holds_to_the_dumper(path: Path, entries: dict[str, dict[str, object]]) -> None:
    path.unlink(missing_ok=True)
    for name, entry in entries.items():
        lockfile.replace(path, {name: entry}, None)
    assert path.read_text(encoding="utf-8") == dump({"schema": "2.0", "stages": entries})
    assert YAML(typ="safe").load(path.read_text(encoding="utf-8"))["stages"] == entries


DRAWN = given(entries=st.dictionaries(NAMES, ENTRIES, min_size=1, max_size=3))


@settings(max_examples=30, deadline=None)
@DRAWN
@example(entries={"a": {"cmd": "x", "deps": [{"path": "p", "md5": "1" * 32, "size": 1}]}})
@example(entries={"a": {"cmd": "x", "deps": [{"path": "p", "md5": "1e" + "1" * 30, "size": 1}]}})
def test_the_text_is_what_the_dumper_makes(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, dict[str, object]]
) -> None:
    holds_to_the_dumper(tmp_path_factory.getbasetemp() / "dvc.lock", entries)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@DRAWN
def test_the_text_is_what_the_dumper_makes_of_much_more(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, dict[str, object]]
) -> None:
    holds_to_the_dumper(tmp_path_factory.getbasetemp() / "dvc.lock", entries)


def test_what_follows_the_stages_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    tail = "datasets:\n- name: squad\n  type: url\n"
    path.write_text("schema: '2.0'\nstages:\n  a:\n    cmd: x\n" + tail)
    assert lockfile.replace(path, {"b": {"cmd": "y"}}, None)
    text = "schema: '2.0'\nstages:\n  a:\n    cmd: x\n  b:\n    cmd: y\n"
    assert path.read_text() == text + tail


def test_an_equal_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    assert lockfile.replace(path, {"a": {"cmd": "x"}}, None)
    before = path.stat()
    assert not lockfile.replace(path, {"a": {"cmd": "x"}}, None)
    assert path.stat().st_ino == before.st_ino
    assert [file.name for file in tmp_path.iterdir()] == ["dvc.lock"]
