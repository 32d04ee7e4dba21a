"""From prompts and completions to right-padded tensors that say which tokens bear loss."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posttrain.data.contexts import AnyPrompt, LearnedTurns, PromptInContext, without_thinking
from posttrain.data.pair_facts import PairFacts
from posttrain.data.routed_rows import RoutedRows
from posttrain.data.templates import (
    answered_spans,
    encode_completions,
    encode_prompts,
    fitting_answers,
    opening_tokens,
    render_turns,
)
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_parts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from posttrain.data.soft_targets import SoftTargets, TaughtRows


_PROBED = 16
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Packing:
    """The borders inside a packed row of `T` tokens that holds `B` rows.

    `position_ids_BT` ``[1, T]`` restarts at 0 where a row begins. `wanted_rows_BT` is the loss mask
    of the same rows one below the other ``[B, longest]``: read row by row, its true entries are
    the wanted tokens in packed order. `last_B` are the places of the rows' last tokens.
    """

    position_ids_BT: Tensor
    wanted_rows_BT: Tensor
    last_B: Tensor

    def to(self, device: str | torch.device) -> "Packing":
        """The same on `device`."""
        moved = (self.position_ids_BT, self.wanted_rows_BT, self.last_B)
        return Packing(*(tensor.to(device) for tensor in moved))


def packing_of(length_B: Tensor, start_B: Tensor) -> Packing:
    """The borders of rows of these lengths; the tokens from `start_B` on bear loss.

    >>> packing_of(torch.tensor([2, 3]), torch.tensor([1, 1])).position_ids_BT
    tensor([[0, 1, 0, 1, 2]])
    """
    ends_B = length_B.cumsum(0)
    begins_T = torch.repeat_interleave(ends_B - length_B, length_B)
    positions_T = torch.arange(int(ends_B[-1])) - begins_T
    places_T = torch.arange(int(length_B.max()))
    wanted_BT = (places_T >= start_B[:, None]) & (places_T < length_B[:, None])
    return Packing(positions_T[None], wanted_BT, ends_B - 1)


@dataclass(frozen=True)
class TokenRow:
    """A prompt and its completion as one sequence; `start` is the first token that bears loss."""

    ids: tuple[int, ...]
    start: int
    silent: tuple[tuple[int, int], ...] = ()
    """Spans behind `start` that bear no loss, from and to (exclusive): what others said between."""

    @property
    def num_learned(self) -> int:
        """Tokens that bear loss."""
        return len(self.ids) - self.start - sum(end - begin for begin, end in self.silent)

    @property
    def num_last(self) -> int:
        """Tokens of the last answer: those behind what others said last."""
        return len(self.ids) - max((self.start, *(end for _, end in self.silent)))


@dataclass(frozen=True)
class RowFacts:
    """What is known of each of `R` rows beside its tokens, where a loss is to make use of it."""

    weights: Sequence[float]
    """How much a row counts: 2 is as if it stood there twice."""
    positives: Sequence[bool]
    """True for a row to imitate, False for one to keep away from."""
    solve_rates: Sequence[float]
    """Share of right rows among those of the row's prompt that could be judged."""
    references: Sequence[Tensor] = ()
    """Log-probabilities of each row's learned tokens by a reference, in nats; () where not asked
    for."""
    scores: Sequence[float] = ()
    """Of each row; () where not asked for. `advantages` are these less a value of the prompt."""
    advantages: Sequence[float] = ()
    taught: "TaughtRows | None" = None
    """The rows as a teacher read them, with what it says; None where not asked for."""

    def take(self, kept: Sequence[int]) -> "RowFacts":
        """The facts of the rows of these indices."""
        return RowFacts(
            [self.weights[index] for index in kept],
            [self.positives[index] for index in kept],
            [self.solve_rates[index] for index in kept],
            [self.references[index] for index in kept] if self.references else (),
            [self.scores[index] for index in kept] if self.scores else (),
            [self.advantages[index] for index in kept] if self.advantages else (),
            self.taught and self.taught.take(kept),
        )


