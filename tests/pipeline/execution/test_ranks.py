"""What the processes of one stage imported counts for each of them, not for the first alone."""

import sys
from types import SimpleNamespace

import pytest

from posttrain.learning.models.distributed import group
from posttrain.pipeline.execution import rank, ranks
from posttrain.stage.errors import UserError


def test_a_file_that_two_processes_imported_in_two_versions_is_of_no_version():
    first, second = {"a.py": (1, 1, 1), "b.py": (2, 2, 2)}, {"b.py": (3, 2, 2), "c.py": (4, 4, 4)}
    assert ranks._imported([first, second]) == {
        "a.py": (1, 1, 1),
        "b.py": ranks._OF_NONE,
        "c.py": (4, 4, 4),
    }


@pytest.mark.parametrize("number", [0, 1])
def test_a_package_that_only_one_process_imports_fails_the_stage(monkeypatch, number):
    def perform(assignment, emit):
        import wave

        return {"frames": wave.WAVE_FORMAT_PCM}

    monkeypatch.delitem(sys.modules, "wave", raising=False)
    monkeypatch.setattr(rank, "perform", perform)
    monkeypatch.setattr(rank, "set_up", lambda assignment: None)
    monkeypatch.setattr(group, "open_group", lambda device: None)
    monkeypatch.setattr(group, "close_group", lambda: None)
    assignment = SimpleNamespace(stage="first", device="cpu", unkeyed=frozenset({"wave"}))
    with pytest.raises(UserError, match="stage 'first' imported wave, which nothing in its"):
        rank._perform(assignment, number, channel=None)
