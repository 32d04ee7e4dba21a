"""A preference algorithm as independent switches; the named ones are files of `methods`."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, cast

from pydantic import Field, field_validator, model_validator

from posttrain.learning.algorithms.pair_losses.base import LogRatios, LossOnPairs, Terms
from posttrain.learning.algorithms.pair_losses.registry import LOSSES_ON_PAIRS
from posttrain.learning.algorithms.pair_terms.base import PairTerm
from posttrain.learning.algorithms.pair_terms.registry import PAIR_TERMS
from posttrain.learning.algorithms.part import named_parts
from posttrain.stage.errors import nearest
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import InSlot

PreferenceLoss = Literal["sigmoid", "robust", "ipo", "hinge", "kto", "orpo", "simpo"]

_KTO = {
    "desirable_reward": "mean of beta x log-ratio over the chosen",
    "undesirable_reward": "mean of beta x log-ratio over the rejected",
    "reference_point": "divergence from the reference that KTO counts from, in nats",
}
_NLL = {"chosen_nll": "mean negative log-likelihood of the chosen, in nats per token"}
_SUMMED_NLL = {"chosen_nll": "mean negative log-likelihood of the chosen, in nats"}
_ODDS = {"log_odds_ratio": "mean log odds of the chosen minus those of the rejected"}
_SAMPLED = {"sampled_logprob": "mean log-probability of the reference's samples, in nats"}


class PreferenceAlgorithm(Schedulable):
    """Which loss on which quantity of a pair; the name it goes by is no part of it."""

    IDENTITY_OF: ClassVar[str] = "preference"
    # What the reference says of the pairs is computed once, by way of it.
    FIXED: ClassVar[frozenset[str]] = frozenset({"length_alpha"})

    loss: PreferenceLoss | Annotated[LossOnPairs, InSlot(LOSSES_ON_PAIRS)] = "sigmoid"
    """Form of the loss, or a part of the slot `pair_loss`; `orpo`, `simpo` and `contrastive` need
    no reference policy."""
    beta: float = Field(default=0.1, gt=0.0)
    """Scale of the implicit reward; the weight of the odds ratio in `orpo`."""
    label_smoothing: float = Field(default=0.0, ge=0.0, lt=0.5)
    """Assumed share of swapped labels (`sigmoid`: conservative, `robust`: unbiased)."""
    per_token: bool = False
    """Take log-probabilities per token in place of sums over the completion."""
    length_alpha: float = Field(default=1.0, ge=0.0, le=1.0)
    """Weight of tokens beyond the length that both sides share; 1 is the plain sum."""
    target_margin: float = Field(default=0.0, ge=0.0)
    """Margin that `simpo` asks for."""
    undesirable_weight: float = Field(default=1.0, gt=0.0)
    """Weight of rejected completions in `kto`."""
    sft_coefficient: float = Field(default=0.0, ge=0.0)
    """Weight of the chosen completion's own negative log-likelihood, added."""
    sft_per_token: bool = True
    """Take that likelihood per token (iterative RPO) in place of its sum (RPO)."""
    optimism_coefficient: float = Field(default=0.0, ge=0.0)
    """Weight that makes the reference's side of a pair less likely, added; needs rounds."""
    terms: Annotated[
        dict[str, Annotated[PairTerm, InSlot(PAIR_TERMS)]], named_parts(PAIR_TERMS)
    ] = {}
    """What else is added to the loss, by name; such as `own_divergence`."""

    def without_effect(self) -> frozenset[str]:
        """`sft_per_token` without the term."""
        plain = self.sft_coefficient == 0.0
        return frozenset({"sft_per_token"} if plain else ()) | super().without_effect()

    @property
    def form(self) -> "LossForm":
        """All that is to be said of the loss, whether it is built in or a part of its own."""
        return LOSSES[self.loss] if isinstance(self.loss, str) else _form_of(self.loss)

    @property
    def needs_reference(self) -> bool:
        """Whether the loss, or what is added to it, compares with a reference policy."""
        return self.form.needs_reference or self.draws_own

    @property
    def draws_own(self) -> bool:
        """True where the policy draws an answer of its own to each pair's prompt, at every step."""
        return any("own_samples" in each.NEEDS for each in self.terms.values())

    @property
    def needs_scores(self) -> bool:
        """Whether the loss reads the scores of both sides of a pair."""
        return self.form.needs_scores

    @property
    def sums_plainly(self) -> bool:
        """True where every token of a completion counts 1, and none divides by their number."""
        weighed = self.length_alpha < 1 or self.form.token_discount < 1
        return not (self.per_token or weighed)

    @property
    def loss_name(self) -> str:
        """The loss in a word: its name, or the kind of the part."""
        return self.loss if isinstance(self.loss, str) else self.loss.kind

    @property
    def needs_mismatched(self) -> bool:
        """True where the loss compares with prompts that were given another prompt's completion."""
        return self.form.needs_mismatched

    @property
    def takes_label_probs(self) -> bool:
        """True where a pair may be the other way round with some probability: two-sided losses."""
        return "label_prob" in self.form.admits and not self.sft_coefficient

    @property
    def metrics(self) -> Mapping[str, str]:
        """What a step measures beside the figures of its pairs, with a description by name."""
        return {
            **self.form.metrics,
            **((_NLL if self.sft_per_token else _SUMMED_NLL) if self.sft_coefficient else {}),
            **(_SAMPLED if self.optimism_coefficient else {}),
            **{name: said for each in self.terms.values() for name, said in each.METRICS.items()},
        }

    def pair_loss(self, ratios: "LogRatios") -> Terms:
        """Compute the loss itself, without what `sft_coefficient` and the like add to it.

        Args:
            ratios: Of a micro-batch of pairs.

        Returns:
            The loss of these pairs by the denominator; and its metrics.

        """
        return self.form.formula(self, ratios)

    def describe(self) -> str:
        """Sum it up, as of its first step: `sigmoid β 0.1 · smoothing 0.1 · sums`."""
        now = self.at(0)
        texts = [f"{now.loss_name} β {now.beta:g}"]
        if now.label_smoothing:
            texts.append(f"smoothing {now.label_smoothing:g}")
        texts.append("per token" if now.per_token else "sums")
        if now.length_alpha < 1:
            texts.append(f"surplus tokens x{now.length_alpha:g}")
        if now.target_margin:
            texts.append(f"margin {now.target_margin:g}")
        if now.undesirable_weight != 1:
            texts.append(f"rejected x{now.undesirable_weight:g}")
        if now.sft_coefficient:
            summed = "" if now.sft_per_token else " x sum"
            texts.append(f"SFT {now.sft_coefficient:g}{summed}")
        if now.optimism_coefficient:
            texts.append(f"optimism {now.optimism_coefficient:g}")
        texts += [f"{name} {each.coefficient:g}" for name, each in now.terms.items()]
        texts += ["scheduled"] * (now is not self)
        return " · ".join(texts)

    @field_validator("loss", mode="before")
    @classmethod
    def _named_loss(cls, value: Any) -> Any:
        """Find a part by its kind, so that what is wrong with it is said of the part."""
        if isinstance(value, str) and value in LOSSES:
            return value
        if isinstance(value, str) and not LOSSES_ON_PAIRS.has(value):
            known = [*LOSSES, *LOSSES_ON_PAIRS.offered()]
            hint = nearest(value, known) or f"; take one of {', '.join(known)}"
            raise ValueError(f"there is no loss on pairs '{value}'{hint}")
        return LOSSES_ON_PAIRS.parse(value)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        form = self.form
        if form.is_per_token and not self.per_token:
            raise ValueError(f"loss {self.loss_name} works per token; set per_token to true")
        if self.length_alpha < 1 and self.per_token:
            raise ValueError(
                "length_alpha weighs a sum over tokens, but per_token takes their mean;"
                " leave one of them out"
            )
        if form.token_discount < 1 and (self.per_token or self.length_alpha < 1):
            raise ValueError(
                f"loss.discount of {self.loss_name} weighs a sum over tokens by their place, and"
                " per_token and length_alpha weigh it otherwise; leave those out"
            )
        if self.target_margin and "target_margin" not in form.admits:
            raise ValueError(
                f"target_margin is simpo's, but loss is {self.loss_name}; leave it out"
            )
        if self.label_smoothing and "label_smoothing" not in form.admits:
            raise ValueError(
                f"label_smoothing has no effect on {self.loss_name}; leave it out, or take sigmoid"
            )
        if self.draws_own and (self.needs_mismatched or self.optimism_coefficient):
            raise ValueError(
                "own samples of a term stand where kto has mismatched completions and optimism the"
                " reference's samples; leave one of them out"
            )
        return self


