"""posttrain: versioned pipelines for LLM post-training, from prompts to a released policy.

From Python: ``import posttrain as pt``, then ``pt.plan()``, ``pt.run()``, ``pt.why("rl")``,
``pt.load("rl.rollouts")``, ``pt.lineage("data/rl/policy")``, ``pt.metrics()``,
``pt.compare("latest~1")``. They are what the command line uses, see docs/python.md. Each is
imported when it is asked for.
"""

import importlib

__version__ = "0.2.0.dev0"

# Types are in `__init__.pyi`: what stands there and here is held together by a test.
_PLACES = {
    "StageFailed": "posttrain.pipeline.execution.failures",
    "UserError": "posttrain.stage.errors",
    "compare": "posttrain.operations.python.figures",
    "lineage": "posttrain.operations.python.graphs",
    "load": "posttrain.operations.python.tables",
    "metrics": "posttrain.operations.python.figures",
    "plan": "posttrain.operations.python.plans",
    "run": "posttrain.operations.python.runs",
    "why": "posttrain.operations.python.causes",
}

__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'posttrain' has no attribute '{name}'")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
