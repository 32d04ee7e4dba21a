"""Fetch a one-label classifier, check that it is whole and harmless, and save it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from posttrain.learning.models.imports import DTYPES, locate, write_facts
from posttrain.learning.models.reward_head import load_reward_model, save_reward_model
from posttrain.stage.context import StageContext
from tasks.import_reward_model.config import ImportRewardModelConfig


def run(
    config: ImportRewardModelConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Load the classifier from its source, let it score once, save it."""
    source = locate(config, inputs)
    loaded = load_reward_model(source, device=context.device, dtype=DTYPES[config.dtype])
    # It reads text alone, so its tokenizer need not be that of the policies.
    reward_model = replace(loaded, own_tokenizer=True)
    reward_model.score(["1 + 1 ="], ["2"])
    save_reward_model(reward_model, outputs["reward_model"])
    write_facts(config, reward_model.model, source, outputs["report"])
    return {
        "import_reward_model/num_parameters": float(reward_model.model.num_parameters()),
    }
