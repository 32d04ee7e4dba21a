"""Context parallelism: several processes compute the tokens of one long row together.

Each holds two stretches of the tokens, one of either end, so that all have as much causal attention
to compute, and attends to the keys of all, which are gathered layer by layer. What a loss reads
(log-probabilities, entropies) is put together again, so every loss works unchanged.

Source: Llama 3, arXiv 2407.21783, section 3.3.2 (keys are gathered, chunk i goes with 2 P - 1 - i).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from posttrain.learning.models.distributed.group import ProcessGroup
from posttrain.learning.models.document_attention import (
    attend_pieces,
    borders_for_mask,
    borders_of,
    segments,
)
from posttrain.learning.models.shared_tokens import OwnTokens, share_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ACROSS_PROCESSES = "across_processes"
"""Of the attention in transformers' tables."""

_borders: Tensor | None = None
"""Of the rows that are in their forward pass now; layers take them along in the place of a mask."""


@contextmanager
def across_processes(model: "PreTrainedModel", group: ProcessGroup) -> Iterator[None]:
    """Let a group compute log-probabilities together, each process those of a share of the tokens.

    Inside, `token_logprobs` and its like take the same batch in every process and give the same
    values in each; the gradient of each reaches the process's own tokens, so sums over processes
    are whole.

    Args:
        model: Computes attention by `sdpa` or by document.
        group: The processes.

    """
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(ACROSS_PROCESSES, _Attention(group))
    ALL_MASK_ATTENTION_FUNCTIONS.register(ACROSS_PROCESSES, _borders_or_mask)
    was = model.config.get_text_config()._attn_implementation
    model.set_attn_implementation(ACROSS_PROCESSES)
    try:
        with share_tokens(GroupShare(group)):
            yield
    finally:
        model.set_attn_implementation(was)


@dataclass(frozen=True)
class GroupShare:
    """What a process takes of the tokens of any rows."""

    group: ProcessGroup

    def places(self, num_tokens: int) -> Tensor:
        """Choose this process's tokens.

        Args:
            num_tokens: Of all rows end to end, a multiple of twice the number of processes.

        Returns:
            Their places, ascending within each of two stretches.

        """
        return places_of(self.group.rank, self.group.size, num_tokens).to(self.group.device)

    @contextmanager
    def taking(
        self, input_ids_BT: Tensor, wanted_BT: Tensor, position_ids_BT: Tensor | None
    ) -> Iterator[OwnTokens]:
        """Lay rows end to end and take this process's tokens of them; see `OwnTokens`.

        Args:
            input_ids_BT: Token ids, right-padded or packed, equal in all processes.
            wanted_BT: True at the tokens that are asked for.
            position_ids_BT: Of packed rows.

        Yields:
            The tokens, for a forward pass inside.

        """
        global _borders  # noqa: PLW0603 - layers of any architecture can only be reached like this
        batch, length = input_ids_BT.shape
        if position_ids_BT is None:
            position_ids_BT = torch.arange(length, device=input_ids_BT.device).expand(batch, -1)
        filling = -batch * length % (2 * self.group.size)
        flat = [
            F.pad(each.flatten(), (0, filling))
            for each in (
                input_ids_BT,
                position_ids_BT,
                F.pad(wanted_BT[:, 1:], (0, 1)),
                F.pad(input_ids_BT[:, 1:], (0, 1)),
            )
        ]
        _borders = borders_of(flat[1])
        mine = self.places(len(flat[0]))
        ids, positions, before, targets = (each[mine] for each in flat)
        # Row by row, as they are wanted: the place of each of them in all that are wanted.
        order = flat[2].long().cumsum(0) - 1
        try:
            yield OwnTokens(
                ids_1T=ids[None],
                positions_1T=positions[None],
                before_1T=before[None],
                targets_N=targets[before],
                together=_Together(order[mine][before], int(wanted_BT.sum())),
            )
        finally:
            _borders = None


@dataclass(frozen=True)
class _Together:
    """Puts numbers of own tokens where they belong among those of all, ``[N]``."""

    order_N: Tensor
    num_wanted: int

    def __call__(self, own_N: Tensor) -> Tensor:
        whole_N: Tensor = _Scattered.apply(own_N, self.order_N, self.num_wanted)  # type: ignore[no-untyped-call]
        return whole_N


class _Scattered(torch.autograd.Function):
    """Numbers of all processes; each computes the same loss of them, and takes its own gradient."""

    @staticmethod
    def forward(ctx: Any, own_N: Tensor, order_N: Tensor, num_wanted: int) -> Tensor:
        ctx.save_for_backward(order_N)
        whole_N = own_N.new_zeros(num_wanted).index_copy_(0, order_N, own_N)
        dist.all_reduce(whole_N)
        return whole_N

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor) -> tuple[Tensor, None, None]:
        (order_N,) = ctx.saved_tensors
        return gradient_N[order_N], None, None


class _Gathered(torch.autograd.Function):
    """Keys of all processes in the order of the tokens; their gradients are summed."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        parts = [torch.empty_like(own) for _ in range(group.size)]
        dist.all_gather(parts, own.contiguous())
        halves = [part.chunk(2, dim=2) for part in parts]
        ends = [second for _, second in reversed(halves)]
        return torch.cat([*(first for first, _ in halves), *ends], dim=2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        mine = places_of(ctx.group.rank, ctx.group.size, gradient.shape[2])
        return gradient.index_select(2, mine.to(gradient.device)), None


class _Attention:
    """Attention of this process's queries to the keys of all."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group

    def __call__(
        self,
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        """See `attend_by_document`; borders are those of all tokens."""
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        if attention_mask is None or attention_mask.ndim != 1:
            found: tuple[Tensor, None] = sdpa_attention_forward(
                module, query, key, value, attention_mask, **options
            )
            return found
        borders = attention_mask.tolist()
        keys, values = (
            _Gathered.apply(each, self._group)  # type: ignore[no-untyped-call]
            for each in (key, value)
        )
        window = options.get("sliding_window") or borders[-1]
        stretch = query.shape[2] // 2
        pieces = []
        for number, half in enumerate(query.chunk(2, dim=2)):
            chunk = (self._group.rank, 2 * self._group.size - 1 - self._group.rank)[number]
            begin = chunk * stretch
            within = [
                piece.within(begin, begin + stretch)
                for piece in segments(borders, window)
                if piece.begin < begin + stretch and begin < piece.end
            ]
            pieces += attend_pieces(
                module, half, keys, values, within, window, shift=begin, **options
            )
        return torch.cat(pieces, dim=1), None


def _borders_or_mask(*arguments: Any, **options: Any) -> Tensor | None:
    """The borders of what is computed together; outside of that, those of rows of one's own."""
    return borders_for_mask(*arguments, **options) if _borders is None else _borders


def places_of(rank: int, size: int, num_tokens: int) -> Tensor:
    """Choose the tokens of a process: a stretch of either half, so that causal work is equal.

    >>> [places_of(rank, 2, 8).tolist() for rank in (0, 1)]
    [[0, 1, 6, 7], [2, 3, 4, 5]]

    Args:
        rank: Of the process.
        size: Number of processes.
        num_tokens: A multiple of twice as many.

    Returns:
        Places of its tokens.

    """
    stretch = num_tokens // (2 * size)
    ends = (2 * size - 1 - rank) * stretch
    first = torch.arange(rank * stretch, (rank + 1) * stretch)
    return torch.cat([first, torch.arange(ends, ends + stretch)])
