"""Draw problems that the policy solves sometimes."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from posttrain.learning.curriculum.base import (
    GroupResult,
    ProblemPool,
    ProblemSampler,
    WeightedStream,
)
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor


class SolveRate(ProblemSampler):
    """Draw problems that are solved sometimes, by (p(1-p))^exponent at their solve rate p.

    A group of rollouts that all succeed, or all fail, has no advantage and no gradient, and
    sqrt(p(1-p)) is the standard deviation of a reward that is 1 with probability p. Expected solve
    rates begin with the probe's counts and follow the rollouts.

    Source: p(1-p) is the learnability of Rutherford et al., arXiv 2408.15099, and, for language
    models, of Foster et al., arXiv 2502.12272, of which the abstracts were read. The exponent, its
    default, strata and fading counts are own.
    """

    NEEDS = frozenset({"solve_rates"})
    METRICS: ClassVar[Mapping[str, str]] = {
        "solve_rate": "mean expected solve rate of all problems",
        "signal": "mean of sqrt(p(1-p)) over all problems, of the most that it can be",
    }

    kind: Literal["solve_rate"] = "solve_rate"
    prior: float = Field(default=2.0, gt=0.0)
    """Attempts, at the rate of its stratum, that every problem is taken to have had."""
    memory: float = Field(default=0.98, gt=0.0, le=1.0)
    """What an attempt counts for one step later, as the policy moves on."""
    exponent: float = Field(default=0.5, ge=0.0)
    """0.5 draws by the standard deviation of the reward, 1 by its variance, 0 uniformly."""

    def start(self, pool: ProblemPool) -> "SolveRateStream":
        """Begin from the probe's counts; a problem that was not probed has none.

        A stratum is what has one source and one difficulty.

        Args:
            pool: Problems with their solve rates.

        Returns:
            A stream of problems, with its state.

        Raises:
            UserError: The solve rates are of another policy or of other problems, or all attempts
                had the same result.

        """
        problems, rates = pool.problems, pool.solve_rates
        assert rates is not None
        _check_policy(rates, pool)
        counts = {
            row[0]: row[1:] for row in rates.select("problem_id", "solved", "attempts").rows()
        }
        ids = problems["id"].to_list()
        solved, attempts = zip(*(counts.get(name, (0, 0)) for name in ids), strict=True)
        if not any(attempts):
            raise UserError(
                f"{pool.where}: none of the {len(problems)} problems was probed; connect the solve"
                " rates of these problems"
            )
        if sum(solved) in (0, sum(attempts)):
            outcome, remedy = ("succeeded", "harder") if sum(solved) else ("failed", "easier")
            places = "" if sum(solved) else pool.places()
            stated = (
                f"; an answer counts that stands {places}: if probe/format_rate is 0, let `answer`"
                " of that verifier be where the policy writes it"
            )
            raise UserError(
                f"{pool.where}: all {sum(attempts)} probed attempts {outcome}, so no group would"
                f" differ in its rewards; take {remedy} problems, or a policy that solves some of"
                f" them{stated if places else ''}"
            )
        strata = problems.select("source", "difficulty").rows()
        return SolveRateStream(ids, strata, solved=solved, attempts=attempts, config=self)


class SolveRateStream(WeightedStream):
    """Solved and failed attempts of every problem, fading step by step.

    A problem's expected solve rate leans on that of its stratum: wholly where it was never
    attempted, and the more the older its attempts are.
    """

    def __init__(
        self,
        ids: Sequence[str],
        strata: Sequence[Hashable],
        *,
        solved: Sequence[float],
        attempts: Sequence[float],
        config: SolveRate,
    ) -> None:
        import torch

        super().__init__(ids)
        self.config = config
        numbers = {stratum: number for number, stratum in enumerate(dict.fromkeys(strata))}
        self.stratum_P = torch.tensor([numbers[stratum] for stratum in strata])
        self.solved_P = torch.tensor(solved, dtype=torch.float64)
        self.attempts_P = torch.tensor(attempts, dtype=torch.float64)

    def rates(self) -> "Tensor":
        """Expected solve rate of every problem, ``[P]``; 1/2 for a stratum without attempts."""
        import torch

        sums = torch.zeros(int(self.stratum_P.max()) + 1, dtype=torch.float64)
        solved_S = sums.index_add(0, self.stratum_P, self.solved_P)
        attempts_S = sums.index_add(0, self.stratum_P, self.attempts_P)
        # Half a success and half a failure beforehand: no stratum is taken to be certain.
        usual_P = ((solved_S + 0.5) / (attempts_S + 1))[self.stratum_P]
        prior = self.config.prior
        return (self.solved_P + prior * usual_P) / (self.attempts_P + prior)

    def weights(self) -> "Tensor":
        """(p(1-p))^exponent of every problem at its expected solve rate, ``[P]``."""
        return self._variances() ** self.config.exponent

    def observe(self, results: Sequence[GroupResult]) -> None:
        """Let a step pass: what was known fades, and the judged attempts are added."""
        self.solved_P = self.config.memory * self.solved_P
        self.attempts_P = self.config.memory * self.attempts_P
        for result in results:
            judged = [solved for solved in result.solved if solved is not None]
            self.solved_P[result.problem] += sum(judged)
            self.attempts_P[result.problem] += len(judged)

    def state_dict(self) -> dict[str, Any]:
        """The counts."""
        return {"solved": self.solved_P.clone(), "attempts": self.attempts_P.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from counts that `state_dict` gave."""
        self.solved_P, self.attempts_P = state["solved"].clone(), state["attempts"].clone()

    def metrics(self) -> dict[str, float]:
        """Mean expected solve rate, and the mean of 2 sqrt(p(1-p)), which is 1 at p = 1/2."""
        return {
            "solve_rate": float(self.rates().mean()),
            "signal": float(2 * self._variances().sqrt().mean()),
        }

    def _variances(self) -> "Tensor":
        rate_P = self.rates()
        return rate_P * (1 - rate_P)


def _check_policy(rates: "pl.DataFrame", pool: ProblemPool) -> None:
    others = sorted(set(rates["policy"]) - {pool.policy})
    if others:
        raise UserError(
            f"{pool.where}: the solve rates are those of policy {others[0][:12]}, but this one is"
            f" {pool.policy[:12]}; probe the policy that RL starts from"
        )
