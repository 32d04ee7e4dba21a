"""Imported once by the fork server, so that every stage starts with its heavy imports done.

Only modules that start no thread may be here: a forked child has none of them. (polars does.)
"""

import gc

import torch
import torch._inductor.config
import torch.utils.deterministic
import transformers
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto
import transformers.models.llama.modeling_llama
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

import posttrain.execution.child
from posttrain.pipeline.config import StageConfig

__all__ = ["posttrain", "torch", "transformers"]

# Built on first use and then kept: better once here than in every stage that loads a model.
get_checkpoint_conversion_mapping("llama")

# To find the text below a field, pydantic searches every module there is: 20 ms for each class of
# parameters that a stage imports, for descriptions that nobody reads here.
StageConfig.model_config["use_attribute_docstrings"] = False

# Its first call formats the stack, for which it reads source files. A stage seeds itself again.
torch.manual_seed(0)

# What is here is never collected: the collector of a stage need not touch it and copy its pages.
gc.freeze()
