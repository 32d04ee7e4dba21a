"""Sleep and wake without a GPU: an engine that only notes what it is told, and in which order."""

import os
from dataclasses import make_dataclass
from types import SimpleNamespace

import pytest
import torch

from posttrain.learning.rollouts.engines import vllm_engine
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.engines.kinds.vllm import VllmEngine
from posttrain.learning.rollouts.engines.vllm_choice import ROW
from posttrain.stage.errors import UserError


class Engine:
    """What `VllmRolloutEngine` uses of `vllm.LLM`. It has no memory while it sleeps."""

    def __init__(self, _model, **options):
        self.options, self.told, self.asleep = options, [], False
        core = SimpleNamespace(shutdown=lambda: self.told.append("shutdown"))
        self.llm_engine = SimpleNamespace(engine_core=core)
        self.choice = options["logits_processors"][0]

    def apply_model(self, function):
        return [function(torch.nn.Linear(1, 1))]

    def collective_rpc(self, name, kwargs):
        assert not self.asleep
        self.told.append((name, len(list(kwargs["weights_iterator"])) > 0))

    def reset_prefix_cache(self):
        assert not self.asleep

    def sleep(self, level):
        assert not self.asleep
        self.asleep = True
        self.told.append(f"sleep {level}")

    def wake_up(self):
        assert self.asleep
        self.asleep = False
        self.told.append("wake")

    def generate(self, prompts, params, **_options):
        assert not self.asleep
        self.told.append(f"generate {len(prompts)}")
        for each in params:
            self.choice.draws.logprobs[each.extra_args[ROW]].append(-1.0)
        ended = SimpleNamespace(token_ids=[2], finish_reason="stop")
        return [SimpleNamespace(outputs=[ended]) for _ in prompts]


@pytest.fixture
def opened(monkeypatch, models, tokenizer):
    options = make_dataclass("EngineArgs", [])
    package = SimpleNamespace(LLM=Engine, SamplingParams=SimpleNamespace, EngineArgs=options)
    monkeypatch.setattr(vllm_engine, "import_vllm", lambda _device: package)
    monkeypatch.setattr(vllm_engine, "choice_class", lambda: type("Choice", (), {}))
    monkeypatch.setattr(vllm_engine, "_check_engine", lambda *_: None)
    monkeypatch.setattr(vllm_engine, "_capability", lambda _device: (9, 0))

    def open_one(**options):
        return vllm_engine.VllmRolloutEngine(models["llama"], tokenizer, VllmEngine(**options))

    return open_one


def test_kernels_of_a_gpu_are_refused_on_a_cpu(models, tokenizer):
    asked = VllmEngine(batch_invariant=True)
    with pytest.raises(UserError, match="engine.batch_invariant takes kernels for GPUs"):
        vllm_engine.VllmRolloutEngine(models["llama"], tokenizer, asked)


def test_they_are_off_unless_asked_for(opened, monkeypatch):
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    opened()
    assert os.environ["VLLM_BATCH_INVARIANT"] == "0"
    opened(batch_invariant=True)
    assert os.environ["VLLM_BATCH_INVARIANT"] == "1"
    assert "batch_invariant" not in VllmEngine().keyed()
    assert VllmEngine(batch_invariant=True).keyed()["batch_invariant"] is True


@pytest.mark.parametrize(
    ("capability", "refused"),
    [
        (None, "takes kernels for GPUs, and this policy is on the CPU"),
        ((8, 6), "takes a GPU of compute capability 9.0, and this one has 8.6, for which vLLM"),
        ((9, 0), None),
        ((10, 0), None),
    ],
)
def test_batch_invariance_asks_for_a_gpu_on_which_the_trainer_keeps_its_gradients(
    capability, refused
):
    said = VllmEngine(batch_invariant=True).beyond_device(lambda: capability)
    assert said is None if refused is None else f"engine.batch_invariant {refused}" in said


def test_a_device_is_looked_at_only_where_a_value_hangs_on_it():
    """As looking imports torch, which a plan has no time for."""
    assert VllmEngine().beyond_device(lambda: pytest.fail("looked")) is None
    assert VllmEngine(sleep=True).beyond_device(lambda: (7, 5)) is None


UPDATE = ("reload_weights", True)


def test_it_sleeps_after_each_call_and_wakes_for_an_update_or_the_next(opened, prompts):
    rollout_engine = opened(sleep=True)
    engine = rollout_engine._engine
    assert engine.options["enable_sleep_mode"] is True
    params = SamplingParams(max_tokens=1, num_samples=2)
    rollout_engine.sample(prompts[:2], params)
    rollout_engine.sample(prompts[:1], params)
    rollout_engine.update(1)
    rollout_engine.update(2)
    (first, _) = rollout_engine.sample(prompts[:1], params)
    assert first.policy_version == 2
    rollout_engine.close()
    assert engine.told == [
        UPDATE,
        *("generate 4", "sleep 1"),
        *("wake", "generate 2", "sleep 1"),
        *("wake", UPDATE, UPDATE, "generate 2", "sleep 1"),
        "shutdown",
    ]


def test_it_never_sleeps_unless_it_is_asked_to(opened, prompts):
    rollout_engine = opened()
    rollout_engine.sample(prompts[:1], SamplingParams(max_tokens=1))
    rollout_engine.update(1)
    rollout_engine.sample(prompts[:1], SamplingParams(max_tokens=1))
    assert rollout_engine._engine.options["enable_sleep_mode"] is False
    assert rollout_engine._engine.told == [UPDATE, "generate 1", UPDATE, "generate 1"]


def test_no_prompts_do_not_wake_it(opened, prompts):
    rollout_engine = opened(sleep=True)
    rollout_engine.sample(prompts[:1], SamplingParams(max_tokens=1))
    told = list(rollout_engine._engine.told)
    assert rollout_engine.sample([], SamplingParams(max_tokens=1)) == []
    assert rollout_engine._engine.told == told
