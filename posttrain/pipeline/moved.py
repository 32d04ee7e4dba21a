"""Where the modules of posttrain 0.1 are today: its records, and code of projects, name them so."""

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

from posttrain.provenance.code import Renaming

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
    "posttrain.pipeline.judges": "posttrain.pipeline.verifiers",
    "posttrain.pipeline.ledger": "posttrain.provenance.ledger",
    "posttrain.pipeline.dvc": "posttrain.provenance.dvc",
    "posttrain.pipeline.key": "posttrain.provenance.key",
    "posttrain.pipeline.files": "posttrain.stage.files",
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
    "posttrain.sampling.choose": "posttrain.learning.rollouts.engines.decode",
    "posttrain.sampling.endings": "posttrain.learning.rollouts.engines.stop",
    "posttrain.sampling.fake": "posttrain.learning.rollouts.engines.base",
    "posttrain.sampling.memory": "posttrain.learning.rollouts.engines.llama",
    "posttrain.sampling.noise": "posttrain.learning.rollouts.engines.rng",
    "posttrain.sampling.ray_sampler": "posttrain.learning.rollouts.engines.ray_engine",
    "posttrain.sampling.pieces": "posttrain.learning.rollouts.engines.batches",
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
    "posttrain.cluster.crew": "posttrain.backends.cluster.worker_pool",
    "posttrain.curation.contamination": "posttrain.data.filters.overlap",
    "posttrain.curation.dedup": "posttrain.data.filters.minhash",
    "posttrain.curation.spread": "posttrain.data.filters.parallel",
    "posttrain.data.huggingface": "posttrain.data.sources.huggingface",
    "posttrain.execution.fitness": "posttrain.pipeline.execution.compatibility",
    "posttrain.pipeline.code.normalise": "posttrain.provenance.code.normalize",
    "posttrain.release.stages": "posttrain.publishing.release.pointers",
    "posttrain.reproduction.verdicts": "posttrain.publishing.reproduction.verification",
    "posttrain.services.tethered": "posttrain.pipeline.execution.die_with_parent",
    "posttrain.training.heldout": "posttrain.learning.training.early_stop",
    "posttrain.training.learner": "posttrain.learning.training.trainer",
    "tasks.synthesize.teachers": "posttrain.data.teachers",
    "posttrain.rewards.exact": "posttrain.learning.rewards.verifiers.exact",
    "posttrain.rewards.format": "posttrain.learning.rewards.verifiers.format",
    "posttrain.rewards.judge": "posttrain.learning.rewards.verifiers.judge",
    "posttrain.rewards.numeric": "posttrain.learning.rewards.verifiers.numeric",
    "posttrain.rewards.reasoning_gym": "posttrain.learning.rewards.verifiers.reasoning_gym",
    "tasks.rl.buffer": "posttrain.learning.rl.generations",
    "tasks.rl.curriculum": "posttrain.learning.curriculum.solve_rate",
    "tasks.rl.reference": "posttrain.learning.rl.reference_policy",
    **{
        f"tasks.rl.{name}": f"posttrain.learning.rl.{name}"
        for name in (
            "batch", "build", "config", "critic", "learner", "loop",
            "metrics", "replay", "rollout", "sharded", "shared_drawing", "stop",
            "store",
        )
    },
    **{
        f"tasks.preference.{name}": f"posttrain.learning.preference.{name}"
        for name in ("config", "heldout", "objective", "reference", "rounds")
    },
    "tasks.preference.lesson": "posttrain.learning.preference.training",
}  # fmt: skip
"""Module or package of 0.1 -> of today; the longest that fits counts, and no two become one."""

