"""Rollouts of another run in a group, with the log-probabilities of the policy that drew them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.rl.additions.base import AdditionAtWork, AdditionBench
from posttrain.learning.rl.additions.traces import AuthoredTrace, ChosenTraces, TracesAtWork
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STORED = "stored"


class Stored(ChosenTraces):
    """Let rollouts that another run stored join the group of their problem, as traces do.

    Their tokens are those that were drawn, and a foreign loss such as `importance` is given the
    log-probabilities that their author drew them with, behind its own prompt and at its own
    temperature. Only answers of one turn that are over and not known to be wrong join, and that
    spell their whole text: not those that were begun by a hint.
    """

    KNOWS_AUTHORS: ClassVar[bool] = True

    kind: Literal["stored"] = "stored"

    def ports(self) -> tuple[str, ...]:
        """Return the port of the rollouts; see `Addition.ports`."""
        return (STORED,)

    def start(self, bench: AdditionBench) -> AdditionAtWork:
        """Read the rollouts; see `Addition.start`.

        Args:
            bench: Of the run; its inputs have the rollouts.

        Returns:
            What joins the run's groups.

        Raises:
            UserError: The tokens of none of them spell its text, as by another tokenizer.

        """
        import polars as pl

        from posttrain.data.schemas import ROLLOUTS
        from posttrain.data.tables import read_table

        table = read_table(bench.inputs[STORED], ROLLOUTS).filter(
            pl.col("origin") == POLICY,
            pl.col("end") == "over",
            pl.col("solved").fill_null(value=True),
        )
        whole = [row for row in table.iter_rows(named=True) if _of_one_turn(row)]
        spelled = [row for row in whole if _spells_its_text(row, bench.work.tokenizer)]
        if whole and not spelled:
            raise UserError(
                f"rl.inputs.{STORED}: by this policy's tokenizer the tokens of no rollout are its"
                " text; connect rollouts of a policy with the same tokenizer, or take"
                " draw.additions traces"
            )
        found: dict[str, list[AuthoredTrace]] = {}
        for row in spelled:
            trace = AuthoredTrace(row["id"], row["text"], _drawn(row), tuple(row["logprobs"]))
            found.setdefault(row["problem_id"], []).append(trace)
        return TracesAtWork(self, bench, found)


def _of_one_turn(row: Mapping[str, Any]) -> bool:
    """Tell whether it is a prompt, and behind it what was drawn."""
    return [span["drawn"] for span in row["spans"]] == [False, True]


def _drawn(row: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(row["token_ids"][row["spans"][0]["end"] :])


def _spells_its_text(row: Mapping[str, Any], tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Tell whether the drawn tokens begin with the text; what follows is where they stopped."""
    if max(_drawn(row)) >= len(tokenizer):
        return False
    spelled: str = tokenizer.decode(_drawn(row), skip_special_tokens=True)
    return spelled.startswith(row["text"])
