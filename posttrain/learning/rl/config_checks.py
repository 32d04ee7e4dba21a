"""What sections of an RL config may not say together: each a ValueError with the remedy."""

from collections.abc import Iterable

from posttrain.learning.algorithms.check import check, check_on_policy
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.part import NEEDS
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rl.action_masks.base import ActionMask
from posttrain.learning.rl.additions.base import Addition
from posttrain.learning.rl.instructors.base import Instructor
from posttrain.learning.rl.metrics import METRICS, TRACKER_ONLY, PartMetric
from posttrain.learning.rl.model_config import ValueModelConfig
from posttrain.learning.rl.producers.base import Producer
from posttrain.learning.rl.references.base import ReferencePart
from posttrain.learning.rl.updates_config import UpdatesConfig
from posttrain.learning.training.config import LearnerConfig
from posttrain.stage.errors import UserError
from posttrain.stage.slots import name_of

_OF_PRODUCERS = frozenset({"states"})
"""What the learner of RL cannot compute: producers give it, or do not."""
_OF_THE_WHOLE = frozenset(
    {
        "distribution",
        "reference_divergence",
        "entropy_gradient",
        "vocabulary_ratio",
        "turn_values",
        "generation_logprobs",
    }
)
"""What is not computed of a policy that may not draw every token."""


def check_algorithm(
    algorithm: Algorithm,
    reward: RewardStack,
    *,
    group_size: int,
    max_tokens: int,
    updates_per_step: int,
    oldest: int,
    gives: frozenset[str] = frozenset(),
) -> None:
    """Refuse an algorithm that RL cannot carry out, or not with such a reward.

    Args:
        algorithm: Of the run.
        reward: What answers earn.
        group_size: Rollouts of each problem.
        max_tokens: Longest completion.
        updates_per_step: Optimizer updates on the rollouts of one step.
        oldest: Most steps that a policy which drew something is behind the one that learns from it.
        gives: What the producer gives beside tokens, such as `states`.

    Raises:
        ValueError: The first contradiction, with its remedy.

    """
    where = "algorithm"
    try:
        check(
            algorithm,
            where=where,
            group_size=group_size,
            provided=frozenset(NEEDS) - (_OF_PRODUCERS - gives),
            max_tokens=max_tokens,
        )
        check_on_policy(algorithm, where=where, updates_per_step=updates_per_step, oldest=oldest)
    except UserError as error:
        # Only a ValueError gets the name of the stage put before it.
        raise ValueError(str(error)) from None
    own = algorithm.advantage.truncated
    if own != "keep" and reward.truncated != "counts":
        raise ValueError(
            f"reward.truncated {reward.truncated} and algorithm.advantage.truncated {own}"
            " both say what becomes of answers that were cut off; set the algorithm's to keep"
        )
    for name in reward.by_token:
        scope = reward.components[name].SCOPE
        if scope not in algorithm.advantage.CREDITS:
            takes = "gae or returns" if scope == "token" else "turns, gae or returns"
            raise ValueError(
                f"reward.components.{name} pays every {scope} by itself, but algorithm.advantage"
                f" {algorithm.advantage.kind} does not tell one {scope} of an answer from another;"
                f" take advantage.kind {takes}, or a component of scope answer"
            )
    if reward.combine.apart(reward.components):
        _refuse_more_than_rewards(algorithm, reward.combine.kind)


def _refuse_more_than_rewards(algorithm: Algorithm, combine: str) -> None:
    """Refuse what belongs to no component, where each component has advantages of its own."""
    told = f"reward.combine {combine} takes the advantages of each component by themselves, but"
    if odd := sorted(algorithm.advantage.needs & {"values", "turns", "states", "turn_values"}):
        raise ValueError(
            f"{told} algorithm.advantage {algorithm.advantage.kind} goes by {odd[0]}; take"
            " advantage.kind group or returns, or combine sum"
        )
    if algorithm.overlong is not None:
        raise ValueError(
            f"{told} algorithm.overlong is none of them; set it to null, and add a component"
            " for length"
        )
    if "rewards_reference" in algorithm.needs:
        raise ValueError(
            f"{told} a regularizer pays in the reward; set its place to loss, or combine to sum"
        )


