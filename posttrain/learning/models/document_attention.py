"""Attention of packed rows, document by document: no token is compared with one of another row.

transformers' `sdpa` lays a mask of ``T x T`` over packed rows: 1 GiB of booleans at 32k tokens, and
every product computed only to be masked. Here the borders travel where the mask would, as one short
tensor, and each document is a causal attention of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BY_DOCUMENT: Literal["by_document"] = "by_document"
"""Of the attention in transformers' tables."""


class DocumentPiece(NamedTuple):
    """Queries that are attended together: they see the keys from `key_begin` up to themselves."""

    begin: int
    end: int
    key_begin: int

    def within(self, begin: int, end: int) -> "DocumentPiece":
        """Give the part whose queries lie within a stretch.

        Args:
            begin: First token of the stretch.
            end: The one behind its last.

        Returns:
            The part, of the same keys.

        """
        return DocumentPiece(max(self.begin, begin), min(self.end, end), self.key_begin)


def register_by_document() -> None:
    """Put the attention and its mask into transformers' tables; again changes nothing."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(BY_DOCUMENT, attend_by_document)
    ALL_MASK_ATTENTION_FUNCTIONS.register(BY_DOCUMENT, borders_for_mask)


def takes_documents(model: "PreTrainedModel") -> bool:
    """Tell whether a model computes attention through transformers' tables, and by `sdpa` now."""
    config = model.config.get_text_config()
    return bool(model._supports_sdpa) and config._attn_implementation == "sdpa"


def borders_for_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Tensor],
    **options: Any,
) -> Tensor | None:
    """Give transformers the borders of packed rows where it asks for a mask.

    They are read off the mask itself: a document begins at a token that does not see the one before
    it, and a window is as long as what the last token of the longest document sees.

    Args:
        batch_size: Rows; packed ones are a single row.
        q_length: Tokens that attend.
        kv_length: Tokens that are attended to.
        mask_function: True where a query sees a key, by their indices.
        **options: What else `sdpa_mask` takes.

    Returns:
        The window and the places where documents begin, with the end last ``[2 + documents]``, on
        the host, of one packed row; whatever `sdpa` would be given else.

    """
    from transformers.masking_utils import sdpa_mask

    is_packed = batch_size == 1 and q_length == kv_length > 1
    if not is_packed or options.get("attention_mask") is not None or options.get("use_vmap"):
        mask: Tensor | None = sdpa_mask(
            batch_size, q_length, kv_length, mask_function=mask_function, **options
        )
        return mask
    zero = torch.zeros((), dtype=torch.long, device=options.get("device"))
    later_T = torch.arange(1, q_length, device=zero.device)
    follows_T = mask_function(zero, zero, later_T, later_T - 1)
    borders = _with_ends(later_T[~follows_T.expand(q_length - 1)], q_length)
    longest = int(borders.diff().argmax())
    first, last = int(borders[longest]), int(borders[longest + 1]) - 1
    keys_T = torch.arange(first, last + 1, device=zero.device)
    window = mask_function(zero, zero, zero + last, keys_T).expand(len(keys_T)).sum()
    # On the host, as every layer reads them there.
    return torch.cat([window[None], borders]).cpu()


def attend_by_document(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend within each document, where the mask is what `borders_for_mask` gave.

    Args:
        module: The layer's attention, which knows its groups of heads.
        query: ``[1, heads, T, D]``.
        key: ``[1, key heads, T, D]``.
        value: Likewise.
        attention_mask: Borders, or a mask as `sdpa` takes it.
        **options: As of transformers' `sdpa_attention_forward`, which computes each piece.

    Returns:
        ``[1, T, heads, D]``, and no weights.

    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if attention_mask is None or attention_mask.ndim != 1:
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options
        )
        return found
    window, *borders = attention_mask.tolist()
    pieces = attend_pieces(module, query, key, value, segments(borders, window), window, **options)
    return torch.cat(pieces, dim=1), None


def attend_pieces(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pieces: Iterable[DocumentPiece],
    window: int,
    *,
    shift: int = 0,
    **options: Any,
) -> list[Tensor]:
    """Attend piece by piece, each query to the keys of its piece up to itself.

    Args:
        module: The layer's attention.
        query: ``[1, heads, T, D]``, the first of them token `shift`.
        key: ``[1, key heads, T, D]``, from token 0.
        value: Likewise.
        pieces: Of the queries, in order.
        window: Keys that a query sees, itself counted.
        shift: Token of the first query.
        **options: As of transformers' `sdpa_attention_forward`.

    Returns:
        ``[1, T, heads, D]`` of each piece.

    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    found = []
    for begin, end, key_begin in pieces:
        mask = None
        if key_begin < begin or end - begin > window:
            mask = _band(begin, end, key_begin, window, query.device)
        attended, _ = sdpa_attention_forward(
            module,
            query[:, :, begin - shift : end - shift],
            key[:, :, key_begin:end],
            value[:, :, key_begin:end],
            mask,
            **options,
        )
        found.append(attended)
    return found


def borders_of(positions_T: Tensor) -> Tensor:
    """Find where rows begin that lie end to end.

    >>> borders_of(torch.tensor([0, 1, 2, 0, 1])).tolist()
    [0, 3, 5]

    Args:
        positions_T: Of each token in its row; a row begins where they do not go on.

    Returns:
        The places, with the end last, on the host.

    """
    later_T = torch.arange(1, len(positions_T), device=positions_T.device)
    return _with_ends(later_T[positions_T.diff() != 1], len(positions_T)).cpu()


def _with_ends(begins: Tensor, length: int) -> Tensor:
    ends = begins.new_tensor([0, length])
    return torch.cat([ends[:1], begins, ends[1:]])


def segments(borders: list[int], window: int) -> Iterator[DocumentPiece]:
    """Cut documents into pieces: whole ones, or a window's length each where they are longer.

    >>> [tuple(each) for each in segments([0, 3, 8], 4)]
    [(0, 3, 0), (3, 7, 3), (7, 8, 4)]

    Args:
        borders: Where documents begin, and the end.
        window: Keys that a query sees, itself counted.

    Yields:
        Pieces in order, which together are all queries.

    """
    for first, end in zip(borders, borders[1:], strict=False):
        for begin in range(first, end, window):
            yield DocumentPiece(begin, min(begin + window, end), max(first, begin - window + 1))


def _band(begin: int, end: int, key_begin: int, window: int, device: torch.device) -> Tensor:
    """True where a query of a piece sees a key, ``[1, 1, queries, keys]``."""
    distance = torch.arange(begin, end, device=device)[:, None] - torch.arange(
        key_begin, end, device=device
    )
    return ((distance >= 0) & (distance < window))[None, None]