TAKEN_APART: Mapping[str, str] = {
    "posttrain.algorithms.advantage_config": "posttrain.learning.algorithms.advantages.registry",
    "posttrain.algorithms.choice": "posttrain.learning.algorithms.presets",
    "posttrain.algorithms.correction_config": "posttrain.learning.algorithms.token_weights.base",
    "posttrain.algorithms.credit": "posttrain.learning.algorithms.batches",
    "posttrain.algorithms.frameworks": "posttrain.learning.algorithms.presets",
    "posttrain.algorithms.preset": "posttrain.learning.algorithms.presets",
    "posttrain.algorithms.published": "posttrain.learning.algorithms.presets",
    "posttrain.algorithms.reinforce_family": "posttrain.learning.algorithms.presets",
    "posttrain.algorithms.ratio_config": "posttrain.learning.algorithms.surrogates.registry",
    "posttrain.algorithms.summary": "posttrain.learning.algorithms.config",
    "posttrain.algorithms.surrogate": "posttrain.learning.algorithms.surrogates.base",
    "posttrain.algorithms.switches": "posttrain.learning.algorithms.part",
    "posttrain.algorithms.weighting": "posttrain.learning.algorithms.token_weights.base",
    "posttrain.cli.algorithm": "posttrain.cli.method",
    "posttrain.cli.release_run": "posttrain.cli.release_check",
    "posttrain.cli.release_trust": "posttrain.cli.release_keys",
    "posttrain.cluster.hand": "posttrain.backends.cluster.worker_pool",
    "posttrain.curation.difficulty": "posttrain.data.filters.bucket_size",
    "posttrain.curation.order": "posttrain.data.filters.apply",
    "posttrain.curation.sieve": "posttrain.data.filters.apply",
    "posttrain.curation.tally": "posttrain.data.filters.apply",
    "posttrain.data.packing": "posttrain.data.rows",
    "posttrain.data.readers": "posttrain.data.sources.table",
    "posttrain.endpoint.retry": "posttrain.backends.endpoint.client",
    "posttrain.execution.allocator": "posttrain.pipeline.determinism",
    "posttrain.execution.interrupt": "posttrain.pipeline.execution.supervise",
    "posttrain.execution.resumption": "posttrain.pipeline.execution.attempt",
    "posttrain.housekeeping.budget": "posttrain.operations.maintenance.policy",
    "posttrain.housekeeping.checks.extras": "posttrain.operations.maintenance.checks.installation",
    "posttrain.housekeeping.checks.owners": "posttrain.operations.maintenance.checks.objects",
    "posttrain.housekeeping.checks.restore": "posttrain.operations.maintenance.checks.objects",
    "posttrain.housekeeping.removal": "posttrain.operations.maintenance.collect",
    "posttrain.lineage.previews": "posttrain.provenance.lineage.render.page",
    "posttrain.lineage.render.dot": "posttrain.provenance.lineage.render.mermaid",
    "posttrain.maths.advantages": "posttrain.learning.maths.group_relative",
    "posttrain.maths.calibration": "tasks.reward.heldout",
    "posttrain.maths.comparison": "posttrain.publishing.release.statistics",
    "posttrain.maths.kto": "posttrain.learning.maths.preference",
    "posttrain.maths.length": "posttrain.learning.algorithms.config",
    "posttrain.maths.policy_loss": "posttrain.learning.algorithms.objective",
    "posttrain.maths.prediction": "posttrain.publishing.reproduction.seeds",
    "posttrain.maths.reference_free": "posttrain.learning.maths.preference",
    "posttrain.maths.reward_model": "posttrain.learning.maths.pairs",
    "posttrain.maths.reweighting": "posttrain.learning.algorithms.advantages.base",
    "posttrain.maths.sequence_logprobs": "posttrain.learning.maths.preference",
    "posttrain.maths.surrogates": "posttrain.learning.algorithms.surrogates.base",
    "posttrain.maths.turns": "posttrain.learning.algorithms.advantages.turns",
    "posttrain.maths.value": "posttrain.learning.maths.gae",
    "posttrain.maths.whitening": "posttrain.learning.maths.reduce",
    "posttrain.models.adamw": "posttrain.learning.models.optim",
    "posttrain.models.hub": "posttrain.learning.models.imports",
    "posttrain.models.lean": "posttrain.learning.models.fast_llama",
    "posttrain.models.lean.known": "posttrain.learning.models.fast_llama",
    "posttrain.models.lean.layers": "posttrain.learning.models.fast_llama",
    "posttrain.models.lean.layout": "posttrain.learning.models.fast_llama",
    "posttrain.models.lean.rotation": "posttrain.learning.rollouts.engines.llama_weights",
    "posttrain.models.lean.states": "posttrain.learning.models.fast_llama",
    "posttrain.pipeline.code.changes": "posttrain.provenance.code.symbols",
    "posttrain.pipeline.digest": "posttrain.stage.hashing",
    "posttrain.pipeline.dvc.remotes": "posttrain.provenance.dvc.remote",
    "posttrain.pipeline.ledger.additions": "posttrain.provenance.ledger.ledger",
    "posttrain.pipeline.ledger.interning": "posttrain.provenance.ledger.writing",
    "posttrain.pipeline.ledger.marks": "posttrain.provenance.ledger.annotations",
    "posttrain.pipeline.ledger.patience": "posttrain.provenance.ledger.server",
    "posttrain.pipeline.ledger.verifications": "posttrain.provenance.ledger.annotations",
    "posttrain.release.canonical": "posttrain.stage.hashing",
    "posttrain.release.card": "posttrain.publishing.release.generated",
    "posttrain.release.envelopes": "posttrain.publishing.release.statements",
    "posttrain.release.example": "posttrain.publishing.release.generated",
    "posttrain.release.fetch": "posttrain.publishing.release.registered",
    "posttrain.release.gates.contamination": "posttrain.publishing.release.gates.inputs",
    "posttrain.release.gates.evidence": "posttrain.publishing.release.gates.base",
    "posttrain.release.gates.licence": "posttrain.publishing.release.gates.inputs",
    "posttrain.release.levels": "posttrain.publishing.release.rebuild",
    "posttrain.release.licences": "posttrain.publishing.release.licenses",
    "posttrain.release.moves": "posttrain.publishing.release.pointers",
    "posttrain.release.push": "posttrain.publishing.release.distribute",
    "posttrain.release.recheck": "posttrain.publishing.release.verify",
    "posttrain.release.serve": "posttrain.publishing.release.distribute",
    "posttrain.report.bars": "posttrain.views.charts.kinds",
    "posttrain.report.lines": "posttrain.views.charts.kinds",
    "posttrain.report.svg": "posttrain.views.charts.chart",
    "posttrain.reproduction.bitwise": "posttrain.publishing.reproduction.verification",
    "posttrain.reproduction.mirror": "posttrain.publishing.reproduction.project",
    "posttrain.reproduction.restore": "posttrain.publishing.reproduction.project",
    "posttrain.rewards.remote": "posttrain.learning.rewards.on_ray",
    "posttrain.rewards.verdict": "posttrain.learning.rewards.score",
    "posttrain.sampling.cache": "posttrain.learning.rollouts.engines.llama",
    "posttrain.sampling.rollout_worker": "posttrain.learning.rollouts.engines.ray_engine",
    "posttrain.sampling.vllm_process": "posttrain.learning.rollouts.engines.vllm_engine",
    "posttrain.sampling.vllm_weights": "posttrain.learning.rollouts.engines.vllm_engine",
    "posttrain.schedule.admit": "posttrain.operations.schedule.admission",
    "posttrain.schedule.beat": "posttrain.operations.schedule.outcome",
    "posttrain.schedule.deployments": "posttrain.operations.schedule.server",
    "posttrain.schedule.journal": "posttrain.operations.schedule.notes",
    "posttrain.schedule.reconcile": "posttrain.operations.schedule.keeper",
    "posttrain.schedule.running": "posttrain.operations.schedule.outcome",
    "posttrain.schedule.schedule": "posttrain.operations.schedule.recipes",
    "posttrain.schedule.serve": "posttrain.operations.schedule.worker",
    "posttrain.schedule.spawn": "posttrain.operations.schedule.admission",
    "posttrain.schedule.tables": "posttrain.operations.schedule.notes",
    "posttrain.tracking.dataset_source": "posttrain.views.tracking.mlflow_writer",
    "posttrain.tracking.memory": "posttrain.views.tracking.base",
    "posttrain.tracking.mlflow": "posttrain.views.tracking.kinds",
    "posttrain.tracking.mlflow_process": "posttrain.views.tracking.writer_process",
    "posttrain.tracking.rebuild": "posttrain.views.tracking.projection",
    "tasks.curate.filters": "posttrain.data.filters.registry",
    "tasks.evaluate.estimates": "tasks.evaluate.summary",
    "tasks.rl.credit": "posttrain.learning.rl.batch",
    "tasks.rl.drawing": "posttrain.learning.rl.generations",
    "tasks.synthesize.files": "posttrain.data.sources.table",
    "tasks.synthesize.gym": "posttrain.data.sources.reasoning_gym",
    "tasks.synthesize.teachers.arithmetic": "posttrain.data.teachers.programs",
    "tasks.synthesize.teachers.legs": "posttrain.data.teachers.programs",
    "tasks.synthesize.teachers.notes": "posttrain.data.teachers.programs",
    "tasks.synthesize.teachers.sorting": "posttrain.data.teachers.programs",
    "posttrain.cli.compare": "posttrain.operations.python.figures",
    "posttrain.lineage.render.comparison": "posttrain.operations.python.figures",
}
"""Module of 0.1 that is no more -> where to look first for what it held."""

