"""Whether a model keeps packed rows apart: measured, as not every architecture reads positions."""

from typing import TYPE_CHECKING

import torch

from posttrain.data.rows import TokenRow, TokenTable, position_ids
from posttrain.learning.models.attention import Attention, set_attention
from posttrain.learning.models.document_attention import BY_DOCUMENT, takes_documents
from posttrain.learning.models.logprobs import hidden_states
from posttrain.learning.training.asking import ask
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_TOLERANCE = 1e-3


def prepare_packing(model: "PreTrainedModel", attention: Attention | None) -> None:
    """Let a model attend document by document where it can; refuse one that mixes packed rows.

    Args:
        model: Changed in place.
        attention: What the recipe asks for; None leaves the choice to this.

    Raises:
        UserError: Rows are another thing packed than alone.

    """
    if attention is None and takes_documents(model):
        attention = BY_DOCUMENT
    if attention:
        set_attention(model, attention)
    ask(model, check_packing)


@torch.no_grad()
def check_packing(model: "PreTrainedModel") -> None:
    """Refuse a model that gives two rows other hidden states packed than alone."""
    num_embeddings = model.get_input_embeddings().weight.shape[0]
    rows = [
        TokenRow(tuple((index * step + 3) % num_embeddings for index in range(1, 9)), start=1)
        for step in (5, 7)
    ]
    was_training = model.training
    model.eval()
    packed, *apart = (
        TokenTable(rows, pad=0, packed=True).batch(part).to(model.device)
        for part in ([0, 1], [0], [1])
    )
    states = [
        hidden_states(model, batch.input_ids_BT, position_ids_BT=position_ids(batch))
        for batch in (packed, *apart)
    ]
    model.train(was_training)
    alone = torch.cat(states[1:], dim=1)
    gap = float((states[0] - alone).abs().max() / alone.abs().max())
    if not gap <= _TOLERANCE:
        raise UserError(
            f"{type(model).__name__} mixes packed rows: their hidden states differ by {gap:.2g}"
            " from those of the rows alone; set packing to false"
        )
