"""A problem's own verifier says which answer is preferred: by its game, or by its scores."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rewards.components.oracles.base import PairOracle
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rewards.verifiers.duel import DuelVerifier


class VerifierOracle(PairOracle):
    """Prefers the answer that the problem's verifier scores higher; equal scores are a tie.

    The verifier `duel` knows more than scores: how often each answer is preferred to each other
    one, which may run in a circle.

    Source: own.
    """

    kind: Literal["verifier"] = "verifier"

    def prefers(
        self,
        problem: "Problem",
        pairs: Sequence[tuple[str, str]],
        scores: Mapping[str, float | None],
    ) -> list[float | None]:
        """Ask the game, or compare the scores; see `PairOracle.prefers`."""
        if (game := game_if_any(problem)) is not None:
            return [game.prefers(first, second) for first, second in pairs]
        return [_better(scores.get(first), scores.get(second)) for first, second in pairs]


def game_of(problem: "Problem") -> "DuelVerifier":
    """Return the verifier of a problem that is a game of answers.

    Args:
        problem: Whose answers are preferred to each other.

    Raises:
        UserError: The problem's verifier is another one.

    """
    if (game := game_if_any(problem)) is None:
        raise UserError(
            f"problem {problem.id} of '{problem.source}' is no game of answers, whose verifier is"
            " duel; take problems of a source answer_game, or compare within the group"
        )
    return game


def game_if_any(problem: "Problem") -> "DuelVerifier | None":
    """Return the verifier of a problem that is a game of answers; None where it is another one."""
    from posttrain.learning.rewards.verifiers.duel import DuelVerifier
    from posttrain.learning.rewards.verify import verifier_of

    found = verifier_of(problem)
    return found if isinstance(found, DuelVerifier) else None


def _better(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return None
    return 0.5 + 0.5 * (first > second) - 0.5 * (first < second)
