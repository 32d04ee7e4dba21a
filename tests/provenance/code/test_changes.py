from pathlib import Path

import pytest

from posttrain.provenance.code import SymbolChange, code_closure, explain, source_in, symbol_source
from posttrain.stage.errors import UserError

TEXT = """
    # pkg/stage.py
    import numpy as np
    from pkg.maths import helper
    RATE: float = 0.5  # half
    RATE += 1
    def run(x: int):
        '''Run.'''
        return helper(np.abs(x)) * RATE  # scaled
    # pkg/maths.py
    if True:
        def helper(x): return x
    print("hello")
    """


def test_changes_name_the_symbols_that_differ(project):
    project.write(TEXT)
    before = project.closure()
    project.write(TEXT.replace("helper(np.abs(x)) * RATE", "extra(np.abs(x)) * RATE"))
    stage = project.root / "pkg" / "stage.py"
    stage.write_text(stage.read_text() + "\ndef extra(x): return x\n")
    after = project.closure()
    assert explain(before, after) == [
        SymbolChange("pkg.stage:run", "changed"),
        SymbolChange("pkg.stage:extra", "added"),
        SymbolChange("pkg.maths:helper", "removed"),
        SymbolChange("pkg.stage:helper", "removed"),
    ]
    assert explain(before.symbols, dict(before.symbols)) == []


@pytest.mark.parametrize(
    ("symbol", "source"),
    [
        ("pkg.stage:run", "def run(x):\n    return helper(np.abs(x)) * RATE\n"),
        ("pkg.stage:RATE", "RATE = 0.5\nRATE += 1\n"),
        ("pkg.stage:np", "import numpy as np\n"),
        ("pkg.stage:helper", "from pkg.maths import helper\n"),
        ("pkg.maths:helper", "def helper(x):\n    return x\n"),
        ("pkg.maths:<body>", "print('hello')\n"),
    ],
)
def test_sources_show_only_what_counts(project, symbol, source):
    project.write(TEXT)
    assert symbol_source(symbol, root=project.root, packages=("pkg",)) == source
    text = (project.root / "pkg" / f"{symbol.split(':')[0][4:]}.py").read_text()
    assert source_in(text, symbol) == source


def test_sources_of_unknown_symbols_get_a_sentence(project):
    project.write(TEXT)
    options = {"root": project.root, "packages": ("pkg",)}
    with pytest.raises(UserError, match="'pkg.stage:rum' is not defined there; did you mean 'run'"):
        symbol_source("pkg.stage:rum", **options)
    with pytest.raises(UserError, match="there is no module pkg.gone"):
        symbol_source("pkg.gone:run", **options)


def test_a_package_that_the_root_lacks_is_read_from_where_it_is_installed(project):
    project.write(
        """
        # pkg/stage.py
        from posttrain.stage.errors import nearest
        def run(): return nearest("a", ["b"])
        """
    )
    closure = code_closure(
        "pkg.stage:run", root=project.root, packages=("posttrain", "pkg"), outside=()
    )
    assert "posttrain.stage.errors:nearest" in closure.symbols
    assert not Path(project.root, "posttrain").exists()
