"""Actors draw what one process draws, bit for bit, also where one of them is lost."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from posttrain.backends.cluster.worker_pool import WorkerPool
from posttrain.learning.models.weight_bytes import read_weights
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.learning.rollouts.engines.ray_engine import RayRolloutEngine, RolloutWorker
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.stage.errors import UserError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
PARAMS = SamplingParams(max_tokens=24, num_samples=3, seed=5)
ROWS = 9
"""Three prompts a piece, so that 13 prompts are five pieces of unequal size."""


def in_one_process(policy, prompts, *, version=0):
    engine = TorchRolloutEngine(
        policy.model, policy.tokenizer, batch_size=ROWS, policy_version=version
    )
    return engine.sample(prompts, PARAMS)


def read_copy(model):
    return {name: array.copy() for name, array in read_weights(model).items()}


class Mortal(RolloutWorker):
    """Dies in the middle of a batch, the first of all actors that gets as far as this."""

    def __init__(self, marker, *arguments):
        super().__init__(*arguments)
        self.marker = Path(marker)

    def do(self, piece):
        if len(piece[0][0].token_ids) >= 7 and self.is_first():
            steps = iter(range(4))
            decode = self._engine._texts
            params = SamplingParams(max_tokens=24, num_samples=3, seed=5, stop=("never",))

            def dying(rows):
                if next(steps, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return decode(rows)

            # Stop strings are looked for at every step: the fifth is the last of this process.
            self._engine._texts = dying
            self._engine.sample(piece[0], params)
        return super().do(piece)

    def is_first(self):
        """One actor alone makes the file, however many ask for it at the same moment."""
        try:
            with self.marker.open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True


def mortal_crew(cluster, resources, policy, marker):
    return WorkerPool(cluster, resources, Mortal, str(marker), TorchEngine(), policy, "cpu", ROWS)


def test_new_weights_reach_every_actor_and_are_stored_once(
    cluster, some, policy, other, prompts, monkeypatch
):
    expected = in_one_process(other, prompts, version=7)
    assert [s.token_ids for s in expected] != [s.token_ids for s in in_one_process(policy, prompts)]
    resources = some(2, rows=ROWS)
    with open_engine(TorchEngine(), policy, batch_size=512, ray=resources) as engine:
        assert len({*engine.workers.pids, os.getpid()}) == 3
        assert {psutil.Process(pid).nice() for pid in engine.workers.pids} == {os.nice(0)}
        assert engine.sample(prompts, PARAMS) == in_one_process(policy, prompts)
        with pytest.raises(UserError, match="prompt 'long' has 64 tokens"):
            engine.sample([Prompt("long", (3,) * 64)], PARAMS)
        assert engine.sample([], PARAMS) == []

        old = read_copy(policy.model)
        policy.model.load_state_dict(other.model.state_dict())
        stored, put = [], cluster.put
        monkeypatch.setattr(cluster, "put", lambda value: stored.append(value) or put(value))
        engine.update(7)
        assert len(stored) == 1
        # The tied output head is the embedding: it travels once.
        assert sum(a.nbytes for a in stored[0].values()) == 4 * policy.model.num_parameters()
        assert engine.sample(prompts, PARAMS) == expected

        # One that has others fetches these before it draws.
        late = engine.workers._actors[0]
        *_, stale = cluster.get(late.do.remote(6, [put(old)], 0, (prompts[:1], PARAMS)))
        assert stale != expected[: len(stale)]
        assert {sample.policy_version for sample in stale} == {6}
        assert engine.sample(prompts, PARAMS) == expected


def test_an_actor_that_dies_in_the_middle_of_a_batch_changes_nothing(
    cluster, some, policy, prompts, tmp_path
):
    expected = in_one_process(policy, prompts, version=3)
    crew = mortal_crew(cluster, some(2), policy, tmp_path / "died")
    first = list(crew.pids)
    engine = RayRolloutEngine(
        policy.model, policy.tokenizer, crew, batch_size=ROWS, policy_version=3
    )
    assert engine.sample(prompts, PARAMS) == expected
    assert int((tmp_path / "died").read_text()) in first
    assert crew.num_lost == 1
    assert len(set(crew.pids) & set(first)) == 1
    crew.close()


def test_gpus_for_a_policy_on_the_cpu_are_refused(cluster, some, policy):
    with (
        pytest.raises(UserError, match="the stage computes on cpu, but gpus is 1"),
        open_engine(TorchEngine(), policy, ray=some(1, gpus=1)),
    ):
        pass
