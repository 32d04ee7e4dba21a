"""The flow of a claim: what all its arms share, made once.

`posttrain method run` adds what is compared: a stage for each arm and seed, an evaluation for each
seed, and the verdict.
"""

from collections.abc import Container, Mapping

from posttrain.pipeline.recipe import FlowBuilder
from posttrain.stage.spec import Task
from tasks.coevolve import TASK as COEVOLVE
from tasks.curate import TASK as CURATE
from tasks.diagnose import TASK as DIAGNOSE
from tasks.evaluate import TASK as EVALUATE
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.preference import TASK as PREFERENCE
from tasks.pretrain import TASK as PRETRAIN
from tasks.probe import TASK as PROBE
from tasks.reward import TASK as REWARD
from tasks.rl import TASK as RL
from tasks.sft import TASK as SFT
from tasks.synthesize import TASK as SYNTHESIZE
from tasks.verdict import TASK as VERDICT

BASE = "{base}"
"""Stands for the stage whose model is fine-tuned."""

ARMS: Mapping[str, tuple[Task, Mapping[str, str]]] = {
    "synthesize": (SYNTHESIZE, {}),
    "curate": (
        CURATE,
        {
            "problems": "synthesize.problems",
            "heldout": "synthesize.heldout",
            "traces": "synthesize.traces",
        },
    ),
    "sft": (SFT, {"policy": f"{BASE}.policy", "traces": "curate.traces"}),
    "probe": (PROBE, {"policy": "sft.policy", "problems": "curate.problems"}),
    "reward": (REWARD, {"policy": "sft.policy", "samples": "probe.samples"}),
    "rl": (
        RL,
        {
            "policy": "sft.policy",
            "problems": "curate.problems",
            "solve_rates": "probe.solve_rates",
        },
    ),
    "coevolve": (
        COEVOLVE,
        {
            "policy": "sft.policy",
            "problems": "curate.problems",
            "solve_rates": "probe.solve_rates",
        },
    ),
    "preference": (
        PREFERENCE,
        {"policy": "sft.policy", "samples": "probe.samples", "problems": "curate.problems"},
    ),
}
"""What a section of an arm is and reads; `{base}` is the stage of `base_of`.

Other stages that are named here are those of the arm, where it sets their section, else those that
all arms share.
"""

EVALUATION: tuple[Task, Mapping[str, str]] = (EVALUATE, {"problems": "synthesize.heldout"})
"""What grades the arms of a seed, and what it reads beside their policies."""

DIAGNOSIS: tuple[Task, Mapping[str, str]] = (DIAGNOSE, {"problems": "synthesize.heldout"})
"""What looks at the arms of a seed where the method sets `diagnose`, and what it reads beside what
they made."""

GRADING = ("evaluate", "diagnose")
"""Sections of a method that say how all arms are graded; they make no arm another one."""

DECISION = VERDICT
"""What decides."""


def base_of(sections: Container[str]) -> str:
    """Name the stage whose model is fine-tuned, by the sections that an arena has."""
    return "import_model" if "import_model" in sections else "pretrain"


def declare(build: FlowBuilder) -> None:
    """Synthesize, curate, pretrain or import, fine-tune, probe: the arena that arms start from."""
    raw = build.stage("synthesize", SYNTHESIZE)
    data = build.stage(
        "curate", CURATE, problems=raw["problems"], heldout=raw["heldout"], traces=raw["traces"]
    )
    if build.has("import_model"):
        base = build.stage("import_model", IMPORT_MODEL)
    else:
        base = build.stage("pretrain", PRETRAIN, corpus=raw["corpus"])
    sft = build.stage("sft", SFT, policy=base["policy"], traces=data["traces"])
    build.stage("probe", PROBE, policy=sft["policy"], problems=data["problems"])
