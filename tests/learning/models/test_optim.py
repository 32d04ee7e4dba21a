import copy
import math

import pytest
import torch
from torch import nn

from posttrain.learning.models.adapters import attach_adapter
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.muon import BatchedMuon
from posttrain.learning.models.optimization import (
    LR_SCHEDULES,
    OptimizationConfig,
    learning_rate_factor,
)
from posttrain.stage.errors import UserError


def factors(schedule, num_steps=10, **options):
    return [
        learning_rate_factor(step, num_steps=num_steps, lr_schedule=schedule, **options)
        for step in range(num_steps)
    ]


def test_warm_up_rises_linearly_and_then_each_schedule_has_its_shape():
    # Three warm-up steps: 1/4, 2/4, 3/4 of the peak; the peak itself comes next.
    for schedule in LR_SCHEDULES:
        assert factors(schedule, warmup_steps=3)[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert factors("constant") == [1.0] * 10
    assert factors("linear") == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    assert factors("cosine")[5] == pytest.approx(0.5)
    # The last 4 of 10 steps fall: 4/10 left over 0.4 is 1, then 3/4, 2/4, 1/4.
    assert factors("constant_then_decay", decay_fraction=0.4) == pytest.approx(
        [1.0] * 7 + [0.75, 0.5, 0.25]
    )


def test_factors_are_always_positive_and_never_above_one():
    for schedule in LR_SCHEDULES:
        for num_steps in (1, 2, 7):
            for warmup in (0, 3, 20):
                values = factors(schedule, num_steps, warmup_steps=warmup)
                assert all(0 < value <= 1 for value in values)


@pytest.mark.parametrize("rounds", [True, False])
def test_batched_muon_is_torch_muon(monkeypatch, rounds):
    # Torch's iterates in bfloat16, whose numbers are 2^-8 apart; ours on a CPU in float32.
    if not rounds:
        monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)
    torch.manual_seed(0)
    shapes = [(8, 8), (16, 8), (8, 16), (8, 8), (4, 8)]
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    batched = BatchedMuon(ours, learning_rate=0.01, weight_decay=0.1)
    reference = torch.optim.Muon(theirs, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        batched.step()
        reference.step()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=2e-3 if rounds else 2e-7)
    reference.load_state_dict(batched.state_dict())


@pytest.mark.parametrize("limit", [0.5, 4.0, 1e9])
def test_clipping_is_torch_clipping_bit_for_bit(model, limit):
    torch.manual_seed(0)
    optimizer = build_optimizer(model)
    for parameter in optimizer.parameters[1:]:
        parameter.grad = torch.randn_like(parameter)
    before = [p.grad.clone() for p in optimizer.parameters[1:]]
    found = optimizer.clip(limit)
    after = [p.grad.clone() for p in optimizer.parameters[1:]]
    for parameter, gradient in zip(optimizer.parameters[1:], before, strict=True):
        parameter.grad = gradient.clone()
    assert found == float(nn.utils.clip_grad_norm_(optimizer.parameters, limit))
    assert all(map(torch.equal, after, [p.grad for p in optimizer.parameters[1:]]))
    assert (limit > found) == all(map(torch.equal, after, before))


def test_without_a_gradient_there_is_nothing_to_clip(model):
    assert build_optimizer(model).clip(1.0) == 0.0


def test_muon_takes_the_matrices_of_the_layers_and_nothing_else(model):
    optimizer = build_optimizer(model, OptimizationConfig(optimizer="muon"))
    names = {id(p): name for name, p in model.named_parameters()}
    taken = {names[id(p)] for g in optimizer.parts["muon"].param_groups for p in g["params"]}
    assert taken == {name for name in names.values() if "proj" in name}
    rest = {names[id(p)] for g in optimizer.parts["adamw"].param_groups for p in g["params"]}
    assert taken | rest == set(names.values())
    assert not taken & rest


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_weight_decay_leaves_embeddings_and_norms_alone(model, kind):
    optimizer = build_optimizer(model, OptimizationConfig(optimizer=kind, weight_decay=0.5))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step(learning_rate=0.05, max_grad_norm=1.0)
    for name, parameter in model.named_parameters():
        # Zero gradient: only decay moves a weight, by 1 - 0.1 x 0.5 x 0.5.
        scale = 0.975 if "proj" in name else 1.0
        assert torch.allclose(parameter, before[name] * scale, atol=1e-7), name


def test_clipping_scales_the_gradient_and_reports_its_raw_norm():
    parameter = nn.Parameter(torch.zeros(2))
    module = nn.Module()
    module.register_parameter("bias", parameter)
    optimizer = build_optimizer(module)
    parameter.grad = torch.tensor([3.0, 4.0])
    seen = []
    optimizer.parts["adamw"].register_step_pre_hook(lambda *_: seen.append(parameter.grad.clone()))
    assert optimizer.step(learning_rate=1.0, max_grad_norm=1.0) == pytest.approx(5.0)
    assert torch.allclose(seen[0], torch.tensor([0.6, 0.8]), atol=1e-5)
    assert parameter.grad is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_stops_before_any_weight_moves(model, bad):
    optimizer = build_optimizer(model, OptimizationConfig(optimizer="muon"))
    before = [p.detach().clone() for p in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    model.model.norm.weight.grad[3] = bad
    with pytest.raises(UserError, match="the gradient is (nan|inf), so training stopped"):
        optimizer.step(learning_rate=1.0, max_grad_norm=1.0)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, old)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_state_carries_over_exactly(model, kind):
    def steps(optimizer, seeds):
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            for parameter in optimizer.parameters:
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimizer.step(learning_rate=0.003, max_grad_norm=1.0)

    optimizer = build_optimizer(model, OptimizationConfig(optimizer=kind, weight_decay=0.1))
    steps(optimizer, [0, 1])
    state, middle = optimizer.state_dict(), {k: v.clone() for k, v in model.state_dict().items()}
    state = copy.deepcopy(state)
    steps(optimizer, [2, 3])
    expected = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(middle)
    fresh = build_optimizer(model, OptimizationConfig(optimizer=kind, weight_decay=0.1))
    fresh.load_state_dict(state)
    steps(fresh, [2, 3])
    for name, value in model.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_muon_trains_adapters_alone(model):
    """All trained weights are matrices then, so that AdamW has none to take."""
    attach_adapter(model, rank=2, alpha=4, dropout=0.0, targets=(), seed=0)
    optimizer = build_optimizer(model, OptimizationConfig(optimizer="muon"))
    assert list(optimizer.parts) == ["muon"]
    before = [p.detach().clone() for p in optimizer.parameters]
    for parameter in optimizer.parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step(learning_rate=0.1, max_grad_norm=1.0)
    assert not any(map(torch.equal, before, optimizer.parameters))
