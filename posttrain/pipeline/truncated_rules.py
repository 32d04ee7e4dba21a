"""What becomes of answers that are cut off: whether the stages of a flow agree on it."""

from collections.abc import Mapping
from typing import Any

from posttrain.stage.config import StageConfig
from posttrain.stage.spec import Dag

_COUNTS = "counts"
_ALIKE = {"masked": _COUNTS}
"""Where nothing is learned, an answer that bears no loss counts like any other."""


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


def _rule(config: StageConfig) -> str | None:
    values: Mapping[str, Any] = config.keyed()
    reward = values.get("reward")
    found = reward.get("truncated") if isinstance(reward, Mapping) else values.get("truncated")
    return found if isinstance(found, str) else None
