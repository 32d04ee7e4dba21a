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
from posttrain.stage.config import StageConfig

__all__ = ["posttrain", "torch"]

# To find the text below a field, pydantic searches every module there is: 20 ms for each class of
# parameters that a stage imports, for descriptions that nobody reads here.
StageConfig.model_config["use_attribute_docstrings"] = False

# Its first call formats the stack, for which it reads source files. A stage seeds itself again.
torch.manual_seed(0)

# What every stage may read is looked up once.
for _entry in sys.path:
    system.importable(os.path.realpath(_entry))
system.device_files()

# What is here is never collected: the collector of a stage need not touch it and copy its pages.
gc.freeze()
