"""Fine-tune a policy on rows of text, prompt tokens masked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import torch

from posttrain.data.contexts import prompts_of
from posttrain.data.rows import RowFacts, TokenRow, encode_rows
from posttrain.data.schemas import COMPLETIONS
from posttrain.data.tables import read_table, refuse_nothing_solved
from posttrain.learning.maths.intervals import Interval, clustered_mean_interval
from posttrain.learning.models.load import Policy
from posttrain.learning.training.lengths import most_measured
from posttrain.learning.training.next_token import Corpus, fit
from posttrain.learning.training.prepare import load_to_train
from posttrain.learning.training.row_losses.base import RowLoss
from posttrain.learning.training.token_batches import fitting, reference_logprobs
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.sft.config import SftConfig

if TYPE_CHECKING:
    from posttrain.data.soft_targets import TaughtRows

_UNJUDGED = pl.col("verified").is_null()
_COLUMNS = [
    "id",
    "problem_id",
    "source",
    "prompt",
    "text",
    "verified",
    "score",
    "weight",
    "context",
]


def run(
    config: SftConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read the traces, load the policy, train it, save it."""
    traces = read_table(inputs["traces"], COMPLETIONS, columns=_COLUMNS)
    refuse_nothing_solved(len(traces), where="sft")
    if config.require_verified:
        _refuse_unverified(traces, inputs["traces"])
    traces = _taught(traces, config.loss, inputs["traces"], context)
    taught: TaughtRows | None = None
    if "targets" in config.loss.NEEDS:
        from posttrain.data.soft_targets import rows_with_targets

        traces, taught = rows_with_targets(traces, inputs["targets"], note=context.note)
    policy = load_to_train(
        inputs["policy"],
        config.learner,
        device=context.device,
        processes=context.processes,
    )
    config.template.give_to(policy.tokenizer, where="sft")

    corpus = Corpus(
        prompts_of(traces),
        traces["text"].to_list(),
        turns=config.turns,
        facts=_facts(traces, config.loss, taught),
        sources=traces["source"].to_list(),
    )
    measured = _Measured.of(inputs, policy, config, context)
    before = measured.nll() if measured else None
    metrics = fit(
        policy,
        corpus,
        outputs,
        config=config,
        context=context,
        loss_of=lambda changed: changed.loss,
    )
    if measured is None or before is None:
        return metrics
    after = measured.nll()
    nll, low, high = (float(each) for each in (after.estimate, after.low, after.high))
    # One row says nothing of the spread.
    known = math.isfinite(low)
    span = {"sft/heldout_nll_low": max(0.0, low), "sft/heldout_nll_high": high} if known else {}
    return {
        **metrics,
        "sft/heldout_nll_before": float(before.estimate),
        "sft/heldout_nll": nll,
        **span,
        "sft/heldout_perplexity": math.exp(nll),
        "sft/num_heldout_rows": float(len(measured.rows)),
    }


@dataclass(frozen=True)
class _Measured:
    """Held-out rows, and the policy that is asked how likely they are."""

    policy: Policy
    rows: list[TokenRow]
    config: SftConfig

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, Path],
        policy: Policy,
        config: SftConfig,
        context: StageContext,
    ) -> "_Measured | None":
        """Encode the rows that are held out as those that are learned; None where there are none.

        Several processes have a part of the weights each, and measure nothing.
        """
        if "heldout" not in inputs or context.processes > 1:
            return None
        table = read_table(inputs["heldout"], COMPLETIONS, columns=["prompt", "text", "context"])
        rows = encode_rows(
            policy.tokenizer, prompts_of(table), table["text"].to_list(), turns=config.turns
        )
        most = most_measured(config.max_length, policy.model)
        kept = fitting(rows, max_length=most, where="sft.heldout")
        if len(kept) < len(rows):
            context.note(f"left out {len(rows) - len(kept)} held-out rows over {most} tokens")
        return cls(policy, [rows[index] for index in kept], config)

    def nll(self) -> Interval:
        """Negative log-likelihood of the tokens that bear loss: their mean, in nats a token.

        Tokens of one row go together in the interval, as they are not independent.
        """
        logprobs = reference_logprobs(self.policy, self.rows, self.config)
        counts = torch.tensor([len(each) for each in logprobs])
        row_N = torch.repeat_interleave(torch.arange(len(logprobs)), counts)
        return clustered_mean_interval(-torch.cat(logprobs).double(), row_N)


def _refuse_unverified(traces: pl.DataFrame, path: Path) -> None:
    num_unverified = len(traces) - int(traces["verified"].sum())
    if num_unverified:
        raise UserError(
            f"{path}: {num_unverified} of {len(traces)} traces are not verified; connect the"
            " curated traces, filter on 'verified', or set sft.require_verified to false"
        )


def _taught(traces: pl.DataFrame, loss: RowLoss, path: Path, context: StageContext) -> pl.DataFrame:
    """Leave out the rows that a loss can make nothing of, and say how many.

    What could not be judged is neither to imitate nor to keep away from.
    """
    rate = pl.col("verified").mean().over("problem_id")
    kept_where = {
        "have weight 0": pl.col("weight") > 0,
        **({"could not be judged": ~_UNJUDGED} if "judgments" in loss.NEEDS else {}),
        **({"have no score": pl.col("score").is_not_null()} if "advantages" in loss.NEEDS else {}),
        **(
            {"are of prompts all right or all wrong": (rate > 0) & (rate < 1)}
            if "mixed_prompts" in loss.NEEDS
            else {}
        ),
    }
    for why, kept in kept_where.items():
        before, traces = len(traces), traces.filter(kept)
        if len(traces) < before:
            context.note(f"left out {before - len(traces)} rows that {why}")
        if traces.is_empty():
            raise UserError(
                f"{path}: no row is left to learn from, as {before} {why}; take other rows, or"
                " another sft.loss"
            )
    return traces


def _facts(traces: pl.DataFrame, loss: RowLoss, taught: "TaughtRows | None") -> RowFacts | None:
    """Say what a loss may know of the rows; None where all count alike and it asks for nothing."""
    judged = "judgments" in loss.NEEDS
    asked = judged or not loss.NEEDS.isdisjoint({"reference", "advantages", "targets"})
    if not asked and (traces["weight"] == 1.0).all():
        return None
    if not judged:
        traces = traces.with_columns(verified=pl.lit(value=True))
    rate = pl.col("verified").mean().over("problem_id")
    known = traces.select("weight", "verified", rate=rate.cast(pl.Float64))
    weights, verified, rates = (column.to_list() for column in known.get_columns())
    scores = traces["score"].to_list() if "advantages" in loss.NEEDS else ()
    return RowFacts(weights, verified, rates, scores=scores, taught=taught)
