"""Gates on a metric of the evaluation: decided by intervals over problems, never an estimate."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.publishing.release.gates.base import (
    Evidence,
    Gate,
    GateResult,
    StoredEvidence,
)
from posttrain.publishing.release.results import Results, collect, policy_named
from posttrain.publishing.release.statistics import (
    compare_results,
    estimate,
    fewest_samples,
    problems_needed,
)

NO_SIGN_TEST = (
    "test: sign counts problems won and lost and not by how much, so that policies equal in the "
    "mean can pass; leave out test, or set test: mean"
)
"""Why no new release is decided by signs."""


class MetricGate(Gate):
    """A gate on a metric of the evaluation, from its per-problem results."""

    metric: str = Field("pass_at_1", pattern=r"pass_at_[1-9]\d*")
    """pass_at_K: the chance that one of K samples is right, estimated per problem."""
    seeds: int = Field(1, ge=1)
    """Evaluations of exactly this policy, each with another run.seed, that must be there."""
    confidence: float = Field(0.95, gt=0.5, lt=1.0)
    """Of the two-sided interval that decides."""

    best_case: ClassVar[str]
    """A policy that must be able to pass."""
    easier: ClassVar[str]
    """What to ask for where there are too few problems that it could."""

    @abstractmethod
    def decide(self, ours: Results, theirs: Results | None = None) -> GateResult:
        """Decide by results alone, so that whoever has a release can do it again."""

    @abstractmethod
    def problems_needed(self) -> float:
        """Return the problems with fewer of which the best case cannot pass."""

    @property
    def tail(self) -> float:
        """How often the end of the interval that decides may be wrong."""
        return (1 - self.confidence) / 2

    def other_results(self, evidence: Evidence) -> Results | None:  # noqa: ARG002
        """Results of the policy to compare with; None where there is none."""
        return None

    def check(self, evidence: Evidence) -> GateResult:
        """Decide by what is to be released."""
        return self.decide(evidence.results, self.other_results(evidence))

    def judge_again(self, stored: StoredEvidence, stated: Mapping[str, float]) -> GateResult:  # noqa: ARG002
        """Decide by the results that the release holds."""
        return self.decide(stored.results, stored.compared.get(self.name))

    def _refuse(self, rule: str, ours: Results, remedy: str) -> GateResult:
        return GateResult(False, rule, {"seeds": float(len(ours.by_seed))}, remedy)

    def _lacking(self, ours: Results) -> str:
        """What there is too little of, and the remedy; empty where there is enough."""
        have, needed = len(ours.problems), self.problems_needed()
        samples, k = fewest_samples(ours), int(self.metric.removeprefix("pass_at_"))
        if have < max(needed, 1):
            enough = f"{needed:g} are" if math.isfinite(needed) else "no number is"
            return (
                f"{have} problems are too few ({enough} enough for {self.best_case} to pass); "
                f"hold out more problems, or ask for {self.easier}"
            )
        if samples < k:
            return (
                f"{self.metric} needs {k} samples of each problem, and there are {samples}; "
                f"raise {ours.stage}.num_samples, or ask for a smaller k"
            )
        return self._lacking_seeds(ours)

    def _lacking_seeds(self, results: Results) -> str:
        have = len(results.by_seed)
        if have >= self.seeds:
            return ""
        unused = next(seed for seed in range(have + 1) if str(seed) not in results.by_seed)
        return (
            f"policy {results.policy[:12]} was evaluated with {have} of {self.seeds} seeds; "
            "evaluate it again with another one: "
            f"posttrain run --only {results.stage} --set run.seed={unused}, "
            "then posttrain run to come back"
        )


class ThresholdGate(MetricGate):
    """The metric lies above a value: the lower end of its interval does."""

    kind: Literal["threshold"]
    at_least: float

    best_case: ClassVar[str] = "a policy that solves them all"
    easier: ClassVar[str] = "less by at_least"

    def decide(self, ours: Results, theirs: Results | None = None) -> GateResult:  # noqa: ARG002
        """Compare the lower end of the metric's interval with the threshold."""
        rule = (
            f"the lower end of the {self.confidence:.0%} interval of {self.metric} over "
            f"problems is at least {self.at_least:g}, with {self.seeds} or more seeds"
        )
        if lacking := self._lacking(ours):
            return self._refuse(rule, ours, lacking)
        figures = estimate(self.metric, ours, self.confidence)
        return GateResult(self.passes(figures), rule, figures)

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Compare the lower end with the threshold."""
        return figures["low"] >= self.at_least

    def problems_needed(self) -> float:
        """See `MetricGate`: all are solved."""
        return problems_needed(self.at_least, self.tail, best=1.0, lowest=0.0)


class ComparisonGate(MetricGate):
    """A gate on the difference to another policy on the same problems."""

    against: str = "parent"
    """"parent": the release before this one. Otherwise a policy of the same evaluation."""
    without_parent: str | None = None
    """Policy of the evaluation that stands in while there is no release yet."""

    def other_results(self, evidence: Evidence) -> Results | None:
        """Results of the policy to compare with; None where that is a parent that is not there."""
        name: str | None = self.against
        if name == "parent":
            if evidence.parent_results is not None:
                return evidence.parent_results
            name = self.without_parent
        if name is None:
            return None
        evaluation = evidence.chain.evaluation
        policy = policy_named(evaluation, name)
        return collect(evidence.ledger, evidence.finder, policy=policy, evaluation=evaluation)

    def decide(self, ours: Results, theirs: Results | None = None) -> GateResult:
        """Decide by the differences problem by problem."""
        if theirs is None:
            rule = f"{self.metric} is compared with the release before this one"
            remedy = (
                "there is no release to compare with yet; set without_parent: POLICY, a policy of "
                "the same evaluation that stands in for it"
            )
            return GateResult(False, rule, {}, remedy)
        return self._decide(ours, theirs)

    @abstractmethod
    def _decide(self, ours: Results, theirs: Results) -> GateResult: ...

    def _incomparable(self, ours: Results, theirs: Results) -> str:
        """Why two sets of results cannot be compared at all; empty where they can."""
        if dict(ours.basis) != dict(theirs.basis):
            differs = [name for name in ours.basis if ours.basis[name] != theirs.basis.get(name)]
            return (
                f"the other policy was evaluated with other {' and '.join(differs)}; "
                "evaluate both with the recipe as it is now"
            )
        if ours.problems != theirs.problems:
            return (
                "the other policy was evaluated on other problems; evaluate both on the same ones"
            )
        return self._lacking(ours) or self._lacking(theirs)


class ImprovementGate(ComparisonGate):
    """The policy is better by more than a margin, and that is not noise."""

    kind: Literal["improvement"]
    seeds: int = Field(3, ge=2)
    """A single seed cannot show an improvement, so 1 is refused."""
    margin: float = Field(0.0, ge=0.0)
    """Difference that must be exceeded."""
    test: Literal["mean", "sign"] = "mean"
    """mean bounds the mean difference; sign is read in releases of 0.1 and refused for new ones."""

    best_case: ClassVar[str] = "a policy that alone solves them all"
    easier: ClassVar[str] = "a smaller margin"

    def _decide(self, ours: Results, theirs: Results) -> GateResult:
        """Better by more than the margin, beyond what drawing other problems would explain."""
        rule = (
            f"the lower end of the {self.confidence:.0%} interval of the mean difference in "
            f"{self.metric} over the same problems, {self.seeds} or more seeds of each policy, "
            f"exceeds {self.margin:g}"
        )
        if self.test == "sign":
            return self._refuse(rule, ours, NO_SIGN_TEST)
        if refusal := self._incomparable(ours, theirs):
            return self._refuse(rule, ours, refusal)
        _, figures = compare_results(self.metric, ours, theirs, self.confidence)
        return GateResult(self.passes(figures), rule, figures)

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Compare what exceeds the margin, and the p-value of a test where there is one."""
        alpha = 1 - self.confidence
        # Releases of 0.1 could be decided by signs alone.
        if self.test == "sign":
            return figures["difference"] > self.margin and figures["p_value"] <= alpha
        # Releases before STATISTICS 2 asked for flipped signs besides.
        return figures["low"] > self.margin and figures.get("p_flipped", 0.0) <= alpha

    def problems_needed(self) -> float:
        """See `MetricGate`: all were lost before and are solved now."""
        return problems_needed(self.margin, self.tail, best=1.0, lowest=-1.0)


class NoRegressionGate(ComparisonGate):
    """The policy is not worse by more than a tolerance: the interval's lower end says so."""

    kind: Literal["no_regression"]
    seeds: int = Field(1, ge=1)
    tolerance: float = Field(0.02, ge=0.0)
    """Loss that would be accepted."""

    best_case: ClassVar[str] = "a policy that loses none of them"
    easier: ClassVar[str] = "a larger tolerance"

    def _decide(self, ours: Results, theirs: Results) -> GateResult:
        rule = (
            f"the lower end of the {self.confidence:.0%} interval of the mean difference in "
            f"{self.metric} over the same problems is above {-self.tolerance:g}, "
            f"with {self.seeds} or more seeds of each policy"
        )
        if refusal := self._incomparable(ours, theirs):
            return self._refuse(rule, ours, refusal)
        _, figures = compare_results(self.metric, ours, theirs, self.confidence)
        return GateResult(self.passes(figures), rule, figures)

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Compare the lower end with the loss that is accepted."""
        return figures["low"] > -self.tolerance

    def problems_needed(self) -> float:
        """See `MetricGate`: no problem differs. Losses may be among the problems not drawn."""
        return problems_needed(-self.tolerance, self.tail, best=0.0, lowest=-1.0)