@dataclass(frozen=True)
class LearnedFacts:
    """The facts of rows at each token that bears loss, row by row, ``[N]``."""

    weights_N: Tensor
    positives_N: Tensor
    solve_rates_N: Tensor
    reference_N: Tensor
    """Log-probabilities by the reference; 0 where none was asked for."""
    advantages_N: Tensor
    """Score of the row less the value of its prompt; 0 where not asked for."""
    targets: "SoftTargets | None" = None
    """What a teacher says of the tokens; None where not asked for."""

    def to(self, device: str | torch.device) -> "LearnedFacts":
        """The same on `device`."""
        known = {name: each for name, each in vars(self).items() if each is not None}
        return LearnedFacts(**{name: each.to(device) for name, each in known.items()})


@dataclass(frozen=True)
class TokenBatch:
    """Right-padded rows, or packed ones in a single row of tensors.

    `wanted_BT` marks the tokens that bear loss; `num_units` counts them, each as often as the row's
    weight says where the rows have facts. Of pairs it counts these, by their weights.
    """

    input_ids_BT: Tensor
    wanted_BT: Tensor
    num_units: float
    packing: Packing | None = None
    facts: LearnedFacts | None = None
    pairs: PairFacts | None = None

    def to(self, device: str | torch.device) -> "TokenBatch":
        """The same batch on `device`."""
        return TokenBatch(
            self.input_ids_BT.to(device),
            self.wanted_BT.to(device),
            self.num_units,
            None if self.packing is None else self.packing.to(device),
            None if self.facts is None else self.facts.to(device),
            None if self.pairs is None else self.pairs.to(device),
        )

    def routed(self) -> RoutedRows:
        """Give the tokens as the router of a mixture of experts takes them."""
        return RoutedRows(self.input_ids_BT, self.wanted_BT, position_ids(self))


def learned_ends(batch: TokenBatch) -> Tensor:
    """Find the last learned token of each row.

    Args:
        batch: Padded or packed; every row has a token that bears loss.

    Returns:
        True at those among the learned tokens ``[N]``, row by row.

    """
    rows_BT = batch.wanted_BT if batch.packing is None else batch.packing.wanted_rows_BT
    counts_B = rows_BT.sum(-1)
    ends_N = rows_BT.new_zeros(int(counts_B.sum()))
    ends_N[counts_B.cumsum(0) - 1] = True
    return ends_N


def position_ids(batch: TokenBatch) -> Tensor | None:
    """Where each token of a packed batch is in its row; None of a padded one."""
    return None if batch.packing is None else batch.packing.position_ids_BT


def encode_rows(
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[AnyPrompt],
    texts: Sequence[str],
    *,
    mask_prompts: bool = True,
    allow_empty: bool = False,
    turns: LearnedTurns = "last",
) -> list[TokenRow]:
    """Encode a row for each prompt and completion.

    Args:
        tokenizer: Tokenizer, and chat template if it has one.
        prompts: What is asked, in its context; an empty one where a text answers nothing, and is
            learned as a whole.
        texts: What follows.
        mask_prompts: False where all tokens but the first bear loss.
        allow_empty: For texts that a policy wrote: it may have ended at once.
        turns: `assistant` learns the assistant's earlier turns of a context too, but for its shots.

    Returns:
        The rows.

    Raises:
        UserError: A text has no tokens, or a template does not let its turns be told apart.

    """
    fitted = fitting_answers(tokenizer, prompts, texts)
    completions = encode_completions(tokenizer, fitted, allow_empty=allow_empty)
    encoded = iter(encode_prompts(tokenizer, [prompt for prompt in prompts if prompt]))
    rows = []
    for prompt, completion in zip(prompts, completions, strict=True):
        if not prompt:
            ids = opening_tokens(tokenizer)
            # No turn ends here but a text; its first token may follow nothing, and is not learned.
            whole = (*ids, *completion[:-1], tokenizer.eos_token_id)
            rows.append(TokenRow(whole, max(1, len(ids))))
            continue
        ids = next(encoded)
        earlier = answered_spans(tokenizer, prompt) if turns == "assistant" else []
        start = len(ids) if mask_prompts else 1
        silent: list[tuple[int, int]] = []
        if earlier and mask_prompts:
            start = earlier[0][0]
            ends = [*(begin for begin, _ in earlier[1:]), len(ids)]
            silent = [(end, after) for (_, end), after in zip(earlier, ends, strict=True)]
        rows.append(TokenRow((*ids, *completion), start, tuple(silent)))
    return rows


