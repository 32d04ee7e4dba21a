"""One attempt at a stage in its own process: how it ends, and what is said about it."""

import os
import sys
import time

import pytest

from posttrain.pipeline.execution.assignment import Assignment
from posttrain.pipeline.execution.supervise import Limits, StageProcesses
from posttrain.stage.config import StageConfig
from posttrain.stage.spec import ArtifactKind

BODIES = {
    "good": "context.log(1, {'loss': 2.0}); context.progress(1, 2); out(); return {'score': 3}",
    "silent": "return {}",
    "broken": "raise RuntimeError('the reason')",
    "refusing": "from posttrain.stage.errors import UserError; raise UserError('give me rows')",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "sleepy": "import os, time; context.log(0, {'pid': os.getpid()}); time.sleep(60)",
    "full": "raise OSError(28, 'No space left on device')",
    "huge": "import torch; torch.empty(10**15)",
    "seeded": "import random, torch; out(f'[{random.random()},{torch.rand(1).item()}]'); return {}",
}


@pytest.fixture(scope="module")
def processes():
    return StageProcesses(threads=1)


@pytest.fixture
def attempt(tmp_path, processes, monkeypatch):
    """Run one body as a stage; return its outcome, its events and its folder."""
    module = f"bodies_{abs(hash(str(tmp_path)))}"
    functions = "\n".join(
        f"def {name}(config, inputs, outputs, context):\n"
        f"    out = lambda text='{{}}': outputs['report'].write_text(text)\n"
        f"    print('body of {name}')\n    {body}\n"
        for name, body in BODIES.items()
    )
    (tmp_path / f"{module}.py").write_text(functions)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def run(body, *, total=30.0, stall=30.0):
        events = []
        assignment = Assignment(
            stage="toy",
            entry=f"{module}:{body}",
            config=StageConfig(),
            inputs={},
            outputs={"report": tmp_path / "report.json"},
            types={"report": ArtifactKind.REPORT},
            scratch=tmp_path / "scratch",
            log=tmp_path / "toy.log",
            seed=7,
            threads=1,
            device="cpu",
        )
        return processes.attempt(assignment, Limits(total, stall), events.append), events

    run.folder = tmp_path
    return run


def test_success_brings_metrics_events_and_a_log(attempt):
    outcome, events = attempt("good")
    assert outcome.ok
    assert outcome.metrics == {"score": 3.0}
    assert [event["kind"] for event in events] == ["metrics", "progress"]
    assert "body of good" in (attempt.folder / "toy.log").read_text()


def test_an_output_that_was_not_written_is_refused(attempt):
    outcome, _ = attempt("silent")
    assert outcome.refused
    assert outcome.error == (
        "stage 'toy', output 'report' was not written; the task must create report.json"
    )


def test_an_exception_names_itself_and_the_log_has_the_trace(attempt):
    outcome, _ = attempt("broken")
    assert (outcome.ok, outcome.retryable, outcome.refused) == (False, False, False)
    assert outcome.error.startswith("RuntimeError: the reason; log: ")
    assert "Traceback" in (attempt.folder / "toy.log").read_text()


def test_a_user_error_is_passed_on_word_for_word(attempt):
    outcome, _ = attempt("refusing")
    assert (outcome.refused, outcome.error) == (True, "give me rows")


def test_a_killed_process_is_retryable_and_says_by_what(attempt):
    outcome, _ = attempt("killed")
    assert outcome.retryable
    assert "killed by SIGKILL" in outcome.error


def test_a_stage_that_overruns_is_stopped(attempt):
    began = time.monotonic()
    outcome, _ = attempt("sleepy", total=1.0)
    assert outcome.retryable
    assert "run.timeout_minutes" in outcome.error
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_a_stage_without_progress_is_stopped_although_its_heart_beats(attempt):
    outcome, _ = attempt("sleepy", stall=2.5)
    assert "run.stall_minutes" in outcome.error


def test_a_full_disk_is_one_sentence(attempt):
    outcome, _ = attempt("full")
    assert outcome.refused
    assert "no space left on the disk" in outcome.error


def test_memory_that_is_not_there_is_one_sentence_with_what_to_lower(attempt):
    outcome, _ = attempt("huge")
    assert outcome.refused
    assert outcome.error.startswith(
        "stage 'toy': 4,000 TB could not be had on cpu; lower its batch"
    )


def test_the_same_seed_gives_the_same_numbers_in_every_process(attempt):
    attempt("seeded")
    first = (attempt.folder / "report.json").read_text()
    attempt("seeded")
    assert (attempt.folder / "report.json").read_text() == first


@pytest.mark.slow
def test_a_stopped_process_is_gone(attempt):
    _, events = attempt("sleepy", total=1.0)
    (logged,) = [event["metrics"]["pid"] for event in events if event["kind"] == "metrics"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(logged), 0)
