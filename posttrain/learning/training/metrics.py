"""The names of what supervised training measures, and the refusal of names that no step has."""

from collections.abc import Iterable, Mapping

from posttrain.stage.errors import nearest

STEP: Mapping[str, str] = {
    "loss": "loss before the step, a mean over the tokens (pairs) that bear it, in nats",
    "grad_norm": "norm of the gradient before clipping",
    "learning_rate": "learning rate of the step",
}
"""Metrics that every trainer has at every step; those of the maths come beside them."""
ROUTED: Mapping[str, str] = {
    "router_loss": "how unevenly routers spread the step's tokens over experts, a mean over layers:"
    " as many as a token goes to where all get the same, all of them where one gets every token",
}
"""Metrics of a trainer with a loss of the router."""
HELDOUT: Mapping[str, str] = {
    "heldout_loss": "the loss on rows (pairs) held out, at the steps where the early stop measures",
}
"""Metrics of a trainer with an early stop."""
PAIR_METRICS: Mapping[str, str] = {
    "accuracy": "share of pairs in the right order, a tie counting half",
    "margin": "mean reward of the chosen minus that of the rejected",
    "chosen_reward": "mean reward of the chosen",
    "rejected_reward": "mean reward of the rejected",
}
"""Metrics of what learns from pairs; what a reward is there, the loss says.

The tracker has one more, `seconds_per_step`, which no artifact holds.
"""


def check_metric(metric: str, known: Iterable[str], *, where: str, why: str | None = None) -> None:
    """Refuse the name of a metric that no step measures.

    Args:
        metric: The name, as a recipe gives it.
        known: Those that there are.
        where: Field of the recipe that names it.
        why: Ends the sentence with why it is not there, where that is known.

    Raises:
        ValueError: It is not known; the nearest one is named.

    """
    names = list(known)
    if metric not in names:
        remedy = nearest(metric, names) or "; name another metric"
        raise ValueError(f"{where}: no metric is called '{metric}'{why or ''}{remedy}")
