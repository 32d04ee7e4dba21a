"""What `posttrain plan` notes beside its table: values that may well be meant, and what follows."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from posttrain.learning.models.record import answer_lengths_in, limit_for
from posttrain.learning.rollouts.limits import limit_told
from posttrain.learning.training.lengths import row_limit_told
from posttrain.methods.find import methods_of
from posttrain.operations.remarks import remarks_on_values
from posttrain.pipeline.at_hub import notes_on_hub
from posttrain.pipeline.connected_verifiers import without_port
from posttrain.pipeline.execution.session import Session
from posttrain.pipeline.plan import Decision
from posttrain.pipeline.profile_notes import notes_on_profile
from posttrain.pipeline.programs import notes_on_machine
from posttrain.pipeline.verifiers import VERIFIES
from posttrain.stage.config import StageConfig
from posttrain.stage.hashing import canonical_json
from posttrain.stage.spec import Dag

_SAMPLED = re.compile(r"policy$|policies\.")
"""Ports of the policies that a stage samples."""

_COUNTS = "counts"
_ALIKE = {"masked": _COUNTS}
"""Where nothing is learned, an answer that bears no loss counts like any other."""


def notes_on(session: Session, decisions: Sequence[Decision]) -> Iterator[str]:
    """Say what somebody should know of a recipe though nothing is refused.

    Args:
        session: Of the recipe.
        decisions: What its plan decided.

    Yields:
        Sentences.

    """
    unseen = chain.from_iterable(each.unseen for each in decisions)
    limits = chain(_limits(session, decisions), _row_limits(session, decisions))
    profile = notes_on_profile(session.recipe, session.dag)
    running = [each.stage for each in decisions if each.action in ("run", "pending")]
    hub = notes_on_hub(session.dag, running)
    machine = notes_on_machine(session.recipe.run, session.dag, makes=bool(running))
    yield from chain(unseen, profile, _of_values(session), limits, hub, machine)


def _of_values(session: Session) -> Iterator[str]:
    recipe = session.recipe
    with methods_of(session.workspace.root, recipe.plugins, named=recipe.method):
        remarks = remarks_on(session.dag)
    yield from remarks
    for name, stage in session.dag.stages.items():
        lacks = without_port(stage, session.dag)
        if lacks and VERIFIES in session.planner.keys.closure(name).symbols:
            yield f"{name}: it scores answers to problems, and {lacks}"
    yield from filter(None, (disagreement(session.dag), several_environments(session.dag)))


def _limits(session: Session, decisions: Sequence[Decision]) -> Iterator[str]:
    """What `max_tokens: auto` is where the policies that say it are in place."""
    there = {each.stage for each in decisions if each.action == "cached"}
    for name, stage in session.dag.stages.items():
        if getattr(stage.config, "max_tokens", None) != "auto":
            continue
        policies = [ref for port, ref in stage.inputs.items() if _SAMPLED.match(port)]
        folders = [
            session.workspace.output(str(session.dag.stages[ref.stage].outputs()[ref.output]))
            for ref in policies
            if ref.stage in there and ref.output is not None
        ]
        # One that is still to be made may be the one that decides.
        if folders and len(folders) == len(policies):
            taught = [answer_lengths_in(folder) for folder in folders]
            yield f"{name}: {limit_told(max(taught, key=limit_for))}"


def _row_limits(session: Session, decisions: Sequence[Decision]) -> Iterator[str]:
    """What `max_length: auto` came to where the stage that chose it is up to date."""
    for each in decisions:
        auto = getattr(session.dag.stages[each.stage].config, "max_length", None) == "auto"
        known = each.known.metrics if each.known and each.action == "cached" else {}
        figures = [known.get(f"{each.stage}/{name}") for name in ("max_length", "row_tokens")]
        if auto and None not in figures:
            tokens, needed = (int(figure or 0) for figure in figures)
            yield f"{each.stage}: {row_limit_told(tokens, needed)}"


def remarks_on(dag: Dag) -> list[str]:
    """Say what follows from the values of the stages, once for all of which it is true.

    Args:
        dag: Its stages' configs remark on themselves, and so do those within them.

    Returns:
        Sentences, each behind the names of its stages.

    """
    said: dict[str, dict[str, None]] = {}
    for name, stage in dag.stages.items():
        for line in remarks_on_values(stage.config):
            said.setdefault(line, {})[name] = None
    return [f"{', '.join(names)}: {line}" for line, names in said.items()]


def disagreement(dag: Dag) -> str | None:
    """Say which stages judge an answer that was cut off in another way than others do.

    Numbers of theirs are then of two kinds: a solve rate of `probe` that fails such answers does
    not foretell what an RL stage is paid that takes them as they stand.

    Args:
        dag: Its stages may state `truncated`, or `reward.truncated`.

    Returns:
        A sentence with the remedy; None where all say the same, or none says anything.

    """
    stages: dict[str, list[str]] = {}
    for name, stage in dag.stages.items():
        if rule := _rule(stage.config):
            stages.setdefault(_ALIKE.get(rule, rule), []).append(name)
    if len(stages) < 2:  # noqa: PLR2004 - two rules are what it takes to disagree
        return None
    told = "; ".join(f"{', '.join(names)}: {rule}" for rule, names in stages.items())
    return (
        f"answers cut off at max_tokens are judged in more than one way ({told}), so that their"
        " solve rates are not comparable; set `truncated` to one rule in all of them"
    )


def several_environments(dag: Dag) -> str | None:
    """Say which stages play in another environment than others do.

    Args:
        dag: Its stages may state `environment`, or `producer.environment`.

    Returns:
        A sentence with the remedy; None where all play in the same, or none plays.

    """
    stages: dict[str, list[str]] = {}
    for name, stage in dag.stages.items():
        values: Mapping[str, Any] = stage.config.model_dump(mode="json")
        if "producer" in values:
            values = {"environment": {"kind": "single"}, **values["producer"]}
        if "environment" in values:
            stages.setdefault(canonical_json(values["environment"]), []).append(name)
    if len(stages) < 2:  # noqa: PLR2004 - as above
        return None
    told = "; ".join(
        f"{', '.join(names)}: {json.loads(spelled)['kind']}" for spelled, names in stages.items()
    )
    return (
        f"problems are attempted in more than one environment ({told}), so that their solve rates"
        " are not comparable; set `environment` of probe and evaluate to that of rl.producer"
    )


def _rule(config: StageConfig) -> str | None:
    values: Mapping[str, Any] = config.keyed()
    reward = values.get("reward")
    found = reward.get("truncated") if isinstance(reward, Mapping) else values.get("truncated")
    return found if isinstance(found, str) else None
