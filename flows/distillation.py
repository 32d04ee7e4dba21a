"""From problems, a student and its teacher, both brought along, to a distilled student."""

from flows._beginning import begin_flow
from posttrain.pipeline.recipe import FlowBuilder
from tasks.evaluate import TASK as EVALUATE
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.rl import TASK as RL
from tasks.sft import TASK as SFT
from tasks.teach import TASK as TEACH


def declare(build: FlowBuilder) -> None:
    """Synthesize, curate, import both; teach rows and learn them; then learn on own samples.

    The student is `import_model` (or `pretrain`), its teacher `teacher`. With a `teach` section the
    student is fine-tuned on what the teacher says of the solutions first, by `sft`, and RL goes on
    from there; which part of RL listens to the teacher, the recipe says (`method:
    on_policy_distillation`, or gkd, or component `teacher`).
    """
    raw, data, base, policies = begin_flow(build)
    teacher = build.stage("teacher", IMPORT_MODEL)
    policies = {"teacher": teacher["policy"], **policies}
    student = base["policy"]
    if build.has("teach"):
        teach = build.stage(
            "teach", TEACH, rows=data["traces"], policy=student, teacher=teacher["policy"]
        )
        sft = build.stage(
            "sft", SFT, policy=student, traces=data["traces"], targets=teach["targets"]
        )
        student = sft["policy"]
        policies["sft"] = student
    rl = build.stage("rl", RL, policy=student, problems=data["problems"])
    policies["rl"] = rl["policy"]
    build.stage("evaluate", EVALUATE, problems=raw["heldout"], policies=policies)