class LossForm(NamedTuple):
    """All that is to be said of one loss on pairs; what an algorithm needs derives from it."""

    formula: Callable[[PreferenceAlgorithm, LogRatios], Terms]
    needs_reference: bool = True
    """False where log-probabilities of the policy alone enter the formula."""
    needs_mismatched: bool = False
    """True where it compares with prompts that were given another prompt's completion."""
    needs_scores: bool = False
    """True where the scores of both sides enter the formula."""
    token_discount: float = 1.0
    """Weight of each token against the one before it, where log-probabilities are summed."""
    is_per_token: bool = False
    """True where it is defined on means over tokens only."""
    admits: frozenset[Literal["label_smoothing", "label_prob", "target_margin"]] = frozenset()
    """Switches that others refuse, as they would have no effect there."""
    metrics: Mapping[str, str] = {}
    """What it measures beside the figures of its pairs, with a description by name."""


def _form_of(part: LossOnPairs) -> LossForm:
    """Say of a part what the built-in forms say of themselves."""
    return LossForm(
        lambda algorithm, ratios: part.loss(ratios, beta=algorithm.beta),
        needs_reference="reference" in part.NEEDS,
        needs_scores="scores" in part.NEEDS,
        token_discount=part.token_discount,
        admits=frozenset({"label_prob"} if part.LABEL_PROBS else ()),
        metrics=part.METRICS,
    )


