"""The notebooks of docs/notebooks run as they stand, and show nothing of a machine."""

import pytest

from tests.operations.python.write_notebooks import NAMES, executed, new_project, paths_in, read


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """One project for all, as for a reader: what the first has run, the others find."""
    return new_project(tmp_path_factory.mktemp("notebooks") / "mine")


@pytest.mark.slow  # a small pipeline runs in a kernel, one more time from RL on, and is compared
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, project, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    stored, now = read(name), executed(name, project)
    assert [_forms(cell) for cell in now.cells] == [_forms(cell) for cell in stored.cells]


def _forms(cell):
    """What sorts of output a cell has, such as text and a table."""
    outputs = (each.get("data", {"text/plain": ""}) for each in cell.get("outputs", ()))
    return {form for shown in outputs for form in shown}


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_notebook_shows_results_and_no_machine(name):
    notebook = read(name)
    assert paths_in(notebook) == []
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any(each.output_type == "error" for cell in code for each in cell.outputs)
    # All but those that only prepare show something.
    assert sum(bool(cell.outputs) for cell in code) >= len(code) - 2
