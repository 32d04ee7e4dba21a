"""Steps of one weight tensor after the other: the same bits, fewer bytes, exact states."""

import io
import math

import pytest
import torch
from torch import nn

from posttrain.learning.models import one_by_one
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.narrow import narrow_weights
from posttrain.learning.models.optim import NotFiniteError
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.rl.updates_config import RlOptimization
from posttrain.stage.errors import UserError
from posttrain.stage.identity import identity

RATE = 0.003


def config(**options):
    return OptimizationConfig.parse({"weight_decay": 0.1, **options}, where="sft.optimization")


def loss_of(model, seed):
    ids = torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(seed))
    logits = model(input_ids=ids).logits[:, :-1].float()
    return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train(model, optimizer, seeds, limit=1.0):
    norms = []
    for seed in seeds:
        optimizer.begin(RATE)
        for number in range(2):
            optimizer.backward(loss_of(model, 2 * seed + number) / 2, last=number == 1)
        norms.append(optimizer.step(learning_rate=RATE, max_grad_norm=limit))
    return norms


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def twin(model):
    made = type(model)(model.config)
    made.load_state_dict(model.state_dict())
    return made


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_moments_in_host_memory_change_no_bit_on_a_cpu(model, kind):
    other = twin(model)
    plain = train(model, build_optimizer(model, config(optimizer=kind)), [0, 1, 2], limit=0.5)
    moved = build_optimizer(other, config(optimizer=kind, offload=True))
    if kind == "adamw":
        assert train(other, moved, [0, 1, 2], limit=0.5) == plain
        assert same(weights(model), weights(other))
        return
    # Matrices are orthogonalized in one batch or alone, which products round otherwise.
    assert train(other, moved, [0, 1, 2], limit=0.5) == pytest.approx(plain, rel=1e-3)
    for name, weight in weights(model).items():
        torch.testing.assert_close(weights(other)[name], weight, rtol=0, atol=1e-4)


def test_steps_within_the_backward_pass_are_those_after_it(model):
    other = twin(model)
    after = build_optimizer(model, config(max_grad_norm=None))
    within = build_optimizer(other, config(max_grad_norm=None, in_backward=True))
    norms = train(model, after, [0, 1, 2], limit=None)
    assert train(other, within, [0, 1, 2], limit=None) == pytest.approx(norms, rel=1e-6)
    assert same(weights(model), weights(other))


def test_within_the_backward_pass_no_two_gradients_stand_beside_each_other(model):
    optimizer = build_optimizer(model, config(max_grad_norm=None, in_backward=True))
    standing = []
    for parameter in model.parameters():
        # Registered behind the optimizer's own, so each looks after its parameter was stepped.
        parameter.register_post_accumulate_grad_hook(
            lambda _: standing.append(sum(p.grad is not None for p in model.parameters()))
        )
    optimizer.begin(RATE)
    optimizer.backward(loss_of(model, 0), last=True)
    assert standing
    assert max(standing) == 0


def test_a_gradient_of_an_earlier_micro_batch_alone_is_stepped_too(model):
    optimizer = build_optimizer(model, config(max_grad_norm=None, in_backward=True))
    before = weights(model)
    optimizer.begin(RATE)
    optimizer.backward(loss_of(model, 0), last=False)
    assert same(before, weights(model))
    # The last part reaches the final norm and nothing below it.
    (model.model.norm.weight.sum() * 3).backward()
    norm = optimizer.step(learning_rate=RATE, max_grad_norm=None)
    assert norm > 0
    assert not any(torch.equal(before[name], w) for name, w in weights(model).items())
    assert all(p.grad is None for p in model.parameters())


def test_an_infinite_gradient_within_the_backward_pass_says_that_weights_moved(model):
    optimizer = build_optimizer(model, config(max_grad_norm=None, in_backward=True))
    optimizer.begin(RATE)
    optimizer.backward(loss_of(model, 0) * math.inf, last=True)
    with pytest.raises(NotFiniteError, match=r"part of the weights has moved .*untouched"):
        optimizer.step(learning_rate=RATE, max_grad_norm=None)


def test_bfloat16_weights_have_float32_moments_and_clipping(model):
    narrow_weights(model)
    optimizer = build_optimizer(model, config(rounding="nearest"))
    seen = []
    optimizer.parts["adamw"].register_step_pre_hook(
        lambda part, *_: seen.extend(p.grad.clone() for p in part.param_groups[0]["params"])
    )
    norm = train(model, optimizer, [0], limit=0.01)[0]
    assert all(p.dtype == torch.bfloat16 and p.grad is None for p in model.parameters())
    assert {each.dtype for each in seen} == {torch.float32}
    # Scaled in float32, so to the norm itself and not to one of 8 bits.
    assert norm > 0.01
    assert float(torch.stack([each.norm() for each in seen]).norm()) == pytest.approx(
        0.01, rel=1e-4
    )
    moments = optimizer.state_dict()["adamw"]["state"].values()
    assert {each["exp_avg"].dtype for each in moments} == {torch.float32}


