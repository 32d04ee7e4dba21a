"""`posttrain ui` as a person starts and ends it."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from posttrain.provenance.ledger import open_ledger
from tests.forked import posttrain


@pytest.fixture
def project(tmp_path):
    (tmp_path / ".dvc").mkdir()
    open_ledger(tmp_path / ".posttrain/ledger.db").close()
    return tmp_path


def test_it_says_where_it_is_answers_and_ends_by_ctrl_c(project):
    command = [sys.executable, "-m", "posttrain", "ui", "--port", "0"]
    started = subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, text=True)
    try:
        said = started.stderr.readline()
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+", said)
        page = urllib.request.urlopen(address).read().decode()
        assert "Nothing was run here yet" in page
    finally:
        started.send_signal(signal.SIGINT)
        rest = started.communicate(timeout=60)[1]
    assert (started.returncode, rest) == (0, "")
    assert not list(project.glob("reviews*"))


def test_a_port_that_is_taken_and_a_ledger_that_is_not_there_are_said_in_a_sentence(project):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = posttrain("ui", "--port", str(port), cwd=project)
    assert refused.returncode == 2
    assert f"error: port {port} on 127.0.0.1 cannot be taken" in refused.stderr
    assert "name another: --port 0" in refused.stderr
    (project / ".posttrain/ledger.db").unlink()
    refused = posttrain("ui", "--port", "0", cwd=project)
    assert refused.returncode == 2
    assert "run the recipe first: posttrain run" in refused.stderr
