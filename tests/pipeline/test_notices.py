"""Notices: a command and a real server of this machine get them, and failures to tell are said."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from posttrain.pipeline.notices import NoticeSettings, notice_settings, tell
from posttrain.stage.errors import UserError


@pytest.fixture
def server():
    """A web server on loopback that keeps what is posted to it."""
    got = []

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self):  # noqa: N802 - the library's name
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(202)
            self.end_headers()

        def log_message(self, *_):
            pass

    listening = HTTPServer(("127.0.0.1", 0), Keep)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}/hook", got
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_a_web_address_and_a_command_get_the_facts(server, tmp_path):
    url, got = server
    code = "import pathlib,sys; pathlib.Path('notice').write_text(sys.stdin.read())"
    settings = NoticeSettings(url=url, command=f'{sys.executable} -c "{code}"')
    said = tell(settings, "failure", {"run": "r1", "error": "no"}, tmp_path)
    assert said == "notice given, exit code 0; notice sent, answered 202"
    expected = {"event": "failure", "run": "r1", "error": "no"}
    assert got == [expected]
    assert json.loads((tmp_path / "notice").read_text()) == expected


def test_only_what_is_asked_for_is_told(server, tmp_path):
    url, got = server
    assert tell(NoticeSettings(url=url), "success", {}, tmp_path) == ""
    assert tell(NoticeSettings(on=("success",)), "success", {}, tmp_path) == ""
    assert got == []
    assert tell(NoticeSettings(url=url, on=("success",)), "success", {}, tmp_path)


def test_what_cannot_be_told_is_said_and_stops_nothing(tmp_path):
    settings = NoticeSettings(url="http://127.0.0.1:9/", command="no-such-program")
    said = tell(settings, "failure", {}, tmp_path)
    assert "the notice could not be given" in said
    assert "the notice could not be sent" in said


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"url": "ftp://x"}, "notify.url"),
        ({"command": "a '"}, "notify.command"),
        ({"to": 1}, "notify.to"),
    ],
)
def test_a_wrong_section_is_refused(section, said):
    with pytest.raises(UserError, match=said):
        notice_settings(section)


@pytest.mark.slow
def test_the_end_of_a_run_is_told(server, toy):
    url, got = server
    toy.recipe(f"notify: {{url: '{url}', on: [failure, success]}}\nsecond: {{mood: fail}}")
    done = toy.cli("run", "--local")
    assert done.returncode == 1
    assert "notice sent, answered 202" in done.stderr
    assert (got[0]["event"], got[0]["recipe"]) == ("failure", toy.flow.rpartition(".")[2])
    assert "told to fail" in got[0]["error"]
    toy.recipe(f"notify: {{url: '{url}', on: [success]}}")
    assert toy.cli("run", "--local").returncode == 0
    assert [each["event"] for each in got] == ["failure", "success"]
