"""Imported once by the fork server, so that every stage starts with its heavy imports done.

Only modules that start no thread may be here: a forked child has none of them. (polars does.)
"""

import torch
import torch._inductor.config
import transformers
import transformers.models.auto.modeling_auto
import transformers.models.llama.modeling_llama

import posttrain.execution.child

__all__ = ["posttrain", "torch", "transformers"]
