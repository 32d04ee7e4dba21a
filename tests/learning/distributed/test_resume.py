"""Killed ranks leave nothing behind, resumed runs end as if nothing had happened."""

import random
import threading

import psutil
import pytest

from posttrain.stage.context import StageContext
from tasks.sft.config import SftConfig
from tasks.sft.stage import run

pytestmark = pytest.mark.slow
TOLERANCE = 1e-4


def killing(stages, at, chosen):
    """A watcher that kills the chosen ranks once `at` steps are done, and remembers them all."""
    seen = {}

    def watch(event):
        if event["kind"] == "progress" and event["done"] == at and not seen:
            seen.update(stages.ranks())
            for rank in chosen(seen):
                seen[rank].kill()

    watch.seen = seen
    return watch


def gone(processes):
    """Whether all of them end within a few seconds."""
    _, alive = psutil.wait_procs(processes, timeout=10)
    return not alive


@pytest.fixture(scope="module")
def whole(stages, tmp_path_factory):
    """An uninterrupted run in two processes."""
    made = stages.run("sft", tmp_path_factory.mktemp("whole"))
    assert made.outcome.ok
    return made


def test_after_the_death_of_one_rank_running_again_gives_the_same_bytes(stages, whole, tmp_path):
    watch = killing(stages, 5, lambda _found: [0])
    killed = stages.run("sft", tmp_path, watch=watch)
    assert not killed.outcome.ok
    assert killed.outcome.retryable
    assert "rank 0 of 2 was killed by SIGKILL" in killed.outcome.error
    assert "ends:" in killed.outcome.error or "it wrote nothing" in killed.outcome.error
    assert sorted(watch.seen) == [0, 1]
    assert gone(watch.seen.values())
    again = stages.run("sft", tmp_path)
    assert again.outcome.ok
    assert any(note.startswith("resuming after step") for note in again.notes())
    assert again.digests() == whole.digests()


def test_after_the_death_of_the_launcher_too(stages, whole, tmp_path):
    def their_parent(found):
        found[0].parent().kill()
        return []

    watch = killing(stages, 6, their_parent)
    killed = stages.run("sft", tmp_path, watch=watch)
    assert killed.outcome.retryable
    # What it watches over ends with it.
    assert gone(watch.seen.values())
    assert stages.run("sft", tmp_path).digests() == whole.digests()


def test_shards_in_host_memory_learn_the_same_bits(stages, whole, tmp_path):
    made = stages.run("sft", tmp_path, config={"learner": {"offload": True}})
    assert made.outcome.error is None
    assert made.digests() == whole.digests()


def test_kills_at_random_instants_leave_no_trace(stages, whole, tmp_path):
    """Most of the time a checkpoint is being written: one is due at every second step."""
    chance, kills = random.Random("kills of two"), []

    def attempt(at, rank, delay):
        def watch(event):
            if event["kind"] == "progress" and event["done"] >= at and len(kills) < count:
                kills.append(rank)
                threading.Timer(delay, stages.ranks()[rank].kill).start()

        return stages.run("sft", tmp_path, watch=watch)

    for count in (1, 2, 3):
        made = attempt(1 + 2 * count, count % 2, chance.uniform(0.0, 0.05))
        assert not made.outcome.ok
    assert stages.run("sft", tmp_path).digests() == whole.digests()
    drafts = list((tmp_path / "scratch" / "checkpoints").glob("draft-*"))
    assert len(drafts) <= 1  # what a kill has cut


class Killed(BaseException):
    """Stands for a kill of the only process."""


def half_alone(stages, folder):
    """The first steps of the stage in this process, up to a checkpoint and a little further."""

    def stop(event):
        if event["kind"] == "progress" and event["done"] == 7:
            raise Killed

    config = SftConfig.parse(stages.steps, where="sft")
    inputs = {port: stages.inputs[port] for port in ("policy", "traces")}
    scratch = folder / "scratch"
    context = StageContext(seed=3, threads=1, device="cpu", scratch=scratch, emit=stop)
    with pytest.raises(Killed):
        run(config, inputs, {"policy": folder / "policy"}, context)


def goes_on(stages, whole, folder, *, processes):
    """Assert that a run in so many processes resumes, and has the curve of a whole one."""
    made = stages.run("sft", folder, processes=processes)
    assert made.outcome.ok
    assert any(note.startswith("resuming after step") for note in made.notes())
    expected, found = whole.curve(), made.curve()
    assert found.keys() == expected.keys()
    assert max(abs(found[key] - expected[key]) for key in found) < TOLERANCE


def test_two_processes_go_on_from_the_checkpoint_of_one(stages, whole, tmp_path):
    half_alone(stages, tmp_path)
    goes_on(stages, whole, tmp_path, processes=2)


def test_one_process_goes_on_from_the_checkpoint_of_two(stages, whole, tmp_path):
    watch = killing(stages, 7, lambda found: found)
    stages.run("sft", tmp_path, watch=watch)
    assert gone(watch.seen.values())
    goes_on(stages, whole, tmp_path, processes=1)
