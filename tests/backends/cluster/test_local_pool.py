"""Workers in processes of this machine: under the stage's rules, and closed however they end."""

import pickle
import sys
import time
from pathlib import Path

import pytest

from posttrain.backends.cluster.local_pool import LocalPool, Served
from posttrain.backends.cluster.settings import TorchSettings
from posttrain.stage import rules
from posttrain.stage.errors import UserError


class Noting:
    """Note in a folder what becomes of it; a piece is how long it takes."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def equip(self, version, tools):
        self.tools = tools

    def do(self, piece):
        (self.folder / "begun").touch()
        time.sleep(piece)
        return self.tools

    def close(self):
        with (self.folder / "closed").open("a") as file:
            file.write("once ")


class Failing(Noting):
    def do(self, piece):
        raise OSError(piece)

    def close(self):
        super().close()
        raise OSError("it is stuck")


def strict():
    """Rules that know what `OSError` is, and keep a list of what was gone on without."""
    missed = []
    STARTED.append(missed)

    def heard(error):
        if isinstance(error, OSError):
            return f"it may not: {error}"
        return missed[0] if missed else None

    return heard


STARTED = []


def served(make, folder):
    work = pickle.dumps((TorchSettings.present(), make, (str(folder),)))
    start, tools = pickle.dumps((strict, None, work)), pickle.dumps((1, "tools"))
    worker = Served()
    return worker, lambda piece: worker.done(start, tools, pickle.dumps(piece))


def test_rules_are_kept_once_and_say_what_they_refused(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sys.modules[__name__], "STARTED", [])
    worker, done = served(Noting, tmp_path)
    assert [done(0.0), done(0.0)] == ["tools", "tools"]
    (missed,) = STARTED
    missed.append("a file was not read")
    with pytest.raises(UserError, match=r"^a file was not read$"):
        done(0.0)
    worker, done = served(Failing, tmp_path)
    with pytest.raises(UserError, match=r"^it may not: page 3$"):
        done("page 3")
    worker.close()
    worker.close()
    assert (tmp_path / "closed").read_text() == "once "
    assert "it is stuck" in capfd.readouterr().err


def test_without_a_stage_there_are_no_rules():
    with pytest.raises(OSError, match="page 3"), rules.keeping(rules.present_rules()()):
        raise OSError("page 3")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["idle", "busy"])
def test_a_worker_is_closed_whatever_it_is_doing(tmp_path, seconds):
    pool = LocalPool(1, Noting, str(tmp_path))
    pool.equip(1, "tools")
    begun = pool.begin(seconds)
    if seconds:
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
    else:
        assert pool.result(begun) == "tools"
    pool.close()
    assert (tmp_path / "closed").read_text() == "once "
