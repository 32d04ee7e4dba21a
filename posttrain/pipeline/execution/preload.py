"""Imported once by the fork server, so that every stage starts with its imports done.

Only modules that start no thread may be here: a forked child has none of them. (polars does.)
"""

import gc
import os
import sys

import posttrain.pipeline.execution.child
from posttrain.pipeline.hermetic import system

__all__ = ["posttrain"]

# What every stage may read is looked up once.
for _entry in sys.path:
    system.importable(os.path.realpath(_entry))
system.device_files()

# What is here is never collected: the collector of a stage need not touch it and copy its pages.
gc.freeze()