NAMES: Mapping[str, str] = {
    "posttrain.pipeline.spec.ArtifactType": "posttrain.stage.spec.ArtifactKind",
    "posttrain.stage.spec.ArtifactType": "posttrain.stage.spec.ArtifactKind",
    "posttrain.curation.sieve.judge": "posttrain.data.filters.base.reasons_from",
    "posttrain.curation.sieve.sift": "posttrain.data.filters.apply.split_by_reason",
}
"""What the project that 0.1 made imports by a name of then -> by which name of today."""

_FOLDERS = ("flows", "tasks", "tests")


def old_imports(root: Path) -> Iterator[str]:
    """Find what a project imports by a name of 0.1.

    Args:
        root: The project's root.

    Yields:
        A clause for each import: the line, the old name and today's.

    """
    for folder in _FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            try:
                tree = ast.parse(file.read_text(encoding="utf-8"))
            except (SyntaxError, ValueError):
                continue
            where = file.relative_to(root)
            for node in ast.walk(tree):
                for old, new in _imports_of_then(node):
                    yield f"{where}:{getattr(node, 'lineno', 1)}: {old} is now {new}"


def _imports_of_then(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        yield from _moved_modules(*(alias.name for alias in node.names))
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        whole = [f"{node.module}.{alias.name}" for alias in node.names]
        named = {each: NAMES[each] for each in whole if each in NAMES}
        yield from named.items()
        if len(named) < len(whole):
            yield from _moved_modules(node.module)


def _moved_modules(*modules: str) -> Iterator[tuple[str, str]]:
    for module in modules:
        today = TAKEN_APART.get(module) or Renaming(MOVED).current(module)
        if today != module and not _exists(module):
            yield module, today


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
