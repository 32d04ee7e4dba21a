import numpy as np
import pytest
import torch

from posttrain.learning.models import memory
from posttrain.learning.models.adapters import attach_adapter
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.load import load_policy, save_policy
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.stage.errors import UserError


@pytest.fixture
def saved(model, tokenizer, tmp_path):
    save_policy(model, tokenizer, tmp_path / "policy")
    return tmp_path / "policy"


def test_parameters_are_counted_from_the_headers(saved, model):
    # Tied weights are stored once, and `parameters` yields them once.
    assert memory.num_stored_parameters(saved) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_just_fits_is_loaded_and_a_byte_less_is_refused(saved, monkeypatch, dtype):
    needed = memory.num_stored_parameters(saved) * dtype.itemsize
    monkeypatch.setattr(memory, "free_memory", lambda _device: needed)
    memory.check_memory(saved, device="cpu", dtype=dtype)
    monkeypatch.setattr(memory, "free_memory", lambda _device: needed - 1)
    with pytest.raises(UserError, match="its weights take .* are free on cpu; take a smaller"):
        memory.check_memory(saved, device="cpu", dtype=dtype)


# All of AdamW's, by hand: a gradient and two moments of four bytes each. Muon has one moment for
# the matrices of the layers, and AdamW two for the rest.
@pytest.mark.parametrize(("kind", "per_matrix"), [("adamw", 12), ("muon", 8)])
def test_training_that_just_fits_is_begun_and_a_byte_less_is_refused(
    model, monkeypatch, kind, per_matrix
):
    named = dict(model.named_parameters())
    matrices = sum(p.numel() for name, p in named.items() if p.ndim == 2 and "layers" in name)
    rest = sum(p.numel() for p in named.values()) - matrices
    needed = per_matrix * matrices + 12 * rest
    optimizer = build_optimizer(model, OptimizationConfig(optimizer=kind))
    monkeypatch.setattr(memory, "free_memory", lambda _device: needed)
    memory.check_training_memory(optimizer, device="cpu")
    monkeypatch.setattr(memory, "free_memory", lambda _device: needed - 1)
    with pytest.raises(UserError, match=r"training [\d,]+ parameters takes at least .*lora"):
        memory.check_training_memory(optimizer, device="cpu")


def test_an_adapter_needs_less(model, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda _device: 20_000)
    with pytest.raises(UserError, match="are free on cpu; train an adapter"):
        memory.check_training_memory(build_optimizer(model), device="cpu")
    attach_adapter(model, rank=1, alpha=1)
    memory.check_training_memory(build_optimizer(model), device="cpu")


def test_loading_asks_first(saved, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda _device: 1000)
    with pytest.raises(UserError, match=r"but 1 kB are free on cpu; take a smaller model"):
        load_policy(saved)


def test_this_machine_has_some_memory_free():
    assert memory.free_memory("cpu") > 1 << 20


def test_on_a_gpu_what_torch_holds_and_does_not_use_is_free_too(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (100, 900))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _device: 20)
    assert memory.free_memory("cuda:0") == 130


def caught(act):
    try:
        act()
    except (RuntimeError, MemoryError) as error:
        return error
    raise AssertionError("it was had")


def test_memory_that_could_not_be_had_is_told_from_other_errors():
    huge = caught(lambda: torch.empty(10**15))
    assert memory.refused_memory(huge) == "4,000 TB"
    assert memory.refused_memory(caught(lambda: np.empty(10**15))) == "7.11 PiB"
    cuda = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")
    assert memory.refused_memory(cuda) == "20.00 GiB"
    assert memory.refused_memory(MemoryError()) == "more than there is"
    assert memory.refused_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    assert memory.refused_memory(ValueError("out of memory")) is None
