"""What stages read outside of packages goes along: into a release, and into a copy to verify."""

import shutil
import sys

import pytest

from posttrain.pipeline.execution.session import open_session
from posttrain.publishing.release.assemble import _copy_inputs
from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.code import code_archive, unpack_code
from posttrain.publishing.reproduction.project import last_run, make_project, run_recipe

pytestmark = pytest.mark.slow

STAGE = """
import json
from pathlib import Path
from LOOSE.weights import factor
from ALONE import offset
ROOT = Path(__file__).resolve().parents[1]
def run(config, inputs, outputs, context):
    weight = json.loads((ROOT / "LOOSEassets/w.json").read_text())
    # No text of the code names this file; the recipe does.
    said = len((ROOT / config.mood).read_text())
    total = factor(config.amount) + offset() + weight + said
    outputs["result"].write_text(json.dumps({"sum": total}))
    return {"sum": float(total)}
"""


STAGES = ("first", "second", "third")


@pytest.fixture
def loose(toy):
    """A toy whose stages use a folder without `__init__.py`, a module at the root and data."""
    name = f"loose{toy.package}"
    alone = f"alone{toy.package}"
    toy.write(f"{name}/weights.py", "from LOOSE.deeper import two\n".replace("LOOSE", name)
              + "def factor(a):\n    return two() * a\n")  # fmt: skip
    toy.write(f"{name}/deeper.py", "def two():\n    return 2\n")
    toy.write(f"{name}/unused.py", "raise RuntimeError\n")
    toy.write(f"{name}assets/w.json", "100")
    toy.write("words.txt", "four")
    toy.write(f"{alone}.py", "def offset():\n    return 1000\n")
    stage = STAGE.replace("LOOSE", name).replace("ALONE", alone)
    toy.write(f"{toy.package}/stage.py", stage)
    # The flow lies in such a folder, too.
    (toy.root / toy.flow.partition(".")[0] / "__init__.py").unlink()
    mood = "".join(f"{each}: {{amount: 3, mood: words.txt}}\n" for each in STAGES)
    toy.recipe(f"reads: [words.txt]\n{mood}")
    made = toy.run()
    assert {run.status for run in made.values()} == {"succeeded"}
    assert (toy.root / "data/first/result.json").read_text() == '{"sum": 1110}'
    yield toy
    for module in [each for each in sys.modules if each.partition(".")[0] in (name, alone)]:
        del sys.modules[module]


def digests(made):
    return {name: [each.digest for each in run.outputs] for name, run in made.items()}


def test_the_code_of_a_release_runs_where_only_the_archive_is(loose, tmp_path_factory):
    place = tmp_path_factory.mktemp("elsewhere")
    with open_session(loose.root) as session:
        archive = code_archive(session.workspace, session.planner.keys.files())
        runs = tuple(last_run(loose.root).values())
        chain = Chain(session.recipe, loose.root, runs, None, runs[-1], {})
        _copy_inputs(chain, place / "release")
    unpack_code(archive, place / "again")
    shutil.copytree(place / "release/release/inputs", place / "again", dirs_exist_ok=True)
    shutil.copyfile(loose.root / "recipe.yaml", place / "again/recipe.yaml")
    make_project(place / "again")
    assert not list((place / "again").rglob("unused.py"))
    shutil.move(loose.root, loose.root.with_name("gone"))
    assert run_recipe(place / "again", place / "again") == 0
    made, released = last_run(place / "again"), {run.stage: run for run in runs}
    assert digests(made) == digests(released)
    assert {name: run.key for name, run in made.items()} == {
        name: run.key for name, run in released.items()
    }


def test_a_copy_to_verify_has_what_stages_read_outside_of_packages(loose):
    said = loose.cli("verify", "latest", "--level", "L0", env={"POSTTRAIN_TRACKING": "off"})
    assert said.returncode == 0, said.stderr + said.stdout
