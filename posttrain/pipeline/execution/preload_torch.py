"""Imported by the fork server as well where a stage that is to run may compute with torch."""

import gc

import torch
import torch._inductor.config
import torch.utils.deterministic

import posttrain.pipeline.execution.preload

__all__ = ["posttrain", "torch"]

# Its first call formats the stack, for which it reads source files. A stage seeds itself again.
torch.manual_seed(0)

gc.freeze()
