"""The names of what RL measures, and the figures of a step's rollouts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, NamedTuple

from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.regularizers.registry import REGULARIZERS
from posttrain.learning.curriculum.base import ProblemSampler
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.score import MANY_UNJUDGED
from posttrain.learning.rl.hints.base import HINT
from posttrain.learning.rl.selections.base import Selection, measured
from posttrain.learning.training.metrics import ROUTED, check_metric
from posttrain.stage.slots import name_of

if TYPE_CHECKING:
    from posttrain.learning.rl.draw_config import DrawConfig
    from posttrain.learning.rl.rollout import Group, Rollout
    from posttrain.learning.rl.updates_config import UpdatesConfig
    from posttrain.learning.training.curve import Curve

CURRICULUM = "rl/curriculum_"
"""Before the names of what a problem sampler measures."""
OF_SELECTION = "selection_"
"""Before the names of what a selection measures."""
INSTRUCTIONS = "rl/instructions_"
"""Before the names of what an instructor measures."""
OF_COMPONENTS = "reward/"
"""Before the names of reward components, and of what their combination measures."""
FLAT_STEPS = 10
"""Steps without any difference after which a component is told to be one number."""
METRICS: Mapping[str, str] = {
    # Rollouts of the step, all that were drawn for it.
    "rl/reward": "mean reward of those that could be judged",
    "rl/unjudged": "share of rollouts that could not be judged, where there are any",
    "rl/unfinished": "share of rollouts that go on in a later step, where there are any",
    "rl/episodes_failed": "share of episodes whose environment broke, where there are any",
    "rl/episodes_late": "share of episodes that were not over at the deadline, where there are any",
    "rl/delivered": "drawn tokens that the learner was given and that were judged / all drawn ones",
    "rl/turns": "mean number of turns of an episode, where any has several",
    "rl/policies": "mean number of policies that drew an episode, where any was carried over",
    "rl/length": "mean length of the completions, in tokens",
    "rl/truncation_rate": "share of completions cut off at max_tokens, or at the most turns",
    "rl/entropy": "mean of -log p of the drawn tokens, in nats",
    "rl/yield": "rollouts in groups that the solver tells apart / all rollouts drawn",
    "rl/all_solved": "share of groups in which every rollout that could be judged is right",
    "rl/none_solved": "share of groups in which none is",
    "rl/rollouts_drawn": "rollouts drawn for the step",
    "rl/tokens_drawn": "tokens drawn for the step, those that branches share once",
    "rl/branched": "share of rollouts that branched off from another, where any did",
    "rl/hinted": "share of rollouts behind a part of a solution, where a producer gives such",
    "rl/hint": "mean share of the solution that was given, where a producer gives such",
    "rl/rounds": "rounds of sampling",
    "rl/rollouts_trained": "rollouts that the learner was given",
    "rl/rollouts_masked": "of those, without loss: cut off, not judged, of a sign left out, stored",
    "rl/trained_share": "rollouts that the learner was given / all rollouts drawn",
    "rl/replayed": "rollouts of earlier steps that were learned from again",
    "rl/added": "rollouts that others wrote, and that joined the groups learned from",
    "rl/added_reward": "their mean reward, of those that could be judged",
    "rl/staleness": "steps by which the trained rollouts' policy is behind, mean",
    "rl/rollouts_stale": "rollouts dropped as older than the bound",
    # The engine against the trainer, before the first update.
    "rl/logprob_gap": "mean distance of the engine's log-probabilities, in nats",
    "rl/logprob_gap_max": "largest such distance at a token",
    "rl/logprob_gap_k3": "KL(engine || trainer) by k3, in nats per token",
    "rl/drift": "logprob_gap of stale rollouts: the policy has moved since",
    "rl/drift_max": "largest such distance",
    "rl/drift_k3": "KL(engine || trainer) of stale rollouts by k3",
    # The updates of the step, as means over them.
    "rl/loss": "loss, all terms",
    "rl/clip_fraction": "share of tokens that a clip caught",
    "rl/approx_kl": "KL(old || policy) by k1, in nats per token",
    "rl/approx_kl_k3": "the same by k3",
    "rl/ratio_mean": "mean ratio of policy to old",
    "rl/weight_mean": "mean importance weight",
    "rl/weight_zero_fraction": "share of tokens whose weight is 0",
    "rl/value_loss": "loss of the critic",
    "rl/value_mean": "mean value",
    "rl/value_squared_error": "mean squared error of the values",
    "rl/value_clip_fraction": "share of values that the clip held",
    "rl/value_grad_norm": "norm of the critic's gradient before clipping",
    "rl/turn_values_loss": "loss of the values of turns, mean over the step's updates of these",
    "rl/turn_values_grad_norm": "norm of their gradient before clipping, likewise",
    "rl/turn_values_stored": "episodes that they may learn from",
    "rl/turn_values_recalled": "stored episodes that the policy learned from",
    "rl/turn_values_recalled_turns": "turns of theirs that it learned from",
    "rl/turn_advantage": "mean advantage of the turns that the policy learned from, unweighed",
    "rl/turn_advantage_positive": "share of these turns whose advantage is above 0",
    "rl/grad_norm": "norm of the gradient before clipping",
    "rl/learning_rate": "learning rate",
    "rl/router_loss": ROUTED["router_loss"],
}
"""Metrics of a step by name, as they stand in the curve and in the tracker.