def check_answers(
    tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[AnyPrompt], texts: Sequence[str]
) -> None:
    """Refuse a tokenizer or a chat template that drops an answer; the first rows stand for all."""
    for prompt, text in zip(prompts[:_PROBED], texts[:_PROBED], strict=True):
        if not text:
            continue
        ids = encode_completions(tokenizer, [text])[0]
        if tokenizer.unk_token_id is not None and set(ids[:-1]) <= {tokenizer.unk_token_id}:
            raise UserError(
                f"the tokenizer knows nothing of the answer {text[:40]!r}; take another tokenizer"
            )
        if not tokenizer.chat_template or not prompt:
            continue
        asked, context = PromptInContext.of(prompt)
        turns = [*context.messages(asked), {"role": "assistant", "content": text}]
        written = render_turns(tokenizer, turns, tools=context.tools, open_answer=False)
        # A thought before the answer is the template's own affair.
        if without_thinking(text).strip() not in written:
            raise UserError(
                f"the tokenizer's chat template drops the answer {text[:40]!r}; "
                "use a template that writes the assistant's message, or none"
            )


def check_rows(rows: Sequence[TokenRow], *, num_embeddings: int) -> None:
    """Refuse, before the first step, rows that a model could not learn from."""
    if not rows:
        raise UserError("there is no row to train on; see what the stage before dropped, and why")
    for index, row in enumerate(rows):
        outside = next((t for t in (max(row.ids), min(row.ids)) if not 0 <= t < num_embeddings), 0)
        if outside:
            raise UserError(
                f"row {index} holds token {outside}, but the model embeds {num_embeddings}; "
                "take model and tokenizer from one checkpoint"
            )
        if not 1 <= row.start < len(row.ids):
            raise UserError(f"row {index} has no token that bears loss; drop empty completions")


def _silent_tokens(rows: Sequence[TokenRow]) -> npt.NDArray[np.bool_]:
    """True at the silent tokens of rows that lie end to end."""
    found = []
    for row in rows:
        silent = np.zeros(len(row.ids), dtype=np.bool_)
        for begin, end in row.silent:
            silent[begin:end] = True
        found.append(silent)
    return np.concatenate(found)


def _by_row(wanted_T: npt.NDArray[np.bool_], length_B: _Ints) -> Tensor:
    """Lay the mask of packed rows out with one row below the other, ``[B, longest]``."""
    inside_BT = np.arange(length_B.max()) < length_B[:, None]
    rows_BT = np.zeros(inside_BT.shape, dtype=np.bool_)
    rows_BT[inside_BT] = wanted_T
    return torch.from_numpy(rows_BT)