def refuse_other_critics(algorithm: Algorithm, critic: ValueModelConfig) -> None:
    """Refuse a value model that the algorithm does not ask, or not in this way.

    Args:
        algorithm: Of the run.
        critic: What the recipe says of the value model.

    Raises:
        ValueError: With the remedy.

    """
    stored = "turn_values" in algorithm.needs
    if critic != ValueModelConfig() and algorithm.critic is None and not stored:
        raise ValueError(
            "critic is set, but the algorithm has none; set algorithm to ppo, or leave it out"
        )
    if not stored:
        return
    if critic.trunk == "shared":
        raise ValueError(
            "critic.trunk shared is for a critic of the policy's own rollouts, but advantage"
            " learned reads stored ones with weights of its own; set critic.trunk to own"
        )
    told = "advantage learned takes its values from rewards alone, but"
    if algorithm.overlong is not None:
        raise ValueError(
            f"{told} algorithm.overlong would change them; set it to null, and add a reward"
            " component for length"
        )
    if "rewards_reference" in algorithm.needs:
        raise ValueError(f"{told} a regularizer pays in them; set its place to loss")


def refuse_unweighed(algorithm: Algorithm, addition: Addition | None) -> None:
    """Refuse what others wrote where nothing says how it enters the loss.

    Args:
        algorithm: Of the run.
        addition: What lets answers of others join groups; None where nothing does.

    Raises:
        ValueError: With the remedy.

    """
    if addition is not None and algorithm.foreign is None:
        raise ValueError(
            f"draw.additions {addition.kind} lets answers join that the policy has not drawn, and"
            " nothing says how these enter the loss; set algorithm.foreign, such as to shaped"
        )
    if addition is not None and "generation_logprobs" in algorithm.needs:
        raise ValueError(
            f"draw.additions {addition.kind} lets answers join that the policy has not drawn, and"
            " the algorithm compares log-probabilities of all answers as they were drawn; leave the"
            " additions out, or the token weights and regularizers that ask for them"
        )
    if addition is None or algorithm.foreign is None or addition.KNOWS_AUTHORS:
        return
    if algorithm.foreign.ASKS_AUTHORS:
        raise ValueError(
            f"algorithm.foreign {algorithm.foreign.kind} goes by the log-probabilities of an"
            f" answer's author, and draw.additions {addition.kind} does not know them; take"
            " additions.kind stored, or algorithm.foreign shaped or balanced"
        )


def refuse_under_mask(
    mask: ActionMask,
    algorithm: Algorithm,
    updates: UpdatesConfig,
    learner: LearnerConfig,
    *,
    oldest: int,
) -> None:
    """Refuse what is of the whole vocabulary, or of tokens that were drawn under another mask.

    Args:
        mask: Which tokens may be drawn.
        algorithm: Of the run.
        updates: What else is learned from.
        learner: How the gradient is computed.
        oldest: Most steps that a policy which drew something is behind the one that learns from it.

    Raises:
        ValueError: With the remedy.

    """
    told = f"draw.mask {mask.kind}"
    if oldest:
        raise ValueError(
            f"{told} is that of a step for what was drawn in it, but rollouts of earlier steps are"
            " learned from; set staleness to 0, and take a producer that carries nothing over"
        )
    if odd := sorted(algorithm.needs & _OF_THE_WHOLE):
        raise ValueError(
            f"{told} renormalizes the policy, but the algorithm goes by {odd[0]}, which is not of"
            " that; take another part, or leave the mask out"
        )
    for name, there in (
        ("updates.rehearsals", bool(updates.rehearsals)),
        ("updates.replay", updates.replay is not None),
        ("algorithm.foreign", algorithm.foreign is not None),
    ):
        if there:
            raise ValueError(
                f"{told} holds for what the policy draws, but {name} learns from tokens that were"
                " not drawn under it; leave one of the two out"
            )
    if learner.lora is not None:
        raise ValueError(
            f"{told} follows whole weights, but learner.lora trains adapters; leave one of the two"
            " out"
        )


def check_ahead(
    ahead: int, *, staleness: int, max_rounds: int, addition: Addition | None = None
) -> None:
    """Refuse processes that would have nothing to do, and what needs the learner in between.

    Args:
        ahead: Processes that draw while the learner works.
        staleness: Steps by which sampling runs ahead of learning.
        max_rounds: Rounds of sampling per step.
        addition: What lets answers of others join groups; None where nothing does.

    Raises:
        ValueError: With the remedy.

    """
    if ahead > staleness:
        raise ValueError(
            f"ahead {ahead} is more than staleness {staleness}, and no more generations than that"
            f" are drawn before they are learned from; raise staleness, or set ahead to {staleness}"
        )
    if ahead and max_rounds > 1:
        raise ValueError(
            f"draw.max_rounds {max_rounds} samples on by what a round has earned, which only the"
            " learner's process knows; set it to 1, or ahead to 0"
        )
    if ahead and addition is not None and addition.asks_policy:
        raise ValueError(
            f"draw.additions {addition.kind} asks the policy that drew a step about its answers,"
            " and with ahead that policy is gone once they are judged; set ahead to 0"
        )


