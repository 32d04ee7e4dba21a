"""Weights of two bytes, moments of one and steps within the backward pass, in shards."""

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from posttrain.learning.models import one_by_one
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.distributed.group import current_process_group
from posttrain.learning.models.optim import OF_PROCESSES, refuse_other_processes
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.sft.config import SftConfig

NARROW = {"learner": {"weights": "bf16"}, "micro_batch_tokens": 80}
KINDS = {
    "rounded_by_chance": {},
    "kahan_and_8_bits": {"rounding": "kahan", "states": "8bit"},
    "in_backward": {"in_backward": True, "max_grad_norm": None},
}


def layer():
    """Eleven rows, which two processes cannot share evenly, in pieces that end within a row."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(64, 11).to(torch.bfloat16)


def stepped(model, config, *, gradients, group=None):
    """Take steps along given gradients, of which each process has its rows."""
    optimizer = build_optimizer(model, config, seed=3, group=group)
    for step in gradients:
        for parameter, gradient in zip(model.parameters(), step, strict=True):
            if group is None:
                parameter.grad = gradient.clone()
            else:
                rows = -(-len(gradient) // 2)
                mine = gradient[group.rank * rows : (group.rank + 1) * rows].clone()
                parameter.grad = torch.empty_like(parameter)
                parameter.grad.to_local().copy_(mine)
        optimizer.step(learning_rate=1e-3, max_grad_norm=None)
    return optimizer


@pytest.mark.parametrize("rounding", ["stochastic", "kahan"])
def test_two_processes_round_as_one_does(rounding, monkeypatch):
    """Every number of a weight gets the noise that it has where all numbers are together."""
    monkeypatch.setitem(one_by_one.PIECE_ELEMENTS, "cpu", 160)
    config = OptimizationConfig(rounding=rounding, max_grad_norm=None)
    generator = torch.Generator().manual_seed(1)
    gradients = [
        [torch.randn(p.shape, generator=generator).bfloat16() for p in layer().parameters()]
        for _ in range(3)
    ]
    alone = layer()
    stepped(alone, config, gradients=gradients)
    assert not torch.equal(alone.weight, layer().weight)
    rows = []
    for rank in (0, 1):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
        try:
            shared = layer()
            fully_shard(shared, mesh=current_process_group("cpu").mesh)
            stepped(shared, config, gradients=gradients, group=current_process_group("cpu"))
            rows.append([p.to_local().detach().clone() for p in shared.parameters()])
        finally:
            dist.destroy_process_group()
    assert [len(weight) for weight, _ in rows] == [6, 5]
    for whole, parts in zip(alone.parameters(), zip(*rows, strict=True), strict=True):
        # What is stepped in float32 may differ in its last bit, and be rounded to a neighbor.
        different = (whole != torch.cat(parts)).sum()
        assert different <= 2


def test_states_of_other_processes_are_refused():
    with pytest.raises(UserError) as caught:
        refuse_other_processes({OF_PROCESSES: [7, 8]}, 3)
    assert str(caught.value) == (
        "the checkpoint has the optimizer's states of 2 processes as these cut them (bfloat16"
        " weights, 8-bit states or in_backward), and this stage has 3; set resources.processes to"
        " 2, or remove the checkpoint"
    )
    with pytest.raises(UserError, match="states of 1 processes"):
        refuse_other_processes({}, 2)


BF16 = {"learner": {"weights": "bf16"}}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (SftConfig(**BF16, optimization={"states": "8bit"}), None),
        (SftConfig(optimization={"in_backward": True, "max_grad_norm": None}), None),
        (SftConfig(optimization={"optimizer": "muon"}), None),
        (
            SftConfig(**BF16, optimization={"optimizer": "muon"}),
            "optimization.optimizer muon steps whole matrices, and several processes have rows of"
            " bfloat16 weights each; set it to adamw, or learner.weights to fp32",
        ),
        (
            RlStageConfig(optimization={"offload": True}),
            "optimization.offload is for one process that has whole weights; of several,"
            " learner.offload keeps shards and states in host memory",
        ),
        (
            PreferenceConfig(rounds=2),
            "rounds sample in one process; set rounds to 0, or leave resources.processes out",
        ),
    ],
)
def test_a_config_says_what_processes_cannot_share(config, sentence):
    assert config.beyond_processes(2) == sentence
    assert config.beyond_processes(1) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_learn_what_one_does_and_resume_to_the_same_bytes(stages, tmp_path, kind):
    optimization = stages.steps["optimization"] | KINDS[kind]
    config = NARROW | {"optimization": optimization}
    one, two = (
        stages.run("sft", tmp_path / str(number), processes=number, config=config)
        for number in (1, 2)
    )
    assert (one.outcome.error, two.outcome.error) == (None, None)
    mine, other = one.curve(), two.curve()
    assert mine.keys() == other.keys()
    last = max(step for step, _ in mine)
    assert mine[last, "sft/loss"] < mine[1, "sft/loss"] - 0.2
    # Gradients of bfloat16 are added up in another order, and blocks of 8 bits are others.
    gaps = [abs(mine[key] - other[key]) for key in mine if key[1] == "sft/loss"]
    assert max(gaps) < 0.01
    seen = {}

    def watch(event):
        if event["kind"] == "progress" and event["done"] == 5 and not seen:
            seen.update(stages.ranks())
            seen[1].kill()

    cut = tmp_path / "cut"
    assert stages.run("sft", cut, config=config, watch=watch).outcome.retryable
    _, alive = psutil.wait_procs(seen.values(), timeout=10)
    assert not alive
    again = stages.run("sft", cut, config=config)
    assert any(note.startswith("resuming after step") for note in again.notes())
    assert again.digests() == two.digests()
