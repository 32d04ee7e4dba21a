"""Imported once by the fork server, so that every stage starts with its heavy imports done.

Only modules that start no thread may be here: a forked child has none of them. (polars does.)
"""

import gc
import os
import sys

import torch
import torch._inductor.config
import torch.utils.deterministic

import posttrain.pipeline.execution.child
from posttrain.pipeline.hermetic import system

__all__ = ["posttrain", "torch"]

# Its first call formats the stack, for which it reads source files. A stage seeds itself again.
torch.manual_seed(0)

# What every stage may read is looked up once.
for _entry in sys.path:
    system.importable(os.path.realpath(_entry))
system.device_files()

# What is here is never collected: the collector of a stage need not touch it and copy its pages.
gc.freeze()
