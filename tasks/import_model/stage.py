"""Fetch a checkpoint, check that it is whole and harmless, and save it as a policy."""

from collections.abc import Mapping
from pathlib import Path

import torch

from posttrain.data.templates import encode_prompts
from posttrain.learning.models.architectures import model_type_of, refuse_untrained
from posttrain.learning.models.final_logits import final_logits
from posttrain.learning.models.imports import (
    DTYPES,
    check_described,
    locate,
    settle_generation_config,
    told_of_router,
    write_facts,
)
from posttrain.learning.models.load import Policy, load_policy, save_policy
from posttrain.learning.models.logprobs import hidden_states
from posttrain.learning.models.subnetwork import carry_subnetwork
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.import_model.config import ImportModelConfig


def run(
    config: ImportModelConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Load the model from its source, check it, save it."""
    source = locate(config, inputs)
    check_described(source)
    refuse_untrained(model_type_of(source), where=str(source))
    policy = load_policy(source, device=context.device, dtype=DTYPES[config.dtype])
    config.template.give_to(policy.tokenizer, where="import_model")
    # Sooner than in the stage that would be the first to render a prompt.
    encode_prompts(policy.tokenizer, ["1 + 1 ="])
    _check_head(policy, source)
    _check_order(policy, source)
    settle_generation_config(policy.model, source)
    save_policy(policy.model, policy.tokenizer, outputs["policy"])
    carry_subnetwork(source, policy.model, outputs["policy"])
    write_facts(config, policy.model, source, outputs["report"])
    if told := told_of_router(policy.model):
        context.note(told)
    return {
        "import_model/num_parameters": float(policy.model.num_parameters()),
        "import_model/vocab_size": float(len(policy.tokenizer)),
    }


def _check_head(policy: Policy, source: Path) -> None:
    """Refuse a model whose logits are not what the learner computes of its last hidden states."""
    probe_BT = torch.arange(4, device=policy.model.device)[None] % len(policy.tokenizer)
    with torch.inference_mode():
        wanted = policy.model(input_ids=probe_BT, use_cache=False).logits
        head = policy.model.get_output_embeddings()
        found = final_logits(policy.model.config)(head(hidden_states(policy.model, probe_BT)))
    if not torch.allclose(wanted, found, rtol=1e-4, atol=1e-4):
        raise UserError(
            f"{source}: the architecture '{policy.model.config.model_type}' changes its logits "
            "after the output layer in a way that this learner does not know; "
            "take an architecture that ends with its output layer, a scale or a soft cap"
        )


def _check_order(policy: Policy, source: Path) -> None:
    """Refuse a model whose state at a token depends on the tokens after it."""
    ids_BT = torch.arange(8, device=policy.model.device)[None] % len(policy.tokenizer)
    with torch.inference_mode():
        all_BTD = hidden_states(policy.model, ids_BT)[:, :4].float()
        first_BTD = hidden_states(policy.model, ids_BT[:, :4]).float()
    # bfloat16 rounds by the shape, and a router may tip; what reads both ways is far from this.
    if not (all_BTD - first_BTD).norm() <= 0.05 * first_BTD.norm():
        raise UserError(
            f"{source}: the architecture '{policy.model.config.model_type}' reads what comes after"
            " a token too, so it cannot be trained to predict the next one; take a causal language"
            " model"
        )
