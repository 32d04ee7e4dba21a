"""The worker shows that it lives while Prefect's server does not."""

import asyncio
import json
from types import SimpleNamespace

import httpx
import pytest
from pydantic import BaseModel

from posttrain.operations.schedule import worker
from posttrain.operations.schedule.worker import AskingNotes


def polling(poll):
    """A worker above Prefect's, whose polls go as given, and the beats and words of it."""
    beats, said = [], []

    class Prefects:
        async def get_and_submit_flow_runs(self):
            return await poll()

    made = type("Worker", (AskingNotes, Prefects), {})()
    made.keeper = SimpleNamespace(beat=lambda: beats.append(1), say=said.append)
    return made, beats, said


async def refused():
    raise httpx.ConnectError("connection refused")


async def for_a_while(made, *, polls):
    """Poll once, then wait in the next poll, with the beat beside it."""
    for _ in range(polls):
        await made.get_and_submit_flow_runs()
    beating = asyncio.create_task(made.beat_while_polling())
    await asyncio.sleep(0.1)
    beating.cancel()


def test_a_server_that_refuses_is_asked_again_and_the_worker_is_not_silent():
    made, beats, said = polling(refused)
    assert asyncio.run(made.get_and_submit_flow_runs()) == []
    assert len(beats) == 1
    assert said == ["trying again: ConnectError: connection refused"]


@pytest.mark.parametrize(
    ("answer", "said_of_it"),
    [
        ({"results": [{"name": 3}]}, "trying again: ValidationError: 2 validation errors for "),
        ({}, "trying again: KeyError: 'results'"),
        ("<html>", "trying again: JSONDecodeError: "),
    ],
)
def test_an_answer_of_another_version_of_prefect_ends_no_worker(answer, said_of_it):
    class Deployment(BaseModel):
        id: int
        name: str

    async def read():
        told = answer if isinstance(answer, dict) else json.loads(answer)
        return [Deployment.model_validate(each) for each in told["results"]]

    made, beats, said = polling(read)
    assert asyncio.run(made.get_and_submit_flow_runs()) == []
    assert len(beats) == 1
    assert [each[: len(said_of_it)] for each in said] == [said_of_it]


@pytest.mark.parametrize(("patience", "silent"), [(900.0, False), (0.0, True)])
def test_a_long_poll_is_no_silence_until_it_is_too_long(monkeypatch, patience, silent):
    monkeypatch.setattr(worker, "_BEAT_SECONDS", 0.01)
    monkeypatch.setattr(worker, "_POLL_SECONDS", patience)
    made, beats, _ = polling(refused)
    asyncio.run(for_a_while(made, polls=1))
    assert (len(beats) == 1) is silent


def test_a_worker_that_never_polled_shows_nothing(monkeypatch):
    monkeypatch.setattr(worker, "_BEAT_SECONDS", 0.01)
    made, beats, _ = polling(refused)
    asyncio.run(for_a_while(made, polls=0))
    assert beats == []


def test_a_beat_that_cannot_be_written_ends_nothing():
    made, _, _ = polling(refused)

    def full():
        raise OSError("no space left on device")

    made.keeper.beat = full
    assert asyncio.run(made.get_and_submit_flow_runs()) == []


def test_a_decision_that_is_interrupted_leaves_the_run_to_the_next_cycle(monkeypatch, desk):
    """A database that is away when a run begins must not make this worker hold it for ever."""
    made, _, _ = polling(refused)
    made.keeper = desk.keeper
    run = desk.server.add("s", 60.0)

    def away(*_):
        raise ConnectionError("refused")

    monkeypatch.setattr(worker, "begin", away)
    with pytest.raises(ConnectionError):
        asyncio.run(made.run(run, SimpleNamespace(env={})))
    assert desk.keeper.busy == set()
