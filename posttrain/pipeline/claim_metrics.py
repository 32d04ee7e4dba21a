"""Names of metrics in a claim: those of an arm's curve are looked up before anything is trained."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from posttrain.methods.claim import MethodClaim
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.schedule import schedules_in


def refuse_unmeasured_of(
    method: str, claim: MethodClaim, arms: Mapping[str, StageConfig], *, where: str
) -> None:
    """Refuse a claim on what no step of an arm measures.

    What an evaluation or a diagnosis measures hangs on what it looks at, and is not looked up.

    Args:
        method: Name of the method's own arm.
        claim: The claim.
        arms: Config of the section that is compared, by arm.
        where: The claim's place, for the error.

    Raises:
        UserError: The metric's place, and the nearest one that the arm measures.

    """
    for part, metric, arm in _read(method, claim):
        if "/" not in metric or (known := _measured(claim.trains, arms[arm])) is None:
            continue
        if metric not in known and _of_one_policy(metric, arms[arm]) not in known:
            hint = nearest(metric, known) or "; name another metric"
            raise UserError(f"{where}.{part}: arm {arm} measures no '{metric}'{hint}")


def _read(method: str, claim: MethodClaim) -> Iterator[tuple[str, str, str]]:
    """The metrics that a claim reads: the part of it that names one, its name, and whose it is."""
    yield from (("mechanism", each.metric, method) for each in claim.mechanism)
    for each in claim.decide:
        yield "decide", each.metric, method
        if (other := each.compared_with(claim.against)) in claim.against:
            yield "decide", each.metric, other


def _measured(trains: str, config: StageConfig) -> Collection[str] | None:
    """What is in the curve of an arm; None where its config cannot say so."""
    describe = getattr(config, "metrics", None)
    if describe is None:
        return None
    own = {name if "/" in name else f"{trains}/{name}" for name in describe()}
    own |= {f"schedule/{path}" for path, _ in schedules_in(config)}
    if (exchange := _exchange(config)) is not None:
        # It imports torch, which no other claim needs.
        from posttrain.learning.rl.several import EXCHANGE

        own |= {EXCHANGE + name for name in exchange.METRICS}
    return own


def _of_one_policy(metric: str, config: StageConfig) -> str:
    """Name for all policies what is of one of several, `rl/NAME/reward`."""
    stage, _, rest = metric.partition("/")
    return metric if _exchange(config) is None else f"{stage}/{rest.partition('/')[2]}"


def _exchange(config: StageConfig) -> Any:
    return getattr(config, "exchange", None)
