"""The loss of masked diffusion."""

import math

import pytest
import torch

from posttrain.data.rows import TokenRow, TokenTable
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.mask_policy import remember_masks
from posttrain.learning.models.mask_predictor import as_mask_predictor
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.training.denoising import filled_rows, loss_of_masks, masked_loss
from posttrain.stage.errors import UserError

VOCABULARY, MASK = 259, 258


@pytest.fixture(scope="module")
def model():
    """Says all tokens equally likely, whatever it reads."""
    tokenizer = train_tokenizer(["a"], vocab_size=VOCABULARY)
    made = build_llama(tokenizer, hidden=8, layers=1, heads=1, seed=0)
    torch.nn.init.zeros_(made.get_output_embeddings().weight)
    remember_masks(made, mask=MASK, canvas=3)
    as_mask_predictor(made)
    return made


@pytest.fixture
def batch():
    return TokenTable([TokenRow((1, 30, 31, 32), 1), TokenRow((1, 7, 33, 34, 35), 2)], pad=0).batch(
        [0, 1]
    )


def test_by_hand_on_three_tokens(model, batch):
    """Two of three tokens at 1/2 and one of three at 1/4: (2 x 2 + 4 x 1) log V."""
    masked = torch.tensor([[0, 1, 0, 1, 0], [0, 0, 0, 0, 1]]) > 0
    loss = loss_of_masks(model, batch, masked, torch.tensor([0.5, 0.25]))
    assert float(loss) == pytest.approx(8 * math.log(VOCABULARY), rel=1e-6)


def test_nothing_masked_costs_nothing(model, batch):
    none = torch.zeros_like(batch.wanted_BT)
    assert float(loss_of_masks(model, batch, none, torch.tensor([0.5, 0.5]))) == 0.0


@pytest.mark.slow
def test_masks_follow_torchs_generator_and_the_mean_is_that_of_all_tokens(model, batch):
    torch.manual_seed(0)
    first, metrics = masked_loss(model, batch, 6.0)
    torch.manual_seed(0)
    again, _ = masked_loss(model, batch, 6.0)
    assert float(first) == float(again)
    assert metrics == {}
    with torch.no_grad():
        losses = [float(masked_loss(model, batch, 6.0)[0]) for _ in range(1500)]
    # Each token is masked with the probability by whose inverse it counts.
    assert sum(losses) / 1500 == pytest.approx(math.log(VOCABULARY), rel=0.1)


def test_answers_have_one_length():
    (row,) = filled_rows([TokenRow((1, 7, 30, 2), 2)], canvas=4, end=2)
    assert row == TokenRow((1, 7, 30, 2, 2, 2), 2)
    with pytest.raises(UserError, match="raise canvas to 2"):
        filled_rows([TokenRow((1, 7, 30, 2), 2)], canvas=1, end=2)
