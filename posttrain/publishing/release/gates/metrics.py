"""Gates on a metric of the evaluation: decided by intervals over problems, never an estimate."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from posttrain.publishing.release.gates.base import Evidence, Gate, GateResult
from posttrain.publishing.release.results import Results, collect, policy_named
from posttrain.publishing.release.statistics import compare, estimate, sign_flip_test, sign_test

# With fewer, resampling problems understates how much they differ: one problem has no spread.
_FEWEST_PROBLEMS = 20


class MetricGate(Gate):
    """A gate on a metric of the evaluation, from its per-problem results."""

    metric: str = Field("pass_at_1", pattern=r"pass_at_[1-9]\d*")
    """pass_at_K: the chance that one of K samples is right, estimated per problem."""
    seeds: int = Field(1, ge=1)
    """Evaluations of exactly this policy, each with another run.seed, that must be there."""
    confidence: float = Field(0.95, gt=0.5, lt=1.0)
    """Of the two-sided interval that decides."""

    @abstractmethod
    def decide(self, ours: Results, theirs: Results | None = None) -> GateResult:
        """Decide by results alone, so that whoever has a release can do it again."""

    @abstractmethod
    def passes(self, figures: Mapping[str, float]) -> bool:
        """Return whether figures, which are those of a decision, pass."""

    def resampled(self) -> frozenset[str]:
        """Names of the figures that random numbers have a part in."""
        return frozenset({"low", "high", "p_value", "p_flipped"})

    def other_results(self, evidence: Evidence) -> Results | None:  # noqa: ARG002
        """Results of the policy to compare with; None where there is none."""
        return None

    def check(self, evidence: Evidence) -> GateResult:
        """Decide by what is to be released."""
        return self.decide(evidence.results, self.other_results(evidence))

    def _refuse(self, rule: str, ours: Results, remedy: str) -> GateResult:
        return GateResult(False, rule, {"seeds": float(len(ours.by_seed))}, remedy)

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

    def decide(self, ours: Results, theirs: Results | None = None) -> GateResult:  # noqa: ARG002
        """Compare the lower end of the metric's interval with the threshold."""
        rule = (
            f"the lower end of the {self.confidence:.0%} bootstrap interval of {self.metric} over "
            f"problems is at least {self.at_least:g}, with {self.seeds} or more seeds"
        )
        if lacking := self._lacking_seeds(ours) or _few_problems(ours):
            return self._refuse(rule, ours, lacking)
        figures = estimate(self.metric, ours, self.confidence)
        return GateResult(self.passes(figures), rule, figures)

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Compare the lower end with the threshold."""
        return figures["low"] >= self.at_least


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
        return self._lacking_seeds(ours) or self._lacking_seeds(theirs)


class ImprovementGate(ComparisonGate):
    """The policy is better by more than a margin, and that is not noise."""

    kind: Literal["improvement"]
    seeds: int = Field(3, ge=2)
    """A single seed cannot show an improvement, so 1 is refused."""
    margin: float = Field(0.0, ge=0.0)
    """Difference that must be exceeded."""
    test: Literal["paired_bootstrap", "sign"] = "paired_bootstrap"
    """paired_bootstrap resamples problems; sign is exact, over problems won and lost."""

    def _decide(self, ours: Results, theirs: Results) -> GateResult:
        """Better by more than the margin, beyond what drawing other problems would explain."""
        common = f"{self.metric} over the same problems, {self.seeds} or more seeds of each policy"
        alpha = 1 - self.confidence
        rule = (
            f"the exact sign test over problems won and lost by more than {self.margin:g} gives "
            f"p <= {alpha:.3g}, and the mean difference exceeds it: {common}"
            if self.test == "sign"
            else f"the lower end of the {self.confidence:.0%} paired bootstrap interval of the "
            f"difference in {common}, exceeds {self.margin:g}, and flipping the signs of the "
            f"differences at random gives p <= {alpha:.3g}"
        )
        few = "" if self.test == "sign" else _few_problems(ours)
        if refusal := self._incomparable(ours, theirs) or few:
            return self._refuse(rule, ours, refusal)
        differences_P, figures = compare(self.metric, ours, theirs, self.confidence)
        if self.test == "sign":
            figures["p_value"] = sign_test(differences_P - self.margin)
        else:
            # A bootstrap of few problems is too sure of itself; flipped signs are exact for any
            # number.
            figures["p_flipped"] = sign_flip_test(differences_P - self.margin)
        return GateResult(self.passes(figures), rule, figures)

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Compare what exceeds the margin, and the p-value of the test."""
        signs = self.test == "sign"
        low = figures["difference" if signs else "low"]
        p_value = figures["p_value" if signs else "p_flipped"]
        return low > self.margin and p_value <= 1 - self.confidence

    def resampled(self) -> frozenset[str]:
        """Names of the figures that random numbers have a part in; the sign test is exact."""
        return super().resampled() - ({"p_value"} if self.test == "sign" else set())


class NoRegressionGate(ComparisonGate):
    """The policy is not worse by more than a tolerance: the interval's lower end says so."""

    kind: Literal["no_regression"]
    seeds: int = Field(1, ge=1)
    tolerance: float = Field(0.02, ge=0.0)
    """Loss that would be accepted."""

    def _decide(self, ours: Results, theirs: Results) -> GateResult:
        rule = (
            f"the lower end of the {self.confidence:.0%} paired bootstrap interval of the "
            f"difference in {self.metric} over the same problems is above {-self.tolerance:g}, "
            f"with {self.seeds} or more seeds of each policy"
        )
        if refusal := self._incomparable(ours, theirs) or _few_problems(ours):
            return self._refuse(rule, ours, refusal)
        _, figures = compare(self.metric, ours, theirs, self.confidence)
        return GateResult(self.passes(figures), rule, figures)

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Compare the lower end with the loss that is accepted."""
        return figures["low"] > -self.tolerance


def _few_problems(results: Results) -> str:
    have = len(results.problems)
    if have >= _FEWEST_PROBLEMS:
        return ""
    return (
        f"{have} problems are too few for a bootstrap interval ({_FEWEST_PROBLEMS} at least); "
        "hold out more problems, or ask for an improvement with test: sign"
    )
