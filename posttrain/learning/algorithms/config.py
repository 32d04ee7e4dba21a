"""An algorithm of reinforcement learning as a tree of independent parts and settings.

A name such as "GRPO" means other things in other frameworks. What counts is this tree: it is
hashed by `identity`, named with its source by `presets`, and carried out by `objective`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.advantages.group import GroupAdvantage
from posttrain.learning.algorithms.advantages.registry import ADVANTAGES
from posttrain.learning.algorithms.foreign_losses.registry import ForeignLossConfig
from posttrain.learning.algorithms.part import AlgorithmFacts, AlgorithmPart, named_parts
from posttrain.learning.algorithms.regularizers.registry import REGULARIZERS, RegularizerConfig
from posttrain.learning.algorithms.surrogates.base import Surrogate
from posttrain.learning.algorithms.surrogates.clip import ClipSurrogate
from posttrain.learning.algorithms.surrogates.registry import SURROGATES
from posttrain.learning.algorithms.token_weights.base import TokenWeight
from posttrain.learning.algorithms.token_weights.registry import TOKEN_WEIGHTS
from posttrain.stage.config import StageConfig
from posttrain.stage.schedule import Schedulable, at
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from torch import Tensor


class AggregationConfig(StageConfig):
    """How the losses of tokens become one number."""

    kind: Literal[
        "token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant_length"
    ] = "token_mean"
    """Over all tokens; over sequences of their mean or sum; sum over a constant length."""
    length: int | None = Field(default=None, ge=1)
    """The constant of `constant_length`, in tokens; none takes the limit of generation."""

    @model_validator(mode="after")
    def _length_is_used(self) -> Self:
        if self.length is not None and self.kind != "constant_length":
            raise ValueError(
                f"length is the constant of constant_length, but kind is {self.kind};"
                " set kind to constant_length, or leave length out"
            )
        return self


class CriticConfig(Schedulable):
    """The loss of a value model: `coefficient x 1/2 max((V - R)^2, (clipped V - R)^2)`.

    With `target: outcome` it is the cross-entropy of `sigmoid(mean V)`, over the tokens of a
    sequence, with its outcome, which each of its tokens bears.
    """

    coefficient: float = Field(default=1.0, gt=0.0)
    """Weight of the value loss."""
    clip: float | None = Field(default=0.2, gt=0.0)
    """How far a value may move before its gradient stops; none for the plain squared error."""

    target: Literal["return", "outcome"] = "return"
    """What values are: the return that follows a token, or log-odds that the rollout is right."""

    def loss(
        self,
        values_BT: "Tensor",
        *,
        returns_BT: "Tensor",
        old_values_BT: "Tensor",
        mask_BT: "Tensor",
        aggregation: AggregationConfig,
        denominator: "Tensor | float",
    ) -> "tuple[Tensor, dict[str, Tensor]]":
        """Give a part's share of the critic's loss, by functions of `maths.gae`.

        Args:
            values_BT: Of the critic, with gradient.
            returns_BT: Its targets, of `objective.advantages`.
            old_values_BT: The values that `objective.advantages` was given.
            mask_BT: The drawn tokens.
            aggregation: How the losses of tokens become one number.
            denominator: Of the whole batch.

        Returns:
            The loss, a scalar, and its metrics.

        """
        from posttrain.learning.maths.gae import outcome_loss, value_loss

        if self.target == "outcome":
            loss, metrics = outcome_loss(
                values_BT,
                returns_BT,
                mask_BT=mask_BT,
                aggregation=aggregation.kind,
                denominator=denominator,
            )
            return self.coefficient * loss, metrics
        loss, metrics = value_loss(
            values_BT,
            returns_BT,
            old_values_BT=old_values_BT,
            mask_BT=mask_BT,
            clip=self.clip,
            aggregation=aggregation.kind,
            denominator=denominator,
        )
        return self.coefficient * loss, metrics


class OverlongConfig(Schedulable):
    """A penalty for completions that come near the limit of tokens, added to the reward."""

    share: float = Field(default=0.2, gt=0.0, le=1.0)
    """Part of the limit, at its end, over which the penalty grows from 0."""
    limit: int | None = Field(default=None, ge=1)
    """Tokens at which it is whole; none takes the limit of generation."""
    factor: float = Field(default=1.0, gt=0.0)
    """The whole penalty."""
    bounded: bool = True
    """Whether it stops growing at the limit."""

    def buffer(self, max_tokens: int | None) -> tuple[int, int]:
        """The limit and the tokens before it that cost something, for a limit of generation."""
        limit = self.limit or max_tokens
        if limit is None:
            raise ValueError("overlong without a limit needs max_tokens")
        return limit, max(1, round(self.share * limit))

    def penalty(self, length_B: "Tensor", max_tokens: int | None) -> "Tensor":
        """Give what the factor is taken of; see `overlong_penalty`.

        Args:
            length_B: Tokens of each completion.
            max_tokens: The limit of generation, where it has none of its own.

        Returns:
            What to add to the rewards but for the factor, ``[B]``.

        """
        limit, buffer = self.buffer(max_tokens)
        return overlong_penalty(length_B, limit=limit, buffer=buffer, bounded=self.bounded)


def overlong_penalty(
    length_B: "Tensor", *, limit: int, buffer: int, bounded: bool = True
) -> "Tensor":
    """Penalize length: 0 up to ``limit - buffer``, then down by ``1 / buffer`` a token.

    Take the reward *without* it to tell whether a group has any variance, as NeMo-RL does: else
    lengths alone make a solved problem look unsolved.

    Args:
        length_B: Tokens of each completion.
        limit: Tokens at which the penalty is -1.
        buffer: Tokens before the limit over which it grows. 0 gives 0 up to the limit, then -1
            (-infinity if not bounded).
        bounded: Beyond the limit, True stays at -1 (DAPO's paper, arXiv 2503.14476; TRL, OpenRLHF);
            False goes on (verl, AReaL, NeMo-RL). A completion cannot pass the limit unless the
            limit is below that of generation.

    Returns:
        What to add to the rewards, ``[B]``.

    """
    import torch

    excess_B = (length_B - (limit - buffer)).clamp(min=0).float()
    penalty_B = torch.where(excess_B > 0, -excess_B / buffer, 0.0)
    return penalty_B.clamp(min=-1.0) if bounded else penalty_B


class Algorithm(StageConfig):
    """The whole algorithm. Without any setting it is the preset `default`."""

    IDENTITY_OF: ClassVar[str] = "policy-gradient"

    advantage: Annotated[Advantage, InSlot(ADVANTAGES)] = GroupAdvantage()
    """How rewards become advantages."""
    surrogate: Annotated[Surrogate, InSlot(SURROGATES)] = ClipSurrogate()
    """How the ratio to the old policy enters the loss."""
    old_policy: Literal["engine", "recomputed", "interpolated"] = "engine"
    """Denominator of the ratio: the engine's log-probabilities, the trainer's from before the
    update, or a point between engine and current policy (decoupled PPO without a pass)."""
    token_weights: Annotated[
        dict[str, Annotated[TokenWeight, InSlot(TOKEN_WEIGHTS)]],
        named_parts(TOKEN_WEIGHTS),
    ] = {}
    """Factors on the loss of each token, by name; a kind of that name needs no other word."""
    aggregation: AggregationConfig = AggregationConfig()
    """How the losses of tokens become one number."""
    regularizers: Annotated[
        dict[str, RegularizerConfig],
        named_parts(REGULARIZERS),
    ] = {}
    """What is added to rewards, advantages or loss, by name; such as `kl` and `entropy`."""
    foreign: ForeignLossConfig | None = None
    """How tokens enter the loss that others than the policy wrote, in the surrogate's place; for
    what `draw.additions` lets join a group."""
    critic: CriticConfig | None = None
    """Loss of the critic; none where no critic is trained."""
    overlong: OverlongConfig | None = None
    """Penalty for length; none for no penalty."""

    @property
    def parts(self) -> dict[str, AlgorithmPart]:
        """All parts by their path in the algorithm."""
        return dict(self._parts())

    @property
    def needs(self) -> frozenset[str]:
        """What the learner must compute: names of `part.NEEDS`."""
        old = {"old_logprobs"} if self.old_policy == "recomputed" else set()
        return frozenset().union(old, *(part.needs for part in self.parts.values()))

    @property
    def uses_reference(self) -> bool:
        """True where some part asks for the reference policy."""
        asking = {"reference", "rewards_reference", "reference_divergence"}
        return not self.needs.isdisjoint(asking)

    @property
    def varies_within_rollouts(self) -> bool:
        """True where the tokens of one rollout may have different advantages."""
        added = any(each.changes_advantages for each in self.regularizers.values())
        return self.advantage.PER_TOKEN or added

    @property
    def followed(self) -> tuple[str, ...]:
        """Metrics whose past regularizers are told, as the learner names them, in their order."""
        return tuple(
            self.metric_names(name)[each.FOLLOWS]
            for name, each in self.regularizers.items()
            if each.FOLLOWS
        )

    def metric_names(self, name: str) -> dict[str, str]:
        """Name what a regularizer measures, so that two of one kind are told apart.

        Args:
            name: Its own, among `regularizers`.

        Returns:
            Names among the metrics of a step, by those in the part's `metrics`: the same, or
            ``<name>/<metric>`` where its kind stands twice.

        """
        part = self.regularizers[name]
        kinds = [each.kind for each in self.regularizers.values()]
        before = f"{name}/" if kinds.count(part.kind) > 1 else ""
        return {metric: before + metric for metric in part.metrics}

    def describe(self) -> str:
        """Sum it up, as of its first step: `mean/sample · clip token -0.2 +0.28 · token_mean`."""
        now = at(self, 0, {})
        texts = [now.advantage.describe(), now.surrogate.describe(), now.aggregation.kind]
        if now.old_policy != "engine":
            texts.append(f"old {now.old_policy}")
        texts += [now.foreign.describe()] if now.foreign is not None else []
        texts += [each.describe() for each in now.token_weights.values()]
        texts += [each.describe() for each in now.regularizers.values()]
        texts += ["critic"] * (now.critic is not None)
        texts += ["length penalty"] * (now.overlong is not None)
        texts += ["scheduled"] * (now is not self)
        return " · ".join(texts)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        asks = "values" in self.advantage.needs
        if asks and self.critic is None:
            raise ValueError(
                f"advantage {self.advantage.kind} needs the values of a critic, and there is none;"
                " add a critic section, or set advantage.kind to group"
            )
        if not asks and self.critic is not None:
            raise ValueError(
                f"critic is set, but advantage {self.advantage.kind} never asks it;"
                " leave critic out, or set advantage.kind to gae"
            )
        if self.critic is not None and self.critic.target != self.advantage.CRITIC:
            raise ValueError(
                f"advantage {self.advantage.kind} reads values as {self.advantage.CRITIC}, but"
                f" critic.target is {self.critic.target}; set it to {self.advantage.CRITIC}"
            )
        whole = AlgorithmFacts(
            self.old_policy,
            self.aggregation.kind,
            self.varies_within_rollouts,
            self.advantage.rewards_alone,
        )
        for part in self.parts.values():
            if refused := part.refusal(whole):
                raise ValueError(refused)
        return self

    def _parts(self) -> Iterator[tuple[str, AlgorithmPart]]:
        yield "advantage", self.advantage
        yield "surrogate", self.surrogate
        if self.foreign is not None:
            yield "foreign", self.foreign
        sections: dict[str, dict[str, Any]] = {
            "token_weights": self.token_weights,
            "regularizers": self.regularizers,
        }
        for section, parts in sections.items():
            for name, part in parts.items():
                yield f"{section}.{name}", part
