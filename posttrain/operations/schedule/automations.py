"""Automations of Prefect's: its own server tells of what no worker is there to tell of.

A worker that is gone, or whose machine is, tells nobody that runs are late; the server does.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from posttrain.operations.schedule.recipes import Schedule

_WEBHOOK = "webhook"
# A worker decides on a further attempt within seconds, and may be busy with other runs.
_UNDECIDED_SECONDS = 60
_RUNS = {"prefect.resource.id": "prefect.flow-run.*"}


def automate(client: Any, schedule: Schedule, deployment: str) -> None:
    """Make or change what a server tells by itself of a schedule, or take it away.

    Args:
        client: Prefect's synchronous client.
        schedule: As it is declared.
        deployment: Prefect's id of its deployment.

    """
    remove_automations(client, schedule.name)
    if not schedule.config.automation:
        return
    block = _webhook(client, schedule)
    for each in automations_of(schedule, deployment, block):
        client.request("POST", "/automations/", json=each)


def remove_automations(client: Any, schedule: str) -> None:
    """Take away what `automate` made for a schedule; nothing where there is nothing.

    Args:
        client: Prefect's synchronous client.
        schedule: Its name.

    """
    names = [_name(schedule, event) for event in ("missed", "failure")]
    chosen = {"automations": {"name": {"any_": names}}}
    for each in client.request("POST", "/automations/filter", json=chosen).json():
        client.request("DELETE", f"/automations/{each['id']}")


def automations_of(schedule: Schedule, deployment: str, block: str) -> Iterator[dict[str, Any]]:
    """Describe the automations of a schedule, as Prefect's API takes them.

    Args:
        schedule: As it is declared.
        deployment: Prefect's id of its deployment.
        block: Prefect's id of the webhook that is called.

    Yields:
        One for runs that nobody began in time, and one for failures that nobody tries again: as
        far as `notify_on` asks for them.

    """
    own = {
        "type": "event",
        "match": _RUNS,
        "match_related": {
            "prefect.resource.role": "deployment",
            "prefect.resource.id": f"prefect.deployment.{deployment}",
        },
        "for_each": ["prefect.resource.id"],
        "threshold": 1,
    }
    late = {**own, "posture": "Reactive", "expect": ["prefect.flow-run.Late"], "within": 0}
    followed = ("AwaitingRetry", "Pending", "Running", "Completed", "Cancelled")
    failed = {
        **own,
        "posture": "Proactive",
        "after": ["prefect.flow-run.Failed", "prefect.flow-run.Crashed"],
        "expect": [f"prefect.flow-run.{name}" for name in followed],
        "within": _UNDECIDED_SECONDS,
    }
    for event, trigger in (("missed", late), ("failure", failed)):
        if event in schedule.config.notify_on:
            call = {"type": "call-webhook", "block_document_id": block}
            payload = _payload(schedule, event)
            yield {
                "name": _name(schedule.name, event),
                "description": f"Made by posttrain for the schedule {schedule.name}.",
                "trigger": trigger,
                "actions": [{**call, "payload": payload}],
            }


def _payload(schedule: Schedule, event: str) -> str:
    """A notice as JSON, with what the server fills in: the same fields as posttrain's own."""
    filled = {
        "due": "flow_run.expected_start_time | string",
        "status": "flow_run.state.name | lower",
        "error": "flow_run.state.message",
        "flow_run_id": "flow_run.id | string",
    }
    said = {"event": event, "schedule": schedule.name, "recipe": schedule.recipe, "by": "prefect"}
    parts = [f"{json.dumps(name)}: {json.dumps(text)}" for name, text in said.items()]
    parts += [f"{json.dumps(name)}: {{{{ {text} | tojson }}}}" for name, text in filled.items()]
    return "{" + ", ".join(parts) + "}"


def _name(schedule: str, event: str) -> str:
    return f"posttrain: {event} of {schedule}"


def _webhook(client: Any, schedule: Schedule) -> str:
    """Make or change the block that holds the address, which Prefect keeps as a secret."""
    name = "posttrain-" + schedule.name.replace("_", "-")
    kind = client.request("GET", f"/block_types/slug/{_WEBHOOK}").json()["id"]
    wanted = {"block_schemas": {"block_type_id": {"any_": [kind]}}}
    (schema, *_) = client.request("POST", "/block_schemas/filter", json=wanted).json()
    data: Mapping[str, Any] = {"url": schedule.config.notify_url, "method": "POST"}
    own = {"block_documents": {"name": {"any_": [name]}, "block_type_id": {"any_": [kind]}}}
    for known in client.request("POST", "/block_documents/filter", json=own).json():
        client.request("PATCH", f"/block_documents/{known['id']}", json={"data": data})
        return str(known["id"])
    body = {"name": name, "data": data, "block_type_id": kind, "block_schema_id": schema["id"]}
    return str(client.request("POST", "/block_documents/", json=body).json()["id"])
