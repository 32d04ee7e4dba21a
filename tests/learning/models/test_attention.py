import pytest
import torch

from posttrain.learning.models import attention
from posttrain.learning.models.attention import set_attention
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.stage.errors import UserError


def test_a_learner_asks_for_its_attention_and_learns_the_same(model):
    ids = torch.randint(3, 250, (2, 12), generator=torch.Generator().manual_seed(0))
    # Switching the kernel in the middle must reach every layer, not the configuration alone.
    before = model(input_ids=ids).logits
    prepare_for_training(model, LearnerConfig(attention="eager"), seed=0)
    assert model.config._attn_implementation == "eager"
    output = model(input_ids=ids, output_attentions=True)
    assert output.attentions[0] is not None
    torch.testing.assert_close(output.logits, before, atol=1e-5, rtol=1e-5)


def test_left_alone_nothing_is_chosen(model):
    was = model.config._attn_implementation
    prepare_for_training(model, LearnerConfig(), seed=0)
    assert model.config._attn_implementation == was == "sdpa"


def test_flash_attention_that_is_not_there_is_one_sentence(model, monkeypatch):
    monkeypatch.setattr(attention.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"is not installed; run: pip install flash-attn --no-bu"):
        set_attention(model.to("meta"), "flash_attention_2")


def test_flash_attention_on_a_processor_is_one_sentence(model):
    with pytest.raises(UserError, match="needs a GPU, and the model is on the cpu; take sdpa"):
        set_attention(model, "flash_attention_2")


def test_an_architecture_without_the_kernel_says_so(model, monkeypatch):
    def refuse(_attention):
        raise ValueError("LlamaForCausalLM does not support it yet.\nPlease ask for it")

    monkeypatch.setattr(model, "set_attn_implementation", refuse)
    with pytest.raises(UserError, match=r"attention sdpa: .* not take it \(.* yet\); take eager"):
        set_attention(model, "sdpa")
