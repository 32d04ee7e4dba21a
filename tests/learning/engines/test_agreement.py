"""An engine that does not compute what the policy does is refused as it opens."""

import pytest
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.agreement import refuse_other_distribution
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.stage.errors import UserError


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_an_engine_that_has_the_policys_weights_is_taken_and_another_refused(
    name, wide_model, tokenizer
):
    policy = Policy(wide_model(name), tokenizer)
    policy.model.train()
    refuse_other_distribution(TorchRolloutEngine(policy.model, tokenizer), policy, name="own")
    assert policy.model.training
    other = TorchRolloutEngine(wide_model(name, seed=1), tokenizer)
    with pytest.raises(UserError, match=rf"engine vllm computes .* \({name}\): its log-prob"):
        refuse_other_distribution(other, policy, name="vllm")


def test_what_bfloat16_rounds_is_taken(wide_model, tokenizer):
    policy = Policy(wide_model("llama"), tokenizer)
    rounded = wide_model("llama")
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.bfloat16())
    refuse_other_distribution(TorchRolloutEngine(rounded, tokenizer), policy, name="vllm")


def test_a_policy_that_is_broken_itself_is_not_laid_at_the_engines_door(wide_model, tokenizer):
    """What says so is whoever draws from it."""
    broken = wide_model("llama")
    with torch.no_grad():
        broken.get_input_embeddings().weight.fill_(torch.nan)
    engine = TorchRolloutEngine(wide_model("llama"), tokenizer)
    refuse_other_distribution(engine, Policy(broken, tokenizer), name="vllm")