class TokenTable:
    """Token rows laid end to end, so that a batch is one gather.

    Args:
        rows: The rows.
        pad: Token that fills padded rows up.
        packed: True where batches lay rows end to end.
        facts: What is known of the rows, for losses that ask for it.

    """

    def __init__(
        self,
        rows: Sequence[TokenRow],
        *,
        pad: int,
        packed: bool = False,
        facts: RowFacts | None = None,
    ) -> None:
        # In numpy: torch takes three times as long for so many tiny operations.
        self._flat = np.array([token for row in rows for token in row.ids])
        self._length_N = np.array([len(row.ids) for row in rows])
        self._start_N = np.array([row.start for row in rows])
        self._learned_N = np.array([row.num_learned for row in rows])
        self._silent = _silent_tokens(rows) if any(row.silent for row in rows) else None
        self._offset_N = self._length_N.cumsum() - self._length_N
        self._pad = pad
        self._packed = packed
        self._facts = facts

    @property
    def digest(self) -> str:
        """SHA-256 of tokens, lengths and starts, in order, and of the rows' facts."""
        arrays = [self._flat, self._length_N, self._start_N]
        arrays += [] if self._silent is None else [self._silent]
        if self._facts is not None:
            known = self._facts
            arrays += [np.array(each) for each in (known.weights, known.positives)]
            # References follow from the rows and the weights that they are told beside.
            arrays += [np.array(known.solve_rates)]
            arrays += [np.array(known.scores)] if known.scores else []
            arrays += known.taught.arrays() if known.taught else []
        return sha256_of_parts(array.tobytes() for array in arrays)

    def batch(self, part: Sequence[int]) -> TokenBatch:
        """The rows of these indices: end to end if packed, else padded on the right."""
        rows_B = np.array(part)
        length_B, start_B = self._length_N[rows_B], self._start_N[rows_B]
        if self._packed:
            return self._with_facts(self._pack(rows_B, length_B, start_B), part)
        positions_T = np.arange(length_B.max())
        inside_BT = positions_T < length_B[:, None]
        places_BT = np.where(inside_BT, self._offset_N[rows_B, None] + positions_T, 0)
        input_ids_BT = np.where(inside_BT, self._flat[places_BT], self._pad)
        wanted_BT = inside_BT & (positions_T >= start_B[:, None])
        if self._silent is not None:
            wanted_BT &= ~self._silent[places_BT]
        return self._with_facts(
            TokenBatch(
                torch.from_numpy(input_ids_BT),
                torch.from_numpy(wanted_BT),
                int(self._learned_N[rows_B].sum()),
            ),
            part,
        )

    def _with_facts(self, batch: TokenBatch, part: Sequence[int]) -> TokenBatch:
        """Repeat the facts at the learned tokens, and count these by the rows' weights."""
        if self._facts is None:
            return batch
        known = self._facts.take(part)
        learned_B = torch.from_numpy(self._learned_N[np.array(part)])
        advantages = known.advantages or [0.0] * len(part)
        weights_N, positives_N, solve_rates_N, advantages_N = (
            torch.repeat_interleave(torch.tensor(each), learned_B)
            for each in (known.weights, known.positives, known.solve_rates, advantages)
        )
        reference_N = torch.cat([*known.references]) if known.references else 0.0 * weights_N
        facts = LearnedFacts(weights_N, positives_N, solve_rates_N, reference_N, advantages_N)
        facts = replace(facts, targets=known.taught.targets() if known.taught else None)
        return replace(batch, num_units=float(weights_N.double().sum()), facts=facts)

    def _pack(self, rows_B: _Ints, length_B: _Ints, start_B: _Ints) -> TokenBatch:
        packing = packing_of(torch.from_numpy(length_B), torch.from_numpy(start_B))
        positions_T = packing.position_ids_BT[0].numpy()
        places_T = self._offset_N[rows_B].repeat(length_B) + positions_T
        input_ids_T = self._flat[places_T]
        wanted_T = positions_T >= start_B.repeat(length_B)
        if self._silent is not None:
            wanted_T &= ~self._silent[places_T]
            packing = replace(packing, wanted_rows_BT=_by_row(wanted_T, length_B))
        return TokenBatch(
            torch.from_numpy(input_ids_T[None]),
            torch.from_numpy(wanted_T[None]),
            int(wanted_T.sum()),
            packing,
        )
