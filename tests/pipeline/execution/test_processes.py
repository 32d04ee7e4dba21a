"""The process that waits for the next stage: forked ahead, replaced when lost, never orphaned."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from posttrain.pipeline.execution.processes import Workers, _environment_with, _preloads


@pytest.fixture
def workers():
    made = Workers(threads=1)
    yield made
    made.close()


def until(condition):
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)
    return found


def test_the_next_worker_is_forked_while_this_one_works(workers):
    first = workers.take()
    ahead = until(lambda: workers._spare)
    assert ahead.process.pid != first.process.pid
    assert workers.take() is ahead
    for worker in (first, ahead):
        worker.end(patient=True)


def test_what_libraries_of_stages_are_told_stays_out_of_this_process(workers):
    before = dict(os.environ)
    worker = workers.take()
    assert dict(os.environ) == before
    told = psutil.Process(worker.process.pid).parent().environ()
    assert told["ATEN_CPU_CAPABILITY"] == "avx2"
    worker.end(patient=True)


def test_what_is_lent_goes_back_to_what_it_was(monkeypatch):
    monkeypatch.setenv("POSTTRAIN_OWN", "mine")

    def inherited():
        code = "import os; print(os.environ.get('POSTTRAIN_OWN'), os.environ.get('POSTTRAIN_LENT'))"
        return subprocess.check_output([sys.executable, "-c", code], text=True)

    before = dict(os.environ)
    with _environment_with({"POSTTRAIN_OWN": "lent", "POSTTRAIN_LENT": "lent"}):
        assert inherited() == "lent lent\n"
        # Prefect goes through these while it is imported, beside stages that begin.
        assert dict(os.environ) == before
    assert inherited() == "mine None\n"


def test_one_that_was_killed_while_it_waited_is_not_given_out(workers):
    first = workers.take()
    ahead = until(lambda: workers._spare)
    os.kill(ahead.process.pid, signal.SIGKILL)
    ahead.process.join()
    second = workers.take()
    assert second is not ahead
    assert second.process.is_alive()
    for worker in (first, second):
        worker.end(patient=True)


def test_a_fork_server_that_is_ended_with_all_else_is_no_trouble_of_the_thread_that_forks(
    workers, monkeypatch
):
    def gone():
        raise EOFError("unexpected EOF")

    told = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    workers.warm()
    monkeypatch.setattr(workers, "_fork", gone)
    workers._replenish()
    with pytest.raises(EOFError):
        workers.take()
    for thread in [each for each in threading.enumerate() if each.name == "fork"]:
        thread.join()
    assert told == []


def test_a_small_one_may_leave_meanwhile_and_a_large_one_is_waited_for(workers):
    small, large = workers.take(), workers.take()
    workers.dismiss(small, num_bytes=1)
    assert small.process.is_alive()
    workers.dismiss(large, num_bytes=1 << 40)
    assert large.process.exitcode == 0
    until(lambda: workers._spare)
    workers.close()
    assert small.process.exitcode == 0
    assert workers._spare is None


@pytest.mark.slow
def test_nobody_waits_for_an_executor_that_was_killed(tmp_path):
    script = tmp_path / "executor.py"
    script.write_text(
        textwrap.dedent("""
        import time
        from posttrain.pipeline.execution.processes import Workers
        if __name__ == "__main__":
            workers = Workers(threads=1)
            worker = workers.take()
            while workers._spare is None:
                time.sleep(0.01)
            print(worker.process.pid, workers._spare.process.pid, flush=True)
            time.sleep(60)
        """)
    )
    executor = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert executor.stdout is not None
    waiting = [int(pid) for pid in executor.stdout.readline().split()]
    assert len(waiting) == 2
    executor.kill()
    executor.wait()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in waiting))  # noqa: PTH110


@pytest.mark.parametrize(
    ("packages", "last"),
    [
        (None, "preload_models"),
        ({"numpy", "transformers"}, "preload_models"),
        ({"numpy", "nobody_knows"}, "preload_torch"),
        ({"numpy", "polars"}, "preload"),
        (set(), "preload"),
    ],
)
def test_only_what_cannot_import_torch_goes_without_it(packages, last):
    assert _preloads(packages)[-1].rpartition(".")[2] == last
