"""Next-token prediction on prompts and texts: what pretraining and SFT share."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.data.batching import Mixture
from posttrain.data.contexts import AnyPrompt, LearnedTurns, PromptInContext, prompt_keys
from posttrain.data.rows import (
    RowFacts,
    TokenBatch,
    TokenRow,
    TokenTable,
    check_answers,
    encode_rows,
)
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.early_stop import hold_out
from posttrain.learning.training.lengths import RowLimit, choose_limit
from posttrain.learning.training.prepare import (
    prepare_for_training,
    remember_answers,
    stop_at_turns,
)
from posttrain.learning.training.prompt_values import rows_above_values
from posttrain.learning.training.supervised import train
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.token_batches import (
    LossOf,
    check_fit,
    cross_entropy,
    fitting,
    heldout_batches,
    loss_by,
    prepare_packed,
    reference_logprobs,
    token_batches,
)
from posttrain.stage.context import StageContext
from posttrain.stage.schedule import at

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy


@dataclass(frozen=True)
class Corpus:
    """Prompts with the texts that follow them, and what is known of each row."""

    prompts: Sequence[AnyPrompt]
    texts: Sequence[str]
    mask_prompts: bool = True
    turns: LearnedTurns = "last"
    mixture: Mixture | None = None
    facts: RowFacts | None = None
    """Weights and judgments of the rows; None where all rows count alike."""
    sources: Sequence[str] = ()
    """Where each row comes from; () where nobody says."""

    def take(self, kept: Sequence[int]) -> "Corpus":
        """The rows of these indices."""
        return Corpus(
            [self.prompts[index] for index in kept],
            [self.texts[index] for index in kept],
            self.mask_prompts,
            self.turns,
            self.mixture and Mixture([self.mixture.groups[i] for i in kept], self.mixture.shares),
            self.facts and self.facts.take(kept),
            self.sources and [self.sources[index] for index in kept],
        )


def next_token_objective(
    policy: "Policy",
    corpus: Corpus,
    *,
    config: TrainingConfig,
    context: StageContext,
    where: str,
    loss_of: LossOf = cross_entropy,
    new_model: bool = False,
) -> tuple[SupervisedObjective[TokenBatch], int, RowLimit]:
    """Encode, leave out what is too long, check, hold out, and plan every step.

    The policy remembers how long the answers are that it is taught.

    Args:
        policy: Model and tokenizer.
        corpus: Prompts and texts, and how they are mixed.
        config: Longest row, budgets, passes, early stop.
        context: Of the stage; gives the seed, takes notes.
        where: Name of the stage, for messages.
        loss_of: Finds in the config what a row is learned by; cross-entropy without it.
        new_model: The model begins from nothing: its context becomes the longest row's limit.

    Returns:
        The objective, the number of rows kept, and how long they may be.

    """
    check_answers(policy.tokenizer, corpus.prompts, corpus.texts)
    rows = encode_rows(
        policy.tokenizer,
        corpus.prompts,
        corpus.texts,
        mask_prompts=corpus.mask_prompts,
        turns=corpus.turns,
    )
    lengths = [len(row.ids) for row in rows]
    limit = choose_limit(policy.model, lengths, corpus.sources, config, new_model=new_model)
    limit.tell(context.note)
    kept = fitting(rows, max_length=limit.tokens, where=where)
    # Said aloud: a limit that drops half of the data would look like a small data set.
    if len(kept) < len(rows):
        context.note(f"left out {len(rows) - len(kept)} rows over {limit.tokens} tokens")
    rows, corpus = [rows[index] for index in kept], corpus.take(kept)
    check_fit(policy, rows)
    if corpus.mask_prompts:
        _remember(policy, rows, corpus, where)
    part = loss_of(at(config, 0, {}))
    rows, corpus = _with_facts(part.NEEDS, policy, rows, corpus, config, note=context.note)
    facts = corpus.facts
    asked = prompt_keys(corpus.prompts)
    # A text that answers nothing stands for itself.
    keys = [key or text for key, text in zip(asked, corpus.texts, strict=True)]
    taught, held = hold_out(keys, config.learner.early_stop, seed=context.seed)
    learned = [rows[index] for index in taught]
    batches = token_batches(
        policy,
        learned,
        corpus.take(taught).mixture,
        config=config,
        seed=context.seed,
        facts=facts and facts.take(taught),
        losses=None if new_model else _losses(policy, learned, config),
    )
    prepare_packed(policy, config)
    measured = None
    if held:
        left = [rows[index] for index in held]
        measured = heldout_batches(policy, left, config, facts and facts.take(held))
    objective = SupervisedObjective(
        batches=batches,
        loss=loss_by(part),
        heldout=measured,
        digests={"rows": TokenTable(rows, pad=0, facts=facts).digest},
        routed=TokenBatch.routed,
        loss_at=lambda changed: loss_by(loss_of(changed)),
    )
    return objective, len(rows), limit


def _with_facts(
    needs: Collection[str],
    policy: "Policy",
    rows: list[TokenRow],
    corpus: Corpus,
    config: TrainingConfig,
    *,
    note: Callable[[str], None],
) -> tuple[list[TokenRow], Corpus]:
    """What a loss needs to know of the rows, and those that it learns."""
    if "reference" in needs:
        assert corpus.facts is not None
        references = reference_logprobs(policy, rows, config)
        corpus = replace(corpus, facts=replace(corpus.facts, references=references))
    if "targets" in needs:
        assert corpus.facts is not None
        assert corpus.facts.taught is not None
        corpus.facts.taught.refuse_other_tokens(rows, where=config.STAGE)
    if "advantages" in needs:
        assert corpus.facts is not None
        above, known = rows_above_values(policy, rows, corpus.facts, config, note=note)
        rows = [rows[index] for index in above]
        corpus = replace(corpus, facts=known).take(above)
    return rows, corpus


def _losses(
    policy: "Policy", rows: Sequence[TokenRow], config: TrainingConfig
) -> list[float] | None:
    """What the policy as it is loses on each row, in nats a token; None where nobody asks."""
    if config.pace.by != "loss":
        return None
    return [-float(each.mean()) for each in reference_logprobs(policy, rows, config)]


def _remember(policy: "Policy", rows: Sequence[TokenRow], corpus: Corpus, where: str) -> None:
    """Let the policy remember its answers; how long a plain text is says nothing of answers."""
    sources = corpus.sources or [where] * len(rows)
    has_prompt = [bool(PromptInContext.of(prompt).text) for prompt in corpus.prompts]
    remember_answers(
        policy.model, list(compress(rows, has_prompt)), list(compress(sources, has_prompt))
    )


def fit(
    policy: "Policy",
    corpus: Corpus,
    outputs: Mapping[str, Path],
    *,
    config: TrainingConfig,
    context: StageContext,
    loss_of: LossOf = cross_entropy,
    new_model: bool = False,
) -> dict[str, float]:
    """Train a policy to predict the texts, and save it with its curve.

    Args:
        policy: Trained in place.
        corpus: What it learns from.
        outputs: Paths of `policy` and `curve`.
        config: Budgets, optimization and limits; its `STAGE` is what metrics begin with.
        context: Of the stage.
        loss_of: Finds in the config what a row is learned by; cross-entropy without it.
        new_model: The model begins from nothing: its context becomes the longest row's limit.

    Returns:
        The stage's metrics.

    """
    where = config.STAGE
    # Before the rows are read: what a loss compares with is the policy as it is held.
    trainable = prepare_for_training(policy.model, config.learner, seed=context.seed)
    objective, num_rows, limit = next_token_objective(
        policy,
        corpus,
        config=config,
        context=context,
        where=where,
        loss_of=loss_of,
        new_model=new_model,
    )
    curve = Curve(context)
    num_steps = train(
        trainable, objective, config=config, context=context, curve=curve, prefix=where
    )
    stop_at_turns(policy.model, policy.tokenizer)
    trainable.save(policy.tokenizer, outputs["policy"])
    curve.write(outputs["curve"])
    return {
        f"{where}/loss": curve.last(f"{where}/loss", window=20),
        f"{where}/num_steps": float(num_steps),
        f"{where}/num_rows": float(num_rows),
        f"{where}/num_too_long": float(len(corpus.texts) - num_rows),
        **limit.metrics(where),
    }
