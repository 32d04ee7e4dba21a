"""Two rows for every pair, each on the condition of a score."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.pair_builders.base import Chosen, PairBuilder, PairCandidate
from posttrain.data.pair_builders.best_worst import BestWorstPairs

if TYPE_CHECKING:
    import polars as pl


class RewardAugmentedPairs(PairBuilder):
    """Asks for a score in the prompt: each side of a pair is the better one at its own score.

    Samples are set against each other as by `best_worst`; ready pairs are taken as they are. Of a
    pair with the scores r_w > r_l become two: with r_w asked for, the chosen completion is
    still the chosen one; with r_l asked for, the rejected one is. So a good rejected completion is
    not unlearned. Whoever samples the policy asks for the highest score, in the same words. Pairs
    without scores, and of equal ones, are left out: there both rows would say the opposite.

    Source: Zhang et al., Reward-Augmented Data Enhances Direct Preference Alignment of LLMs
    (arXiv 2410.08067), section 3, and `scripts/reward_augmentation.py` of the authors' code.
    """

    kind: Literal["reward_augmented"] = "reward_augmented"
    asks: str = "Target score of the answer: {score}\n\n{prompt}"
    """The prompt on the condition of a score; `{score}` and `{prompt}` stand for the two."""
    decimals: int = Field(default=2, ge=0, le=6)
    """Decimals of the score as it is written; 1 and 1.0 are written alike."""

    @model_validator(mode="after")
    def _asks_for_both(self) -> Self:
        if "{score}" not in self.asks or "{prompt}" not in self.asks:
            raise ValueError("asks must have both {score} and {prompt} in it")
        return self

    def of_problem(self, samples: Sequence[PairCandidate], limit: int) -> list[Chosen]:
        """Set the best samples against the worst; see `PairBuilder.of_problem`."""
        return BestWorstPairs().of_problem(samples, limit)

    def of_all(self, pairs: "pl.DataFrame") -> "pl.DataFrame":
        """Write each pair twice, the second time with its sides changed over."""
        import polars as pl

        rows = [row for pair in pairs.iter_rows(named=True) for row in self._both(pair)]
        return pl.DataFrame(rows, schema=pairs.schema)

    def _both(self, pair: dict[str, Any]) -> list[dict[str, Any]]:
        high, low = pair["chosen_score"], pair["rejected_score"]
        if high is None or low is None or high == low:
            return []
        swapped = {
            "parents": pair["parents"][::-1],
            "chosen": pair["rejected"],
            "rejected": pair["chosen"],
            "chosen_score": low,
            "rejected_score": high,
        }
        prompt = pair["prompt"]
        return [
            pair | {"prompt": self.asked(prompt, high)},
            pair | swapped | {"prompt": self.asked(prompt, low)},
        ]

    def asked(self, prompt: str, score: float) -> str:
        """Ask a prompt on the condition of a score.

        Args:
            prompt: As it is without one.
            score: Wanted of the answer.

        Returns:
            The prompt of a pair, and of whoever samples for that score.

        """
        # Not `format`: what a prompt has in braces is its own.
        written = f"{round(score, self.decimals) + 0.0:g}"
        return "".join(
            {"{score}": written, "{prompt}": prompt}.get(part, part) for part in _parts(self.asks)
        )


def _parts(text: str) -> list[str]:
    import re

    return re.split(r"(\{score\}|\{prompt\})", text)
