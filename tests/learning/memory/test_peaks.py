"""Which way peaks move, and one that was measured."""

from dataclasses import replace

import pytest
import torch

from posttrain.learning.memory.activations import BatchRows
from posttrain.learning.memory.asked import StageQuestion
from posttrain.learning.memory.learner import Learner, LoraShape
from posttrain.learning.memory.peak import peak_of
from posttrain.learning.memory.shapes import shapes_of
from posttrain.learning.memory.stages import TASKS
from posttrain.learning.memory.training import Batch, training_moments
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.prepare import prepare_for_training
from tasks.sft.config import SftConfig

ROWS = BatchRows(4, 32, 124)


def peak(shapes, learner, rows=ROWS, **batch):
    return peak_of(training_moments(shapes, learner, Batch(rows, **batch))).total


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_more_takes_more(shapes, device, precision):
    learner = Learner(device=device, precision=precision)
    before = peak(shapes, learner)
    assert peak(shapes, learner, BatchRows(5, 32, 155)) > before
    assert peak(shapes, learner, BatchRows(4, 33, 128)) > before
    assert peak(shapes, learner, accumulates=True) > before
    assert peak(shapes, learner, with_entropy=True) >= before
    assert peak(shapes, replace(learner, averages=True)) == before + 1200
    assert peak(replace(shapes, layers=3), learner) > before


@pytest.mark.parametrize(
    "less",
    [
        {"lora": LoraShape(1)},
        {"recomputes": True},
        {"states": "8bit"},
        {"weights": "bf16"},
        {"optimizer": "muon"},
        {"states_on_host": True},
        {"shards_on_host": True, "processes": 2},
        {"lora": LoraShape(1), "weights": "nf4"},
        {"processes": 2},
    ],
)
def test_what_saves_memory_takes_less(shapes, less):
    learner = Learner(device="cuda")
    assert peak(shapes, replace(learner, **less)) < peak(shapes, learner)


def test_a_stage_reads_its_config_and_what_is_tried(shapes):
    config = SftConfig(batch_tokens=64, max_length=16)
    asked = StageQuestion(config, shapes, device="cuda")
    whole = peak_of(TASKS["sft"](asked)).total
    assert whole == peak(shapes, asked.learner, BatchRows(4, 16, 60))
    halved = asked.changed("micro_batch_tokens", 32)
    assert peak_of(TASKS["sft"](halved)).total == peak(
        shapes, asked.learner, BatchRows(2, 16, 30), accumulates=True
    )
    # Two processes take two of the rows each.
    shared = asked.changed("resources.processes", 2)
    moments = TASKS["sft"](shared)
    assert peak(shapes, shared.learner, BatchRows(2, 16, 30)) in [each.total for each in moments]


@pytest.mark.parametrize(
    "learner",
    [
        LearnerConfig(),
        LearnerConfig(precision="bf16", activation_checkpointing=True),
    ],
    ids=["plain", "bf16 recomputed"],
)
def test_a_measured_peak(learner):
    """Within 5% of what torch's allocator handed out; masks and positions are not counted."""
    from torch.profiler import ProfilerActivity, profile
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    ids_BT = torch.randint(5, 512, (4, 128))
    wanted_BT = torch.ones_like(ids_BT, dtype=torch.bool)
    wanted_BT[:, 0] = False
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        trainable = prepare_for_training(Qwen2ForCausalLM(config), learner, seed=0)
        optimizer = build_optimizer(trainable.model)
        trainable.model.train()
        for _ in range(2):
            with trainable.computing():
                logprobs_N, _ = wanted_logprobs(trainable.model, ids_BT, wanted_BT=wanted_BT)
                loss = -logprobs_N.mean()
            loss.backward()
            del logprobs_N, loss
            optimizer.step(learning_rate=1e-4, max_grad_norm=1.0)
    events = profiler.profiler.kineto_results.events()
    moves = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held, measured = 0, 0
    for _, moved in moves:
        held += moved
        measured = max(measured, held)

    shapes = shapes_of(config)
    asked = StageQuestion(SftConfig(learner=learner), shapes)
    counted = peak(shapes, asked.learner, BatchRows(4, 128, 4 * 127))
    assert counted == pytest.approx(measured, rel=0.05)
