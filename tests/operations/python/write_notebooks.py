"""Execute docs/notebooks in a project of their own and write what they show back into them.

Run it after a change of a notebook: python -m tests.operations.python.write_notebooks
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from posttrain.operations.project.create import create

FOLDER = Path(__file__).parents[3] / "docs/notebooks"
NAMES = ("first-run", "rollouts", "two-runs")
_SECONDS = 1200


def read(name):
    """A notebook as it is stored."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def executed(name, project):
    """A notebook with what its cells show, run at the root of a project by this interpreter."""
    notebook = read(name)
    NotebookClient(
        notebook,
        timeout=_SECONDS,
        resources={"metadata": {"path": str(project)}},
        record_timing=False,
        coalesce_streams=True,
    ).execute()
    return notebook


def without_traces_of_a_machine(notebook):
    """Leave out what says where and by whom it was run."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    return notebook


def paths_in(notebook):
    """Absolute paths of a machine that a notebook shows anywhere."""
    return re.findall(r"/(?:home|root|tmp|work|Users|opt)/\S*", nbformat.writes(notebook))


def new_project(folder):
    """The project of `posttrain init`, in which a reader begins."""
    create(folder)
    return folder


if __name__ == "__main__":
    os.environ["POSTTRAIN_TRACKING"] = "off"
    with tempfile.TemporaryDirectory() as folder:
        place = new_project(Path(folder) / "mine")
        for each in NAMES:
            made = without_traces_of_a_machine(executed(each, place))
            if found := paths_in(made):
                sys.exit(f"{each}: {found[0]}")
            nbformat.write(made, FOLDER / f"{each}.ipynb")
