"""What else belongs to a closure, and what does not."""

from textwrap import dedent

import pytest

from posttrain.provenance.code import CodeReader
from posttrain.stage.errors import UserError


@pytest.mark.parametrize("reader", ["open(__file__)", "resources.files('pkg')"])
def test_files_beside_a_module_that_looks_for_them_count(project, reader):
    text = f"""
        # pkg/stage.py
        from importlib import resources
        def run(): return {reader}
        """
    project.write(text)
    (project.root / "pkg" / "chat.jinja").write_text("one")
    before = project.closure()
    (project.root / "pkg" / "chat.jinja").write_text("two")
    assert "pkg.stage:<file chat.jinja>" in before.symbols
    assert project.closure().digest != before.digest


def test_files_beside_other_modules_do_not_count(project):
    project.write("\n# pkg/stage.py\ndef run(): return 1\n")
    (project.root / "pkg" / "chat.jinja").write_text("one")
    assert list(project.closure().symbols) == ["pkg.stage:run"]


def test_third_party_distributions_are_found_by_what_is_imported(project):
    project.write(
        """
        # pkg/stage.py
        import os, numpy.linalg
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            import torch
        def run():
            import yaml
        def other():
            import polars
        # pkg/unreached.py
        import rich
        """
    )
    assert project.closure().packages == {"numpy", "PyYAML"}


def test_a_package_that_is_not_installed_stands_for_itself(project):
    project.write("\n# pkg/stage.py\ndef run(): import no_such_engine.fast\n")
    assert project.closure().packages == {"no_such_engine"}


def test_code_outside_is_neither_counted_nor_followed(project, tmp_path):
    text = """
        # pkg/stage.py
        from pkg.progress import bar
        def run(): return bar()
        # pkg/progress.py
        import rich
        def bar(): return X
        print(X)
        """
    closures = []
    for value in (1, 2):
        project.write(text, {"X": value})
        closures.append(
            CodeReader(tmp_path, packages=("pkg",), outside=("pkg.progress",)).closure(
                "pkg.stage:run"
            )
        )
    assert closures[0] == closures[1]
    assert closures[0].packages == frozenset()
    assert not [name for name in closures[0].symbols if name.startswith("pkg.progress")]


def test_a_syntax_error_is_named_by_file_and_line(project):
    project.write(
        """
        # pkg/stage.py
        from pkg.broken import f
        def run(): return f()
        # pkg/broken.py
        x = 1
        def f(:
        """
    )
    with pytest.raises(UserError, match=r"pkg/broken\.py:2: not valid Python"):
        project.closure()


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("pkg.stage:rum", "pkg.stage does not define 'rum'; did you mean 'run'"),
        ("pkg.gone:run", "there is no module pkg.gone"),
    ],
)
def test_an_entry_that_is_not_there_gets_a_sentence(project, entry, sentence):
    project.write("\n# pkg/stage.py\ndef run(): return 1\n")
    with pytest.raises(UserError, match=sentence):
        project.closure(entry)


def test_where_code_imports_by_name_the_modules_that_parameters_name_count(project):
    text = """
        # pkg/stage.py
        from importlib import import_module
        def run(config): return import_module(config.scorer).score()
        # pkg/exact.py
        def score(): return X
        # pkg/other.py
        def score(): return 1
        """
    digests = {}
    for value in (1, 2):
        project.write(text, {"X": value})
        reader = CodeReader(project.root, packages=("pkg",))
        for given in ("pkg.exact", "pkg.exact:score", "pkg.other", "nothing.of it"):
            digests[value, given] = reader.closure("pkg.stage:run", given=[given]).digest
        assert reader.closure("pkg.stage:run").loads_by_name
    assert digests[1, "pkg.exact"] != digests[2, "pkg.exact"]
    assert digests[1, "pkg.exact:score"] != digests[2, "pkg.exact:score"]
    assert digests[1, "pkg.other"] == digests[2, "pkg.other"]
    assert digests[1, "nothing.of it"] == digests[2, "nothing.of it"]


def test_one_closure_can_have_several_entries(project):
    project.write(
        """
        # pkg/stage.py
        def run(): return 1
        def prepare(): return 2
        def other(): return 3
        """
    )
    closure = CodeReader(project.root, packages=("pkg",)).closure(
        "pkg.stage:run", "pkg.stage:prepare"
    )
    assert list(closure.symbols) == ["pkg.stage:prepare", "pkg.stage:run"]


def test_an_entry_may_be_a_re_export(project):
    project.write(
        """
        # pkg/stage.py
        from pkg.maths import run
        # pkg/maths.py
        class Config: pass
        def run(config: Config): return helper()
        def helper(): return 1
        """
    )
    assert list(project.closure().symbols) == [
        "pkg.maths:Config",
        "pkg.maths:helper",
        "pkg.maths:run",
        "pkg.stage:run",
    ]


REGISTRY = """
    # pkg/stage.py
    from pkg.registry import SLOTS
    def run(kind): return SLOTS.find(kind)
    # pkg/parts.py
    class Mine:
        size = X
    class Other:
        size = Y
    # pkg/registry.py
    from posttrain.stage.slots import Slot
    from pkg.parts import Mine, Other
    SLOTS = Slot("slot", Mine, {"mine": Mine, "other": Other})
    """


TYPE_OF_FIELDS = """
    from typing import Annotated
    from posttrain.stage.slots import InSlot
    SlotConfig = Annotated[Mine, InSlot(SLOTS)]
    """


@pytest.mark.parametrize("more", ["", TYPE_OF_FIELDS])
def test_a_registry_of_parts_is_in_no_key_and_a_part_that_is_named_is(project, more):
    digests = []
    for x, y in ((1, 1), (1, 2), (2, 1)):
        project.write(dedent(REGISTRY).rstrip() + dedent(more) + "\n", {"X": x, "Y": y})
        digests.append(project.reader().closure("pkg.stage:run", "pkg.parts:Mine").digest)
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


@pytest.mark.parametrize(
    "more", ["SLOTS.limit = Y", "print(Y)", "def find(): return Y\n    SLOTS.at(find)"]
)
def test_a_registry_that_does_anything_else_counts(project, more):
    digests = set()
    text = REGISTRY.replace("size = Y", "size = 0") + f"{more}\n"
    text = text.replace("SLOTS.find(kind)", "SLOTS.find(kind), vars(SLOTS)")
    for y in (1, 2):
        project.write(text, {"X": 1, "Y": y})
        digests.add(project.closure().digest)
    assert len(digests) == 2
