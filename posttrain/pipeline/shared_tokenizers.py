"""Refuse models that meet in one stage and cannot share a tokenizer, before anything runs."""

from collections.abc import Iterator
from itertools import combinations

from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Stage, Vocabulary


def refuse_other_tokenizers(dag: Dag) -> None:
    """Refuse a stage whose models come of ones whose tokenizers are known to differ.

    All models of a stage share one tokenizer, but for those of a port with `own_tokenizer`. So a
    model has the tokenizer of the models that its stage began with, back to stages that began with
    none: of these a task may know beforehand how large the vocabulary is, or all of it.

    Args:
        dag: Checked stages.

    Raises:
        UserError: Two models of a stage cannot share a tokenizer.

    """
    origins: dict[str, dict[str, str]] = {}
    known: dict[str, Vocabulary | None] = {}
    for name in dag.order():
        stage = dag.stages[name]
        # Of each stage that made a tokenizer: the input by which it came here.
        met: dict[str, str] = {}
        for role, source in _models(stage):
            for origin in origins.get(source, {source: role}):
                met.setdefault(origin, role)
        origins[name] = met or {name: ""}
        for one, other in combinations(met, 2):
            for each in (one, other):
                if each not in known:
                    known[each] = _vocabulary(dag.stages[each])
            first, second = known[one], known[other]
            if first and second and first.differs_from(second):
                raise UserError(
                    f"{name}: its inputs {met[one]} and {met[other]} come of {one} and {other},"
                    f" whose tokenizers differ ({first} tokens, and {second}); the models of a"
                    " stage share one: start both from the same model"
                )


def _models(stage: Stage) -> Iterator[tuple[str, str]]:
    """The inputs that are models of the stage's own tokenizer, and the stages that made them."""
    for role, reference in stage.inputs.items():
        port = stage.task.inputs.get(role.partition(".")[0])
        is_model = port is not None and port.type in (
            ArtifactKind.CHECKPOINT,
            ArtifactKind.REWARD_MODEL,
        )
        if port is not None and is_model and not port.own_tokenizer and reference.stage:
            yield role, reference.stage


def _vocabulary(stage: Stage) -> Vocabulary | None:
    return None if stage.task.vocabulary is None else stage.task.vocabulary(stage)