def _of_margins(algorithm: PreferenceAlgorithm, ratios: LogRatios) -> Terms:
    from posttrain.learning.maths.preference import PairLoss, preference_loss

    return preference_loss(
        ratios.chosen_B,
        ratios.rejected_B,
        loss=cast("PairLoss", algorithm.loss),
        beta=algorithm.beta,
        denominator=ratios.denominator,
        label_smoothing=algorithm.label_smoothing,
        known=ratios.known,
    )


def _kto(algorithm: PreferenceAlgorithm, ratios: LogRatios) -> Terms:
    import torch

    from posttrain.learning.maths.pairs import pair_metrics
    from posttrain.learning.maths.preference import kto_loss

    chosen_B, rejected_B, point, denominator, known, _ = ratios
    weights = 1.0 if known is None else torch.cat([known[0], known[0]])
    loss, metrics = kto_loss(
        torch.cat([chosen_B, rejected_B]),
        torch.cat([torch.ones_like(chosen_B), torch.zeros_like(rejected_B)]),
        reference_point=point,
        beta=algorithm.beta,
        # A pair is two completions, and KTO's mean is over completions.
        denominator=2 * denominator,
        desirable_weight=weights,
        undesirable_weight=algorithm.undesirable_weight * weights,
    )
    pairs = pair_metrics(algorithm.beta * chosen_B, algorithm.beta * rejected_B)
    return loss, {**metrics, **pairs, "reference_point": point}


def _orpo(algorithm: PreferenceAlgorithm, ratios: LogRatios) -> Terms:
    from posttrain.learning.maths.preference import orpo_loss

    return orpo_loss(
        ratios.chosen_B,
        ratios.rejected_B,
        weight=algorithm.beta,
        denominator=ratios.denominator,
        weight_B=ratios.weight_B,
    )


def _simpo(algorithm: PreferenceAlgorithm, ratios: LogRatios) -> Terms:
    from posttrain.learning.maths.preference import simpo_loss

    return simpo_loss(
        ratios.chosen_B,
        ratios.rejected_B,
        beta=algorithm.beta,
        target_margin=algorithm.target_margin,
        denominator=ratios.denominator,
        weight_B=ratios.weight_B,
    )


LOSSES: Mapping[PreferenceLoss, LossForm] = {
    "sigmoid": LossForm(_of_margins, admits=frozenset({"label_smoothing", "label_prob"})),
    "robust": LossForm(_of_margins, admits=frozenset({"label_smoothing", "label_prob"})),
    "ipo": LossForm(_of_margins, admits=frozenset({"label_prob"})),
    "hinge": LossForm(_of_margins),
    "kto": LossForm(_kto, needs_mismatched=True, metrics=_KTO),
    "orpo": LossForm(_orpo, needs_reference=False, is_per_token=True, metrics=_NLL | _ODDS),
    "simpo": LossForm(
        _simpo, needs_reference=False, is_per_token=True, admits=frozenset({"target_margin"})
    ),
}