CASES = {
    "stochastic": {},
    "kahan": {"rounding": "kahan"},
    "nearest, muon": {"rounding": "nearest", "optimizer": "muon"},
    "8bit": {"states": "8bit"},
    "8bit, within, host": {
        "states": "8bit",
        "in_backward": True,
        "offload": True,
        "max_grad_norm": None,
    },
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_a_state_through_a_file_goes_on_bit_for_bit(model, options):
    if options.get("states") == "8bit":
        pytest.importorskip("bitsandbytes")
        with torch.no_grad():
            # Tensors of fewer numbers than 4096 keep float32 moments.
            model.resize_token_embeddings(300)
    made, limit = config(**options), options.get("max_grad_norm", 1.0)
    narrow_weights(model)
    optimizer = build_optimizer(model, made, seed=7)
    train(model, optimizer, [0, 1], limit)
    file = io.BytesIO()
    torch.save([optimizer.state_dict(), weights(model)], file)
    train(model, optimizer, [2, 3], limit)
    expected = weights(model)

    file.seek(0)
    state, middle = torch.load(file, weights_only=True)
    other = twin(model)
    narrow_weights(other)
    other.load_state_dict(middle, strict=False)
    fresh = build_optimizer(other, made, seed=7)
    fresh.load_state_dict(state)
    train(other, fresh, [2, 3], limit)
    assert same(weights(other), expected)
    assert not same(middle, expected)


def test_states_of_8_bits_take_2_bytes_a_number():
    pytest.importorskip("bitsandbytes")
    layer = nn.Linear(256, 256, bias=False)
    optimizer = build_optimizer(layer, config(states="8bit"))
    layer(torch.ones(1, 256)).sum().backward()
    optimizer.step(learning_rate=RATE, max_grad_norm=1.0)
    state = next(iter(optimizer.parts["adamw_8bit"].state.values()))
    moments = [state["state1"], state["state2"]]
    assert sum(each.numel() * each.element_size() for each in moments) == 2 * 256 * 256
    # One scale of four bytes for 256 numbers, in each of the two moments.
    assert state["absmax1"].numel() == 256


def test_without_the_package_the_line_that_installs_it_is_said(model, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    with pytest.raises(UserError, match=r"needs bitsandbytes.*pip install 'posttrain\[quantized\]"):
        build_optimizer(model, config(states="8bit"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"optimizer": "muon", "states": "8bit"}, "states 8bit is not for optimizer muon"),
        (
            {"optimizer": "muon", "in_backward": True, "max_grad_norm": None},
            "in_backward steps each weight before",
        ),
        ({"in_backward": True}, "max_grad_norm 1.0 cannot be held; set max_grad_norm to null"),
    ],
)
def test_what_does_not_go_together_is_refused(options, told):
    with pytest.raises(UserError, match=told):
        config(**options)


def test_an_optimizer_without_settings_is_spelled_by_its_kind():
    assert config(optimizer="muon").model_dump(mode="json")["optimizer"] == "muon"
    assert OptimizationConfig.model_validate({"optimizer": "muon"}).optimizer.kind == "muon"


def test_a_method_is_called_as_it_was_when_optimizers_were_words():
    assert identity(RlOptimization(optimizer="adamw")) == {"optimizer": "adamw"}
    assert identity(RlOptimization()) == {}
    # How moments are held is no part of what a method is; what weights become after a step is.
    held = OptimizationConfig(states="8bit", rounding="kahan", offload=True)
    assert identity(held) == {"rounding": "kahan"}


@pytest.mark.parametrize("options", [{}, {"states": "8bit"}], ids=["float32", "8bit"])
def test_pieces_of_a_large_weight_are_stepped_as_the_whole(options, monkeypatch):
    def ended(elements):
        monkeypatch.setitem(one_by_one.PIECE_ELEMENTS, "cpu", elements)
        torch.manual_seed(0)
        layer = nn.Linear(256, 100).bfloat16()
        # To the nearest: noise goes by the piece.
        optimizer = build_optimizer(layer, config(rounding="nearest", offload=True, **options))
        for _ in range(2):
            layer(torch.ones(1, 256).bfloat16()).float().square().sum().backward()
            optimizer.step(learning_rate=0.01, max_grad_norm=1.0)
        return weights(layer), sum(map(len, optimizer.members.values())), optimizer

    if options:
        pytest.importorskip("bitsandbytes")
    whole, num_parameters, _ = ended(1 << 22)
    cut, same_number, optimizer = ended(8192)
    # 25,600 numbers: two pieces of 8,192, and a last one that has the rest.
    assert [len(group["params"]) for group in optimizer.parts.popitem()[1].param_groups] == [3, 1]
    assert num_parameters == same_number == 2
    assert same(whole, cut)
