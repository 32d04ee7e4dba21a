"""The source of a symbol as it was, out of texts that were kept."""

from pathlib import Path

import pytest

from posttrain.provenance.code import CodeReader, ModuleText, recovered

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
    digest = project.reader().closure("pkg.stage:run").symbols[symbol]
    module = symbol.partition(":")[0]
    text = ModuleText((project.root / f"{module.replace('.', '/')}.py").read_bytes(), False)
    assert recovered(symbol, digest, [text], ("pkg",)) == source
    assert recovered(symbol, "0" * 64, [text], ("pkg",)) is None


def test_an_edited_text_is_not_taken_for_the_code_that_ran(project):
    project.write(TEXT)
    digest = project.closure().symbols["pkg.stage:run"]
    file = project.root / "pkg" / "stage.py"
    kept = ModuleText(file.read_bytes(), False)
    edited = ModuleText(kept.source.replace(b"* RATE", b"/ RATE"), False)
    broken = ModuleText(b"def run(", False)
    assert recovered("pkg.stage:run", digest, [edited, broken], ("pkg",)) is None
    assert recovered("pkg.stage:run", digest, [edited, broken, kept], ("pkg",)) is not None


def test_a_package_that_the_root_lacks_is_read_from_where_it_is_installed(project):
    project.write(
        """
        # pkg/stage.py
        from posttrain.stage.errors import nearest
        def run(): return nearest("a", ["b"])
        """
    )
    reader = CodeReader(project.root, packages=("posttrain", "pkg"))
    closure = reader.closure("pkg.stage:run")
    assert "posttrain.stage.errors:nearest" in closure.symbols
    assert not Path(project.root, "posttrain").exists()
