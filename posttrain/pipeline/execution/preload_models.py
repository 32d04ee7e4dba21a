"""Imported by the fork server as well where a stage that is to run works with models."""

import gc

import transformers
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto
import transformers.models.llama.modeling_llama
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

import posttrain.pipeline.execution.preload_torch

__all__ = ["posttrain", "transformers"]

# Built on first use and then kept: better once here than in every stage that loads a model.
get_checkpoint_conversion_mapping("llama")

gc.freeze()
