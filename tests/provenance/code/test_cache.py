"""The parsed tables on disk: quick, never trusted blindly, never in the way."""

import os
import shutil

import pytest

from posttrain.provenance.code import CodeReader, store, tree

TEXT = """
    # pkg/stage.py
    from pkg.maths import helper
    def run(): return helper()
    # pkg/maths.py
    def helper(): return 1
    """


@pytest.fixture
def parsed(monkeypatch):
    """Modules in the order in which they are parsed."""
    modules = []
    parse = tree.parse_module

    def counted(source, module, **options):
        modules.append(module)
        return parse(source, module, **options)

    monkeypatch.setattr(tree, "parse_module", counted)
    return modules


def test_files_that_did_not_change_are_not_parsed_again(project, tmp_path, parsed):
    project.write(TEXT)
    cache = tmp_path / "cache"
    cold = project.closure(cache=cache)
    assert sorted(parsed) == ["pkg", "pkg.maths", "pkg.stage"]
    assert project.closure(cache=cache) == cold
    assert len(parsed) == 3


def test_an_edit_with_the_same_size_and_time_is_seen(project, tmp_path, parsed):
    project.write(TEXT)
    cache = tmp_path / "cache"
    before = project.closure(cache=cache)
    file = project.root / "pkg" / "maths.py"
    status = file.stat()
    file.write_text(file.read_text().replace("1", "2"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert project.closure(cache=cache).digest != before.digest
    assert parsed[3:] == ["pkg.maths"]


@pytest.mark.parametrize("damage", ["", "null", "half", "flip", "folder"])
def test_a_damaged_cache_is_made_again(project, tmp_path, damage):
    project.write(TEXT)
    cache = tmp_path / "cache"
    before = project.closure(cache=cache)
    file = cache / "symbols.json"
    content = file.read_bytes()
    digest = before.symbols["pkg.maths:helper"]
    file.unlink()
    match damage:
        case "half":
            file.write_bytes(content[: len(content) // 2])
        case "flip":
            flipped = ("0" if digest[0] != "0" else "1") + digest[1:]
            assert digest.encode() in content
            file.write_bytes(content.replace(digest.encode(), flipped.encode()))
        case "folder":
            file.mkdir()
        case _:
            file.write_text(damage)
    assert project.closure(cache=cache) == before
    if damage != "folder":
        assert file.read_bytes() == content


def test_tables_of_another_analyzer_are_not_trusted(project, tmp_path, parsed, monkeypatch):
    project.write(TEXT)
    project.closure(cache=tmp_path / "cache")
    monkeypatch.setattr(store, "_analyzer", lambda: "another")
    project.closure(cache=tmp_path / "cache")
    assert len(parsed) == 6


def test_a_read_only_cache_costs_only_time(project, tmp_path, monkeypatch):
    def refuse(*_args, **_options):
        raise PermissionError(13, "read-only")

    project.write(TEXT)
    monkeypatch.setattr(store, "replacing", refuse)
    assert project.closure(cache=tmp_path / "cache") == project.closure()


def test_a_module_that_becomes_a_package_is_parsed_again(project, tmp_path):
    cache = tmp_path / "cache"
    project.write(
        """
        # pkg/stage.py
        from pkg.maths import f
        def run(): return f()
        # pkg/maths.py
        from .low import f
        # pkg/low.py
        def f(): return 1
        """
    )
    assert "pkg.low:f" in project.closure(cache=cache).symbols
    folder = project.root / "pkg" / "maths"
    folder.mkdir()
    shutil.move(folder.with_suffix(".py"), folder / "__init__.py")
    shutil.copy(project.root / "pkg" / "low.py", folder / "low.py")
    symbols = project.closure(cache=cache).symbols
    assert "pkg.maths.low:f" in symbols
    assert "pkg.low:f" not in symbols


def test_a_reader_is_a_snapshot(project):
    project.write(TEXT)
    reader = CodeReader(project.root, packages=("pkg",))
    before = reader.closure("pkg.stage:run")
    project.write(TEXT.replace("return 1", "return 2"))
    assert reader.closure("pkg.stage:run") == before
    assert project.closure() != before
