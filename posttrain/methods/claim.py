"""What a method claims: an experiment with its margin, stated before it is run; and arenas."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from posttrain.stage.config import StageConfig

ClaimedDirection = Literal["higher", "lower", "not_worse", "equal"]
Amount = Literal["rollouts", "updates", "tokens"]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")]


FIRST_TRIAL = 101
"""The first run that settings are tuned on, and no claim is decided."""
ARENA_BASE = "base"
"""In place of an arm's name: the arena's base, from which all arms begin."""


class ClaimDecision(StageConfig):
    """One comparison of the method's arm with another one, or with a number, over seeds."""

    metric: str
    """Of the evaluation: `pass_at_1`, `mean_length`, `brier`, ...; the last value of a curve:
    `rl/...`; or with a dot, of the evaluation's variants or of the diagnosis: `crossing.gap_1`."""
    direction: ClaimedDirection = Field(alias="is")
    """Where the method lies: higher or lower by more than the margin, not worse by as much, equal
    within it (two one-sided tests)."""
    margin: float = Field(ge=0.0)
    """In units of the metric; never 0 for not_worse and equal."""
    better: Literal["higher", "lower"] = "higher"
    """Which way `not_worse` looks."""
    against: str = ""
    """Name of the other arm, or `base` for the policy that arms begin from, which has no curve; may
    be left out where there is only one arm."""
    than: float | None = None
    """A number in place of another arm, such as a limit that is to be kept."""

    @model_validator(mode="after")
    def _compares_with_one_thing(self) -> Self:
        if self.than is not None and self.against:
            raise ValueError(
                f"the decision on {self.metric} is against '{self.against}' and than {self.than:g};"
                " leave one out"
            )
        if self.against == ARENA_BASE and "/" in self.metric:
            raise ValueError(
                f"the decision on {self.metric} is against {ARENA_BASE}, which has no curve; take a"
                " metric of the evaluation"
            )
        return self

    def compared_with(self, arms: Iterable[str]) -> str:
        """Name what the method's arm is compared with, of a claim with these other arms."""
        if self.than is not None:
            return f"{self.than:g}"
        return self.against or next(iter(arms))

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.direction in ("not_worse", "equal") and not self.margin:
            raise ValueError(f"{self.direction} within a margin of 0 cannot be shown; state one")
        return self


class MechanismCheck(StageConfig):
    """A sign that the mechanism really acted in the method's arm; else the claim is void."""

    metric: str
    """Of the arm's curve, such as `rl/clip_fraction`; with a dot, of the evaluation's
    variants or of the diagnosis, such as `crossing.gap_1`."""
    at: Literal["mean", "first", "last", "highest", "change"] = "mean"
    """Which value of the curve counts; `change` is the mean of its last tenth less that of its
    first."""
    at_least: float | None = None
    """Void where it is below this."""
    at_most: float | None = None
    """Void where it is above this."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("state at_least or at_most; a check without a bound cannot fail")
        return self


class MethodClaim(StageConfig):
    """An experiment in an arena: the method against others, paired by seed."""

    name: Name
    """Unique in the method."""
    says: str
    """The claim in a sentence."""
    arena: Name
    """Problems, base model and budget: the name of an arena."""
    against: dict[Name, dict[str, Any]] = {}
    """The other arms by name: sections of a recipe, or `method: NAME` beside them; none where the
    method is compared with the base or with numbers alone."""
    matched: Amount
    """What is equal between the arms."""
    mechanism: tuple[MechanismCheck, ...] = ()
    """What must have happened in the method's own arm."""
    decide: tuple[ClaimDecision, ...] = Field(min_length=1)
    """All of them must hold; one that is refuted refutes the claim."""
    trains: Literal["rl", "coevolve", "preference", "sft", "reward"] = "rl"
    """The section that is compared; reward models are by a diagnosis alone. What an arm sets beside
    it leads to it, such as data of its own or a stage before: stages of that arm alone. All else is
    shared."""
    seeds: int = Field(ge=2)
    """Runs of each arm. No more are added later: that is a new claim."""
    first_seed: int = Field(default=1, ge=1)
    """Number of the first run. A claim that follows from what runs 1 to 5 showed begins with 6."""
    minutes: float = Field(gt=0.0)
    """What all arms take on two cores, roughly."""

    def numbers(self, seeds: int) -> range:
        """Number the runs of each arm, where there are so many.

        Those of a trial, which are not as many as the claim says, start at 101: what a claim is
        tuned on is not what decides it.
        """
        first = self.first_seed if seeds == self.seeds else FIRST_TRIAL
        return range(first, first + seeds)

    @model_validator(mode="after")
    def _amount_is_measured(self) -> Self:
        if self.trains not in ("rl", "coevolve") and self.matched != "updates":
            raise ValueError(
                f"matched: {self.matched} is of RL; arms of {self.trains} draw nothing: set updates"
            )
        return self

    @model_validator(mode="after")
    def _arms_are_known(self) -> Self:
        if ARENA_BASE in self.against:
            raise ValueError(
                f"an arm is called {ARENA_BASE}, which means the arena's base; rename it"
            )
        for each in self.decide:
            if each.than is not None or each.against == ARENA_BASE:
                continue
            if not self.against:
                raise ValueError(
                    f"the decision on {each.metric} is against no arm; add one to against, or"
                    f" compare with {ARENA_BASE} or than a number"
                )
            if not each.against and len(self.against) > 1:
                raise ValueError(
                    f"the decision on {each.metric} does not say against which arm; there are"
                    f" {', '.join(self.against)}"
                )
            if each.against and each.against not in self.against:
                raise ValueError(
                    f"the decision on {each.metric} is against '{each.against}', which is no arm;"
                    f" there are {', '.join(self.against)}"
                )
        return self


class Arena(StageConfig):
    """What the arms of a claim share: problems, base, evaluation, and the budget of an arm."""

    name: Name
    """As the file is called."""
    says: str
    """What is asked, and of which base."""
    sections: dict[str, dict[str, Any]]
    """Sections of a recipe of `flows.claim`, and those that lie under every arm: `rl`, `evaluate`,
    ..."""
    contract: tuple[MechanismCheck, ...] = ()
    """What the base must show in the evaluation; where it does not, claims are void."""
    base: str = "sft"
    """The stage whose policy the contract is about."""
