"""Names of metrics in a claim: what is known of them is looked up before anything is trained."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from posttrain.methods.claim import Arena, MethodClaim
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.formatting import counted
from posttrain.stage.schedule import schedules_in

_OF_EVALUATION: Mapping[str, str] = {
    "pass_at_K": "share of problems solved in K samples",
    "best_of_K": "share right of the best of K samples, where a reward model grades",
    "majority": "share of problems whose most frequent answer is right",
    "mean_length": "mean length of a sample, in tokens",
    "truncation_rate": "share of samples that were cut off",
    "format_rate": "share of samples that state an answer",
    "distinct_right": "different right texts of a problem, mean",
    "brier": "mean squared error of the confidences that texts state",
    "ece": "expected calibration error of these, in ten bins",
    "states_confidence": "share of samples that state one",
    "score": "mean of what episodes earned, where the policy plays",
    "turns": "mean number of turns of an episode, where it plays",
}
"""Metrics of an evaluation that a claim may name. What an environment counts comes beside them, by
the environment's own names, and figures of variants and diagnostics, as `NAME.FIGURE`."""
_OF_PLAY = frozenset({"score", "turns"})
"""What an evaluation measures only where an environment is set, beside what that counts."""
_OF_REWARD_MODEL = "best_of_"
"""Begins what an evaluation measures only where it reads a reward model."""


def refuse_unmeasured_of(
    method: str, claim: MethodClaim, arms: Mapping[str, StageConfig], *, where: str
) -> None:
    """Refuse a claim on what no step of an arm measures.

    Args:
        method: Name of the method's own arm.
        claim: The claim.
        arms: Config of the section that is compared, by arm.
        where: The claim's place, for the error.

    Raises:
        UserError: The metric's place, and the nearest one that the arm measures.

    """
    for part, metric, arm in _read(method, claim):
        if "/" not in metric or (known := metrics_of_curve(claim.trains, arms[arm])) is None:
            continue
        if metric not in known and _of_one_policy(metric, arms[arm]) not in known:
            hint = nearest(metric, known) or f"; {_lists(method)}"
            raise UserError(f"{where}.{part}: arm {arm} measures no '{metric}'{hint}")


def refuse_ungraded(
    method: str,
    claim: MethodClaim,
    arena: Arena,
    evaluation: Any,
    diagnostics: Collection[str],
    *,
    ranks: bool,
    where: str,
) -> None:
    """Refuse a claim on what neither its evaluation nor its diagnosis measures.

    What an environment counts is its own affair: where one is set, a decision and a contract may
    name anything without a dot. Any figure of a variant or a diagnostic that there is passes, too.

    Args:
        method: Name of the method.
        claim: The claim.
        arena: Its arena, whose contract names metrics too.
        evaluation: Config of the evaluation of its arms.
        diagnostics: Names of the diagnostics that look at them.
        ranks: Whether the evaluation reads a reward model.
        where: The claim's place, for the error.

    Raises:
        UserError: The metric's place, and the nearest one that there is.

    """
    named, plays = [*evaluation.variants, *diagnostics], bool(evaluation.environment.authors())
    known = metrics_of_evaluation(evaluation)
    ranked = {each for each in known if each.startswith(_OF_REWARD_MODEL)}
    absent = (set() if ranks else ranked) | (set() if plays else _OF_PLAY)
    graded = [each for each in known if each not in absent]
    contract = f"arena {arena.name}: contract"
    for place, metric in (
        *((contract, each.metric) for each in arena.contract),
        *((f"{where}.mechanism", each.metric) for each in claim.mechanism),
        *((f"{where}.decide", each.metric) for each in claim.decide),
    ):
        if "/" in metric:
            if place == contract:
                raise UserError(
                    f"{place}: {metric} is of a curve, and the base has none; take a metric of the"
                    " evaluation, or a figure, which has a dot"
                )
            continue
        name, dot, _ = metric.partition(".")
        if dot and name not in named:
            told = nearest(name, named) or f"; there are {', '.join(named) or 'none'}"
            raise UserError(
                f"{place}: no variant of evaluate and no diagnostic of diagnose is called"
                f" '{name}', of which {metric} would be a figure{told}"
            )
        if not dot and place == f"{where}.mechanism":
            raise UserError(
                f"{place}: {metric} is no metric of a curve, such as {claim.trains}/..., and no"
                f" figure with a dot; a mechanism looks at these alone: {_lists(method)}"
            )
        if metric in ranked and not ranks:
            raise UserError(
                f"{place}: {metric} is of a reward model, and the evaluation reads none; connect"
                " one in the arena, such as evaluate: {inputs: {reward_model:"
                " reward.reward_model}}, or take another metric"
            )
        if not dot and metric not in graded and not plays:
            told = nearest(metric, graded) or f"; take one of {', '.join(graded)}"
            raise UserError(f"{place}: the evaluation has no '{metric}'{told}")


def metrics_of_evaluation(config: Any) -> dict[str, str]:
    """Describe what an evaluation measures of a policy, beside figures of variants.

    Args:
        config: Of the evaluation.

    Returns:
        A sentence by name, as a claim writes it.

    """
    found: dict[str, str] = {}
    for name, about in _OF_EVALUATION.items():
        if name.endswith("_K"):
            found |= {
                f"{name[:-1]}{k}": about.replace("K samples", counted(k, "sample"))
                for k in sorted({1, *config.pass_at})
            }
        else:
            found[name] = about
    return found


def metrics_of_curve(section: str, config: StageConfig) -> dict[str, str] | None:
    """Describe what is in the curve of a stage.

    Args:
        section: Of the recipe, such as `rl`.
        config: Of the stage.

    Returns:
        A sentence by name, as a claim writes it; None where the config cannot say so.

    """
    describe = getattr(config, "metrics", None)
    if describe is None:
        return None
    own = {name if "/" in name else f"{section}/{name}": each for name, each in describe().items()}
    own |= {f"schedule/{path}": f"value of {path}" for path, _ in schedules_in(config)}
    if (exchange := _exchange(config)) is not None:
        # It imports torch, which no other claim needs.
        from posttrain.learning.rl.several import EXCHANGE

        own |= {EXCHANGE + name: each for name, each in exchange.METRICS.items()}
    return own


def _lists(method: str) -> str:
    """Name the command that lists what a claim may name, also while it names something else."""
    return f"posttrain method metrics {method} lists what there is"


def _read(method: str, claim: MethodClaim) -> Iterator[tuple[str, str, str]]:
    """The metrics that a claim reads: the part of it that names one, its name, and whose it is."""
    yield from (("mechanism", each.metric, method) for each in claim.mechanism)
    for each in claim.decide:
        yield "decide", each.metric, method
        if (other := each.compared_with(claim.against)) in claim.against:
            yield "decide", each.metric, other


def _of_one_policy(metric: str, config: StageConfig) -> str:
    """Name for all policies what is of one of several, `rl/NAME/reward`."""
    stage, _, rest = metric.partition("/")
    return metric if _exchange(config) is None else f"{stage}/{rest.partition('/')[2]}"


def _exchange(config: StageConfig) -> Any:
    return getattr(config, "exchange", None)
