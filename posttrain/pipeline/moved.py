"""Where the modules of posttrain 0.1 are today: results that it recorded name them as they were."""

from collections.abc import Mapping

MOVED: Mapping[str, str] = {
    "posttrain.errors": "posttrain.stage.errors",
    "posttrain.amounts": "posttrain.stage.formatting",
    "posttrain.pipeline.config": "posttrain.stage.config",
    "posttrain.pipeline.context": "posttrain.stage.context",
    "posttrain.pipeline.spec": "posttrain.stage.spec",
    "posttrain.pipeline.resources": "posttrain.stage.resources",
    "posttrain.pipeline.artifact_types": "posttrain.stage.artifact_kinds",
    "posttrain.pipeline.installed": "posttrain.stage.installed",
    "posttrain.pipeline.code": "posttrain.provenance.code",
    "posttrain.pipeline.ledger": "posttrain.provenance.ledger",
    "posttrain.pipeline.dvc": "posttrain.provenance.dvc",
    "posttrain.pipeline.key": "posttrain.provenance.key",
    "posttrain.pipeline.digest": "posttrain.provenance.digest",
    "posttrain.pipeline.files": "posttrain.provenance.files",
    "posttrain.pipeline.revision": "posttrain.provenance.git",
    "posttrain.lineage": "posttrain.provenance.lineage",
    "posttrain.endpoint": "posttrain.backends.endpoint",
    "posttrain.cluster": "posttrain.backends.cluster",
    "posttrain.records": "posttrain.data.schemas",
    "posttrain.curation": "posttrain.data.filters",
    "posttrain.maths": "posttrain.learning.maths",
    "posttrain.algorithms": "posttrain.learning.algorithms",
    "posttrain.models": "posttrain.learning.models",
    "posttrain.distributed": "posttrain.learning.models.distributed",
    "posttrain.training": "posttrain.learning.training",
    "posttrain.attempts": "posttrain.learning.rollouts.scoring",
    "posttrain.sampling": "posttrain.learning.rollouts.engines",
    "posttrain.sampling.engines": "posttrain.learning.rollouts.engines.config",
    "posttrain.rewards": "posttrain.learning.rewards",
    "posttrain.tracking": "posttrain.views.tracking",
    "posttrain.report": "posttrain.views.report",
    "posttrain.execution": "posttrain.pipeline.execution",
    "posttrain.execution.determinism": "posttrain.pipeline.determinism",
    "posttrain.release": "posttrain.publishing.release",
    "posttrain.reproduction": "posttrain.publishing.reproduction",
    "posttrain.schedule": "posttrain.operations.schedule",
    "posttrain.services": "posttrain.operations.services",
    "posttrain.housekeeping": "posttrain.operations.maintenance",
    "posttrain.project": "posttrain.operations.project",
    "tasks.rl.credit": "posttrain.learning.rl.advantages",
    "tasks.rl.curriculum": "posttrain.learning.curriculum.solve_rate",
    "tasks.rl.drawing": "posttrain.learning.rl.rollouter",
    **{
        f"tasks.rl.{name}": f"posttrain.learning.rl.{name}"
        for name in (
            "batch", "buffer", "build", "config", "critic", "learner", "loop",
            "metrics", "reference", "replay", "rollout", "sharded", "shared_drawing", "stop",
            "store",
        )
    },
    **{
        f"tasks.preference.{name}": f"posttrain.learning.preference.{name}"
        for name in ("config", "heldout", "lesson", "objective", "reference", "rounds")
    },
}  # fmt: skip
"""Module or package of 0.1 -> of today; the longest that fits counts."""
