"""Prefect's own server tells of what no worker is there to tell of."""

import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from posttrain.operations.schedule.automations import automations_of
from posttrain.stage.errors import UserError

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def told():
    """A web address, and the notices that were posted to it."""
    notices = []

    class Told(BaseHTTPRequestHandler):
        def do_POST(self):
            notices.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Told)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    notices_at = (f"http://127.0.0.1:{server.server_port}/told", notices)
    yield notices_at
    server.shutdown()


def test_what_is_not_asked_for_has_no_automation(declare):
    schedule = declare(notify_url="http://here", automation=True, notify_on=("missed",))
    (late,) = automations_of(schedule, "d1", "b1")
    assert late["name"] == "posttrain: missed of s"
    assert late["trigger"]["match_related"]["prefect.resource.id"] == "prefect.deployment.d1"
    assert late["actions"][0]["block_document_id"] == "b1"


def test_without_an_address_there_is_nothing_to_call(declare):
    with pytest.raises(UserError, match="Prefect calls notify_url; set it, or leave this out"):
        declare(automation=True)


@pytest.mark.slow
def test_the_server_tells_of_runs_that_nobody_makes(lab, told):
    url, notices = told

    def told_of(event):
        return lab.until(lambda: next((each for each in notices if each["event"] == event), None))

    lab.declare(watched={
        "cron": "0 0 1 1 *", "retries": 0, "overrides": ["first.mood=fail"],
        "notify_url": url, "automation": True,
    })  # fmt: skip
    wanted = {"automations": {"name": {"any_": ["posttrain: missed of watched"]}}}
    lab.until(lambda: lab.ask("/automations/filter", wanted), 60)
    lab.schedule("run", "watched")
    failed = lab.tick("watched", "failed")
    lab.until(lambda: lab.flow_run(failed)["state_type"] == "FAILED")
    # No secret of the address stands in what people see.
    assert url not in json.dumps(lab.ask("/automations/filter", {}))

    lab.kill(lab.worker)
    deployment = lab.deployment("watched")["id"]
    late = datetime.now(UTC) - timedelta(minutes=1)
    asked = {"type": "SCHEDULED", "state_details": {"scheduled_time": late.isoformat()}}
    made = lab.ask(f"/deployments/{deployment}/create_flow_run", {"state": asked})
    missed = told_of("missed")
    assert (missed["schedule"], missed["status"]) == ("watched", "late")
    assert missed["flow_run_id"] == made["id"]
    failure = told_of("failure")
    assert failure["flow_run_id"] == failed.data["flow_run_id"]
    assert failure["by"] == "prefect"
    assert "told to fail" in failure["error"]

    lab.start_worker()
    lab.declare()
    lab.until(lambda: lab.ask("/automations/filter", wanted) == [])
    assert [each["event"] for each in notices].count("failure") == 1
