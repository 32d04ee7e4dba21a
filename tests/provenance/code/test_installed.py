"""Tasks that come with posttrain are found and hashed beside the tasks of a project."""

import subprocess
import sys
from pathlib import Path

from posttrain.pipeline.stage_keys import INTERFACE
from posttrain.provenance.code import CodeReader
from posttrain.stage.installed import beside, home

ROOT = Path(__file__).parents[3]
ENTRY = "tasks.curate.stage:run"
INIT = "from posttrain.stage.installed import beside\n__path__ = beside(__name__, __path__)\n"


PACKAGES = ("posttrain", "tasks", "flows")


def _closure(root, entry=ENTRY):
    return CodeReader(root, packages=PACKAGES, outside=INTERFACE).closure(entry)


def _symbols(root):
    return _closure(root).symbols


def _write(root, relative, text):
    path = root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_tasks_of_its_own_a_project_has_the_closure_of_the_framework(tmp_path):
    assert _symbols(tmp_path) == _symbols(ROOT)


def test_own_tasks_stand_beside_installed_ones_and_only_their_package_is_new(tmp_path):
    _write(tmp_path, "tasks/__init__.py", INIT)
    _write(tmp_path, "tasks/mine/stage.py", "from tasks.curate.stage import run\n")
    ours, theirs = _symbols(tmp_path), _symbols(ROOT)
    assert {name for name in ours if ours[name] != theirs.get(name)} <= {"tasks:<body>"}
    through = _closure(tmp_path, "tasks.mine.stage:run").symbols
    assert ours.items() <= through.items()


def test_an_own_task_hides_the_installed_one_of_its_name_with_all_its_modules(tmp_path):
    _write(tmp_path, "tasks/__init__.py", INIT)
    _write(tmp_path, "tasks/curate/__init__.py", "")
    _write(tmp_path, "tasks/curate/stage.py", "def run(): return 1\n")
    closure = _closure(tmp_path)
    assert {name for name in closure.symbols if name.startswith("tasks.")} == {f"{ENTRY}"}


def test_python_imports_what_the_closure_sees(tmp_path):
    _write(tmp_path, "tasks/__init__.py", INIT)
    _write(tmp_path, "tasks/mine/__init__.py", "")
    _write(tmp_path, "tasks/curate/__init__.py", "OURS = True\n")
    code = "import tasks.mine, tasks.sft, tasks.curate as c; print(tasks.sft.__file__, c.OURS)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(home() / "tasks/sft/__init__.py"), "True"]


def test_the_frameworks_own_folder_is_not_put_beside_itself():
    own = [str(home() / "tasks")]
    assert beside("tasks", own) == own
    assert beside("nothing_of_posttrain", ["/x"]) == ["/x"]
