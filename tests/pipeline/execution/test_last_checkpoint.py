"""A stage that is asked to end writes the checkpoint of the step it is at, and goes on from it."""

import json
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.loop import _Saving
from posttrain.pipeline.execution.assignment import Assignment
from posttrain.pipeline.execution.last_checkpoint import CheckpointInterval, can_save
from posttrain.pipeline.execution.supervise import Limits, StageProcesses
from posttrain.stage.schedule import NumberSchedules
from posttrain.stage.spec import ArtifactKind

# Steps of 20 ms, whose sum depends on every one of them; the first attempt would take 40 s.
STAGE = '''
import json, time
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.stage.config import StageConfig
class Config(StageConfig):
    """How often."""
    checkpoint_every: int = 1000
class OwnPace(StageConfig):
    """Without checkpoints."""
def run(config, inputs, outputs, context):
    every = getattr(config, "checkpoint_every", 0)
    saver = Checkpointer(context.scratch, every=every)
    found = saver.load()
    step, total = (found.step, found.facts["total"]) if found else (0, 0)
    resumed = step
    num_steps = 2000 if not found else step + 5
    while step < num_steps:
        time.sleep(0.02)
        total += step * step
        step += 1
        context.progress(step, num_steps)
        if saver.due(step):
            saver.save(step, {}, facts={"total": total})
    outputs["report"].write_text(json.dumps({"from": resumed, "step": step, "total": total}))
'''


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """Run the stage above, asked to end after some seconds; its outcome and how long it took."""
    module = f"steps_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{module}.py").write_text(STAGE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def run(config="Config", *, ask=False, notice=1.5, **fields):
        own = __import__(module)
        processes = StageProcesses(threads=1, packages={"torch"})
        assignment = Assignment(
            stage="steps", entry=f"{module}:run", config=getattr(own, config)(**fields), inputs={},
            outputs={"report": tmp_path / "report.json"}, types={"report": ArtifactKind.REPORT},
            scratch=tmp_path / "scratch", log=tmp_path / "steps.log", seed=7, threads=1,
            device="cpu",
        )  # fmt: skip
        asked = []

        def watch(event):
            if ask and event["kind"] == "progress" and event["done"] == 3:
                asked.append(time.monotonic())
                request = processes.interruption.request
                threading.Thread(target=request, args=[signal.SIGTERM, notice]).start()

        try:
            outcome = processes.attempt(assignment, Limits(60.0, 60.0), watch)
        finally:
            processes.close()
        return outcome, time.monotonic() - asked[0] if asked else None

    run.folder = tmp_path
    return run


@pytest.mark.slow
def test_a_stage_that_is_asked_to_end_goes_on_from_the_step_it_was_at(attempt):
    outcome, seconds = attempt(ask=True)
    (saved,) = (attempt.folder / "scratch/checkpoints").iterdir()
    assert outcome.stopped
    assert outcome.error == saved.name
    step = json.loads((saved / "manifest.json").read_text())["step"]
    # At once, where the signal comes between what the step tells and its checkpoint.
    assert 3 <= step < 100
    assert seconds < 1.5
    assert attempt()[0].ok
    report = json.loads((attempt.folder / "report.json").read_text())
    # The sum of the squares below n is (n-1)n(2n-1)/6, however often it was interrupted.
    n = report["step"]
    assert report == {"from": step, "step": step + 5, "total": (n - 1) * n * (2 * n - 1) // 6}


@pytest.mark.slow
@pytest.mark.parametrize("config", ["OwnPace", "Config"])
def test_a_stage_without_checkpoints_is_ended_at_once(attempt, config):
    fields = {"checkpoint_every": 0} if config == "Config" else {}
    outcome, seconds = attempt(config, ask=True, notice=30.0, **fields)
    assert (outcome.stopped, outcome.error) == (True, None)
    assert seconds < 1.0
    assert not (attempt.folder / "scratch/checkpoints").exists()


@given(every=some.integers(1, 50), steps=some.integers(0, 200))
def test_an_interval_divides_as_the_number_and_then_as_one(every, steps):
    interval = CheckpointInterval(every)
    assert (steps % interval, steps // interval) == (steps % every, steps // every)
    assert (interval == every, interval > 0, json.dumps(interval)) == (True, True, str(every))
    interval.shorten()
    assert (steps % interval, steps // interval) == (0, steps)


def test_several_processes_of_a_stage_save_as_planned(attempt):
    config = RlConfig()
    given = {"stage": "rl", "entry": "x:run", "inputs": {}, "outputs": {}, "types": {}, "seed": 0}
    given |= {"scratch": attempt.folder, "log": attempt.folder, "threads": 1, "device": "cpu"}
    assert can_save(Assignment(config=config, **given))
    assert not can_save(Assignment(config=config, processes=2, **given))


SCHEDULED = {
    "learning_rate": {"from": 1e-3, "to": 1e-4, "over": 9},
    "lr_schedule": "constant",
    "warmup_steps": 0,
}


@pytest.mark.parametrize("fields", [{}, {"optimization": SCHEDULED}])
def test_rl_saves_after_the_update_it_is_at(fields):
    class Store:
        def flush(self, step):
            saved.append(("shards", step))

    class Progress:
        checkpointer = SimpleNamespace(raise_failed=lambda: None)

        def save(self, step):
            saved.append(("state", step))

    saved, every = [], CheckpointInterval(10)
    config = RlConfig.model_validate({"steps": 50, **fields})
    schedules = NumberSchedules(config.model_copy(update={"checkpoint_every": every}))
    saving = _Saving(Progress(), Store(), schedules.at(0))
    nothing = SimpleNamespace(settle=lambda _rollouter, _learner: None)
    state = SimpleNamespace(queue=nothing, rollouter=None, learner=None)
    saving.save_if_due(state, 3, 0)
    assert saved == []
    every.shorten()
    saving.save_if_due(state, 4, 0)
    assert saved == [("shards", 4), ("state", 4 * config.updates_per_step)]
