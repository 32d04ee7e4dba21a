"""What a stage's key does not know it cannot read: one sentence says which file, and the remedy."""

import json
import re

import pytest

from tests.quick import first_now

pytestmark = pytest.mark.usefixtures("here")

HIDDEN = "assets/hidden.csv"
WAYS = {
    "open": "open(hidden).read()",
    "os.open": "os.open(hidden, os.O_RDONLY)",
    "os.listdir": "os.listdir(os.path.dirname(hidden))",
    "subprocess": "subprocess.run(['cat', hidden], check=True, capture_output=True)",
    "polars.read_csv": "pl.read_csv(hidden)",
    "polars.scan_csv": "pl.scan_csv(hidden).collect()",
}
HEARD = {"open", "os.open", "os.listdir"}
"""What Python itself does, which is refused without the kernel's help, too."""


def reading(way):
    # The name is put together: code that names a file by its path has it in its key.
    return f"""
        import os, subprocess
        import polars as pl
        hidden = os.path.join("assets", "hid" + "den.csv")
        {WAYS[way]}
    """


@pytest.mark.parametrize("way", first_now(WAYS))
def test_an_undeclared_file_is_refused_in_a_sentence(doing, way, isolation):
    toy = doing(reading(way))
    toy.write(HIDDEN, "a\n1\n")
    done = toy.cli("run", "--local", "--only", "first")
    if isolation == "observed" and way not in HEARD:
        assert done.returncode == 0  # seen by nobody: it is why records say `observed`
        return
    named = "assets" if way == "os.listdir" else HIDDEN
    verb = "lets cat read" if way == "subprocess" else "reads"
    assert done.returncode == 2
    assert (
        re.sub(r"\s+", " ", done.stderr)
        .strip()
        .endswith(
            f"stage 'first' {verb} {named}, which its key does not know; make it an input of the"
            f" stage, or declare it for this stage in the recipe: first: {{declares: {{reads:"
            f" [{named}]}}}}"
        )
    )
    assert not (toy.root / "data/first/result.json").exists()


@pytest.mark.parametrize("declares", first_now(["recipe", "stage", "folder"]))
def test_a_declared_file_is_read_and_counts_by_its_content(doing, declares):
    said = {
        "recipe": f"reads: [{HIDDEN}]",
        "stage": f"first: {{declares: {{reads: {HIDDEN}}}}}",
        "folder": "reads: assets",
    }[declares]
    toy = doing("total = int(open('assets/hid' + 'den.csv').read().split()[1])", said)
    toy.write(HIDDEN, "a\n1\n")
    assert toy.cli("run", "--local", "--only", "first").returncode == 0
    assert toy.plan()["first"].action == "cached"
    toy.write(HIDDEN, "a\n22\n")
    decision = toy.plan()["first"]
    assert decision.action == "run"
    role = "assets" if declares == "folder" else HIDDEN
    assert decision.reasons[0].startswith(f"input reads.{role} has other bytes")


LIST = """
from typing import Literal
from posttrain.stage.shapes.base import ScheduleShape
class Early(ScheduleShape):
    kind: Literal["early"] = "early"
    def value(self, start, end, progress):
        return start
PARTS = {"schedule": {"early": Early}}
"""
HIDING = "import importlib\nAMOUNT = importlib.import_module('pl' + 'ug.dee' + 'per').AMOUNT\n"


@pytest.mark.slow
def test_what_lies_beside_a_plugin_is_not_imported_unseen(doing, isolation):
    toy = doing("name = 'pl' + 'ug.dee' + 'per'\nimport importlib\nimportlib.import_module(name)")
    toy.recipe("plugins: [plug.parts]\n")
    toy.write("plug/parts.py", LIST)
    toy.write("plug/deeper.py", "AMOUNT = 1\n")
    done = toy.cli("run", "--local", "--only", "first")
    assert done.returncode == 2
    said = re.sub(r"\s+", " ", done.stderr)
    assert "stage 'first' reads plug/deeper.py, code that its key was not seen to reach" in said


@pytest.mark.slow
def test_what_was_imported_unseen_before_the_stage_was_held_is_not_published(toy, isolation):
    """Its parameters come before it is held, and their module is imported with them."""
    config = toy.root / toy.package / "config.py"
    config.write_text(HIDING + config.read_text())
    toy.write("plug/deeper.py", "AMOUNT = 1\n")
    done = toy.cli("run", "--local", "--only", "first")
    assert done.returncode == 2
    said = re.sub(r"\s+", " ", done.stderr)
    assert "stage 'first' imported plug/deeper.py, code that its key was not seen to reach" in said
    assert not (toy.root / "data/first/result.json").exists()
    toy.recipe("reads: [plug/deeper.py]\n")
    done = toy.cli("run", "--local", "--only", "first")
    assert done.returncode == 0, done.stderr


def test_a_plugin_that_only_lists_parts_may_be_imported(doing, isolation):
    """Where a kind is looked for while the stage runs, all plug-ins are imported."""
    toy = doing(
        "from posttrain.stage.shapes.registry import SCHEDULE_SHAPES\n"
        "total = len(SCHEDULE_SHAPES.offered())"
    )
    toy.recipe("plugins: [plug.parts]\n")
    toy.write("plug/parts.py", f"from plug.behind import ONE\n{LIST}")
    toy.write("plug/behind.py", "ONE = 1\n")
    done = toy.cli("run", "--local", "--only", "first")
    assert done.returncode == 0, done.stderr


def test_records_say_whether_a_stage_was_held_or_observed(toy, isolation):
    runs = toy.run()
    assert {run.circumstances["isolation"] for run in runs.values()} == {isolation}
    assert json.loads((toy.root / "data/third/result.json").read_text()) == {"sum": 3}


SWALLOWED = {
    "open": "try:\n    open(hidden)\nexcept OSError:\n    pass",
    "os.listdir": "try:\n    os.listdir('assets')\nexcept OSError:\n    pass",
    "glob": "import glob\nassert glob.glob('ass' + 'ets/*.csv') == []",
    "pathlib": "from pathlib import Path\nassert [*Path('ass' + 'ets').glob('*.csv')] == []",
    "pkgutil": "import pkgutil\nassert [*pkgutil.iter_modules(['ass' + 'ets'])] == []",
    "os.popen": "assert os.popen('cat ' + hidden + ' 2>/dev/null').read() == ''",
    "unchecked": "subprocess.run(['cat', hidden], stderr=subprocess.DEVNULL)",
    "os.system": "os.system('cat ' + hidden + ' 2>/dev/null')",
}
PROGRAMS = ("os.popen", "unchecked", "os.system")


@pytest.mark.parametrize("way", first_now(SWALLOWED))
def test_what_a_stage_goes_on_without_is_refused_all_the_same(doing, way, isolation):
    """It would be published as if it had seen all: a folder without files, a program's silence."""
    if isolation == "observed" and way in PROGRAMS:
        pytest.skip("what other programs read is not held there")
    body = "import os, subprocess\nhidden = os.path.join('assets', 'hid' + 'den.csv')\n"
    toy = doing(body + SWALLOWED[way])
    toy.write(HIDDEN, "a\n1\n")
    done = toy.cli("run", "--local", "--only", "first")
    assert done.returncode == 2
    said = re.sub(r"\s+", " ", done.stderr)
    named = HIDDEN if way in ("open", *PROGRAMS) else "assets"
    verb = "lets .* read" if way in PROGRAMS else "reads"
    assert re.search(f"stage 'first' {verb} {named}, which its key does not know; make it", said)
    assert "(it was refused, and the stage went on without it)" in said
    assert not (toy.root / "data/first/result.json").exists()
