"""Imported once by the fork server, so that every stage starts with its heavy imports done."""

import torch
import transformers
import transformers.models.auto.modeling_auto
import transformers.models.llama.modeling_llama

__all__ = ["torch", "transformers"]