Not every config measures all of them: `unmeasured` says which it does not, and `RlConfig.metrics`
which it does. Those of the parts, which `of_parts` names, come beside them.
The tracker has more, those in `TRACKER_ONLY`, which no artifact holds.
Of the stage as a whole: `rl/num_rollouts`, `rl/num_updates`, `rl/steps`, `rl/stopped_early`, and
the means over the last steps of reward, length, truncation_rate, entropy and yield.
"""
SECONDS = "rl/seconds_"
"""Before the names of what the wall-clock measures."""
TRACKER_ONLY = tuple(
    f"{SECONDS}{name}" for name in ("sampling", "learning", "waiting", "generating")
)
"""What the wall-clock measures: sampling and learning of the step; with `ahead`, how long the
learner waited for generations that other processes made, and how long these took there."""


class PartMetric(NamedTuple):
    """What one part of a run measures."""

    name: str
    """As in the curve."""
    part: str
    """Slot and kind of the part."""
    description: str


def of_parts(
    algorithm: Algorithm, draw: "DrawConfig", reward: RewardStack, updates: "UpdatesConfig"
) -> Iterator[PartMetric]:
    """Name what the parts of a run measure.

    Args:
        algorithm: Its regularizers measure.
        draw: Its sampler measures, with names after `CURRICULUM`, and an instructor, with names
            after `INSTRUCTIONS`; a selection may measure what it leaves out.
        reward: Its components are measured, and its combination may measure.
        updates: Their rehearsals are measured, and what weighs these.

    Yields:
        One metric after the other; nothing keeps two parts from one name, which
        `RlConfig` refuses.

    """
    for label, part in algorithm.regularizers.items():
        for own, name in algorithm.metric_names(label).items():
            yield PartMetric(f"rl/{name}", name_of(part), part.metrics[own])
    sampler, instructor, selection = draw.sampler, draw.instructions, draw.select
    for name, description in sampler.metrics.items():
        yield PartMetric(CURRICULUM + name, name_of(sampler), description)
    if instructor is not None:
        for name, description in instructor.METRICS.items():
            yield PartMetric(INSTRUCTIONS + name, name_of(instructor), description)
    for name, component in reward.components.items():
        of, kind = f"rl/{OF_COMPONENTS}{name}", name_of(component)
        yield PartMetric(of, kind, f"mean score of {name}, of those that it judged")
        yield PartMetric(f"{of}/deviation", kind, "population deviation of these scores")
        yield PartMetric(f"{of}/unjudged", kind, f"share that {name} could not judge")
    for name, description in selection.METRICS.items():
        yield PartMetric(f"rl/{OF_SELECTION}{name}", name_of(selection), description)
    for name, description in reward.combine.measures().items():
        yield PartMetric(f"rl/{OF_COMPONENTS}{name}", name_of(reward.combine), description)
    yield from _of_updates(updates)


def _of_updates(updates: "UpdatesConfig") -> Iterator[PartMetric]:
    """Name what is measured of that which is learned from beside the rollouts."""
    for name, rehearsal in updates.rehearsals.items():
        kind, of = name_of(rehearsal), f"rl/rehearsal_{name}"
        yield PartMetric(of, kind, f"loss of {name} by token, before its weight")
        yield PartMetric(f"{of}_rows", kind, f"rows of {name} that an update read, mean")
        if rehearsal.APART:
            yield PartMetric(f"{of}_grad_norm", kind, f"norm of the gradient of {name}'s updates")
    if updates.balance is not None:
        terms = [name for name, each in updates.rehearsals.items() if not each.APART]
        for name in ("rollouts", *terms):
            yield PartMetric(f"rl/balance_{name}", name_of(updates.balance), f"weight of {name}")


def unmeasured(
    algorithm: Algorithm, *, oldest: int, carried: int = 0, routed: bool = False
) -> dict[str, str]:
    """Say why a run does not measure what others do.

    Args:
        algorithm: Of the run.
        oldest: Most steps that rollouts are behind the policy that learns from them.
        carried: Most steps over which a rollout is carried.
        routed: True where a router's loss is learned.

    Returns:
        The reason by name, of those in `METRICS` and those of regularizers.

    """
    reasons = [
        ("rl/drift", not oldest, "staleness is 0 and nothing is carried over"),
        ("rl/policies", not carried, "nothing is carried over"),
        ("rl/unfinished", not carried, "nothing is carried over"),
        ("rl/weight_", not algorithm.token_weights, "the algorithm has no token_weights"),
        ("rl/value_", algorithm.critic is None, "the algorithm has no critic"),
        ("rl/router_loss", not routed, "learner.router_loss is not set"),
        ("rl/turn_", "turn_values" not in algorithm.needs, "the advantage is not learned"),
    ]
    found = {
        f"rl/{name}": f"the algorithm has no regularizer of kind {kind}"
        for kind, part in REGULARIZERS.parts.items()
        for name in part.METRICS
    }
    for each in algorithm.regularizers.values():
        silent = each.METRICS.keys() - each.metrics.keys()
        found |= {f"rl/{n}": f"{name_of(each)} does not measure it as it is set" for n in silent}
    for start, absent, why in reasons:
        found |= {name: why for name in METRICS if absent and name.startswith(start)}
    return found


def refuse_unmeasured(
    metric: str,
    measured: Iterable[str],
    lacking: Mapping[str, str],
    *,
    sampler: ProblemSampler,
    where: str,
) -> None:
    """Refuse the name of a metric that no step of a run measures.

    Args:
        metric: The name, as a recipe gives it.
        measured: Names of what the run measures.
        lacking: What `unmeasured` gives.
        sampler: Of the run.
        where: Field of the recipe that names the metric.

    Raises:
        ValueError: It is not measured; the nearest one is named, and the reason if it is known.

    """
    of_sampler, why = metric.startswith(CURRICULUM), lacking.get(metric)
    if of_sampler:
        why = f"{name_of(sampler)} does not measure it"
    known = [name for name in measured if name.startswith(CURRICULUM) == of_sampler]
    check_metric(metric, known, where=where, why=why and f", as {why}")


def describe(groups: Sequence["Group"], *, informative: Sequence[bool]) -> dict[str, float]:
    """Describe a step's rollouts, over all of them, trained on or not.

    Args:
        groups: Rollouts of each problem.
        informative: For each group, True where the solver tells its answers apart.

    Returns:
        Means by name, of components under `OF_COMPONENTS`. `yield` is the share of rollouts in
        groups with signal, the only ones that teach. `entropy` is the mean of -log p over the drawn
        tokens in nats, an unbiased estimate of the policy's. Lengths are in tokens.

    """
    from posttrain.learning.rl.rollout import wholes

    groups = [wholes(group) for group in groups]
    rollouts = [rollout for group in groups for rollout in group]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    solved = [[r.solved for r in group if r.solved is not None] for group in groups]
    judged = [group for group in solved if group]
    num_tokens = sum(rollout.num_drawn for rollout in rollouts)
    # What goes on in a later step is counted there, once: as a whole, and judged.
    over = [rollout for rollout in rollouts if not rollout.unfinished]
    goes_on, lengths = len(rollouts) - len(over), [rollout.num_drawn for rollout in over]
    trained = sum(rollout.trained for rollout in rollouts)
    unjudged = len(over) - len(rewards)
    broke, late = (sum(rollout.end == end for rollout in rollouts) for end in ("failed", "time"))
    learned = sum(rollout.num_drawn for rollout in rollouts if rollout.trained and rollout.judged)
    branched = sum(rollout.shared > 0 for rollout in rollouts)
    turns = [len(rollout.drawn_by_turn) for rollout in rollouts]
    given = [value for row in rollouts for name, value in row.facts if name == HINT]
    policies = [len(set(rollout.versions)) for rollout in rollouts]
    num_informative = sum(len(g) for g, has in zip(groups, informative, strict=True) if has)
    return {
        **({"reward": sum(rewards) / len(rewards)} if rewards else {}),
        **({"length": fmean(lengths)} if over else {}),
        **({"truncation_rate": fmean(rollout.truncated for rollout in over)} if over else {}),
        "entropy": -sum(sum(rollout.logprobs) for rollout in rollouts) / num_tokens,
        "yield": num_informative / len(rollouts),
        **(_solved(judged) if judged else {}),
        "rollouts_drawn": float(len(rollouts)),
        "tokens_drawn": float(sum(rollout.num_new for rollout in rollouts)),
        "rollouts_trained": float(trained),
        "trained_share": trained / len(rollouts),
        **({"unjudged": unjudged / len(over)} if unjudged else {}),
        **({"unfinished": goes_on / len(rollouts)} if goes_on else {}),
        **({"episodes_failed": broke / len(rollouts)} if broke else {}),
        **({"episodes_late": late / len(rollouts)} if late else {}),
        **({"branched": branched / len(rollouts)} if branched else {}),
        **({"hinted": fmean(map(bool, given)), "hint": fmean(given)} if given else {}),
        **({"turns": fmean(turns)} if max(turns) > 1 else {}),
        **({"policies": fmean(policies)} if max(policies) > 1 else {}),
        **({"delivered": learned / num_tokens} if max(turns) > 1 or broke or late else {}),
        **_components(over),
    }


def of_selection(selection: Selection, groups: Sequence["Group"]) -> dict[str, float]:
    """Name what a selection measures of a step.

    Args:
        selection: Of the run.
        groups: All that were drawn for the step.

    Returns:
        Values by name, under `OF_SELECTION`.

    """
    return {OF_SELECTION + name: value for name, value in measured(selection, groups).items()}


def alarms(reward: RewardStack, curve: "Curve", *, step: int) -> Iterator[str]:
    """Say, each once, which components teach nothing or judge little.

    Args:
        reward: The components.
        curve: All steps so far.
        step: Number of the last one, from 1.

    Yields:
        Sentences for a person.

    """
    for name in reward.components:
        of = f"rl/{OF_COMPONENTS}{name}"
        spread = curve.values(f"{of}/deviation")
        flat = len(spread) >= FLAT_STEPS and not any(spread[-FLAT_STEPS:])
        if flat and (len(spread) == FLAT_STEPS or spread[-FLAT_STEPS - 1]):
            yield (
                f"reward component '{name}' gave all answers of the last {FLAT_STEPS} steps one"
                " score, so it teaches nothing there"
            )
        shares = curve.values(f"{of}/unjudged")
        if shares and shares[-1] > MANY_UNJUDGED and max(shares[:-1], default=0) <= MANY_UNJUDGED:
            yield (
                f"reward component '{name}' could not judge {shares[-1]:.0%} of the answers of step"
                f" {step}; they bear no loss where it is paid"
            )


def _components(rollouts: Sequence["Rollout"]) -> dict[str, float]:
    """Mean, deviation and share of unjudged of every component, over all rollouts of a step."""
    columns: dict[str, list[float | None]] = {}
    for rollout in rollouts:
        for name, value in rollout.components:
            columns.setdefault(name, []).append(value)
    found: dict[str, float] = {}
    for name, column in columns.items():
        of = OF_COMPONENTS + name
        judged = [value for value in column if value is not None]
        if judged:
            found |= {of: fmean(judged), f"{of}/deviation": pstdev(judged)}
        found[f"{of}/unjudged"] = 1 - len(judged) / len(column)
    return found


def _solved(groups: Sequence[Sequence[bool]]) -> dict[str, float]:
    return {
        "all_solved": sum(map(all, groups)) / len(groups),
        "none_solved": sum(not any(group) for group in groups) / len(groups),
    }
