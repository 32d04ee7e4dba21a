import pytest
import torch

from posttrain.errors import UserError
from posttrain.models import memory
from posttrain.models.load import load_policy, save_policy


@pytest.fixture
def saved(model, tokenizer, tmp_path):
    save_policy(model, tokenizer, tmp_path / "policy")
    return tmp_path / "policy"


def test_parameters_are_counted_from_the_headers(saved, model):
    # Tied weights are stored once, and `parameters` yields them once.
    assert memory.num_stored_parameters(saved) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("purpose", "copies"), [("inference", 1), ("training", 4)])
def test_what_just_fits_is_loaded_and_a_byte_less_is_refused(saved, monkeypatch, purpose, copies):
    needed = memory.num_stored_parameters(saved) * 4 * copies
    check = {"device": "cpu", "dtype": torch.float32, "purpose": purpose}
    monkeypatch.setattr(memory, "free_memory", lambda _device: needed)
    memory.check_memory(saved, **check)
    monkeypatch.setattr(memory, "free_memory", lambda _device: needed - 1)
    with pytest.raises(UserError, match=rf"{purpose} takes at least .* are free on cpu; "):
        memory.check_memory(saved, **check)


def test_loading_asks_first(saved, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda _device: 1000)
    with pytest.raises(UserError, match=r"but 1 kB are free on cpu; take a smaller model"):
        load_policy(saved)


def test_this_machine_has_some_memory_free():
    assert memory.free_memory("cpu") > 1 << 20