def refuse_carried_schedules(producer: Producer, schedules: Iterable[str]) -> None:
    """Refuse numbers of the draw that change while a rollout is carried over.

    Args:
        producer: Makes the rollouts.
        schedules: Paths of the numbers that are schedules.

    Raises:
        ValueError: A rollout would be drawn by several of them, and its log-probabilities are those
            of one.

    """
    for path in set(schedules) & {"temperature", "max_tokens", "group_size"}:
        if producer.carried:
            raise ValueError(
                f"{path} is a schedule, and what {name_of(producer)} carries over is drawn"
                " in several steps; write a plain number there, or take a producer that carries"
                " nothing over"
            )


def refuse_beside_masks(
    producer: Producer, algorithm: Algorithm, *, mask: bool, addition: bool
) -> None:
    """Refuse what reads token after token beside rollouts that are rows with masks in them.

    Args:
        producer: Makes the rollouts.
        algorithm: Of the run.
        mask: Whether not every token may be drawn.
        addition: Whether answers of others join groups.

    Raises:
        ValueError: With the remedy.

    """
    if not producer.UNMASKED:
        return
    beside = {
        "algorithm.critic": algorithm.critic is not None,
        "draw.additions": addition,
        "draw.mask": mask,
    }
    if odd := [name for name, there in beside.items() if there]:
        raise ValueError(
            f"{odd[0]} takes what masks hide for what comes next, and {name_of(producer)} makes"
            " rows of masks; leave one of the two out"
        )


def refuse_carried_instructions(producer: Producer, instructor: Instructor | None) -> None:
    """Refuse instructions before rollouts that are carried over.

    Args:
        producer: Makes the rollouts.
        instructor: Says what stands before a problem; None where nothing does.

    Raises:
        ValueError: A rollout would be credited to what stands before the problems of the step in
            which it is over, and it was begun behind those of an earlier one.

    """
    if instructor is None:
        return
    if producer.rewords:
        raise ValueError(
            f"draw.instructions stand before a problem, and {producer.rewords} writes its prompt"
            " anew without them; leave one of the two out"
        )
    if producer.carried:
        raise ValueError(
            f"draw.instructions are credited with the rollouts of their own step, and what"
            f" {name_of(producer)} carries over is of an earlier one; leave draw.instructions out,"
            " or take a producer that carries nothing over"
        )


def refuse_one_name_twice(parts: Iterable[PartMetric]) -> None:
    """Refuse parts that would write over what the learner, or another part, measures.

    Args:
        parts: What the parts of a run measure.

    Raises:
        ValueError: Two measure one name.

    """
    owners = dict.fromkeys((*METRICS, *TRACKER_ONLY), "the learner")
    for each in parts:
        if each.name in owners:
            raise ValueError(
                f"{each.part} measures {each.name}, and so does {owners[each.name]}; rename it"
                f" in the METRICS of {each.part}"
            )
        owners[each.name] = each.part


def refuse_other_learners(learner: LearnerConfig, reference: ReferencePart) -> None:
    """Refuse what other learners do and that of RL does not.

    Args:
        learner: How the gradient is computed.
        reference: What becomes of the reference policy.

    Raises:
        ValueError: A field is for training on rows, or does not go with a policy that is sampled.

    """
    lora = learner.lora
    if learner.packing or learner.early_stop is not None:
        name = "packing" if learner.packing else "early_stop"
        remedy = "lower updates.micro_batch_tokens" if learner.packing else "set stop"
        raise ValueError(f"learner.{name} is for training on rows; leave it out and {remedy}")
    if learner.context_parallel:
        raise ValueError(
            "learner.context_parallel is for training on rows; leave it out, and lower"
            " updates.micro_batch_tokens"
        )
    if lora is not None and lora.save == "adapter":
        raise ValueError(
            "learner.lora.save adapter is not for a policy that others go on from; set it to merged"
        )
    if lora is not None and lora.dropout > 0:
        raise ValueError(
            "learner.lora.dropout would make the log-probabilities differ from the engine's;"
            " set it to 0"
        )
    if lora is not None and reference.MOVES:
        raise ValueError(
            f"reference.kind {reference.kind} follows whole weights, but learner.lora"
            " trains adapters; set kind to frozen, or leave lora out"
        )
