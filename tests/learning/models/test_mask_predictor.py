"""A Llama that reads without an order, and the rows that it scores."""

from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.models.mask_policy import is_mask_policy, remember_masks
from posttrain.learning.models.mask_predictor import as_mask_predictor
from posttrain.learning.models.noised_rows import filled_up, masked_counts, noised_rows
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.errors import UserError

MASK = 9


@pytest.fixture(scope="module")
def model():
    tokenizer = train_tokenizer(["a"], vocab_size=260)
    made = build_llama(tokenizer, hidden=16, layers=2, heads=2, seed=0).eval()
    with torch.no_grad():
        # Far from uniform, so that a wrong state shows.
        for parameter in made.parameters():
            parameter.mul_(4.0) if parameter.ndim > 1 else None
    remember_masks(made, mask=MASK, canvas=4)
    as_mask_predictor(made)
    return made


def states(model, *texts):
    width = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts])
    with torch.no_grad():
        return model.base_model.states(ids, torch.tensor([len(text) for text in texts]))


def test_a_mask_sees_what_stands_behind_it_and_no_padding(model):
    first, second = states(model, [1, MASK, 40, 41], [1, MASK, 40, 42])
    assert not torch.allclose(first[1], second[1], atol=1e-3)
    alone = states(model, [1, MASK, 40])
    beside, _ = states(model, [1, MASK, 40], [1, 50, 51, 52, MASK, 53])
    assert torch.allclose(alone[0], beside[:3], atol=1e-5)


def test_the_hidden_tokens_of_a_row_are_said_where_their_masks_are(model):
    shown = ([1, 40, MASK, 41, MASK], [1, MASK])
    hidden = ([50, 51], [52])
    rows = [[*left, *right] for left, right in zip(shown, hidden, strict=True)]
    ids = torch.tensor([rows[0], [*rows[1], 0, 0, 0, 0]])
    wanted = torch.tensor([[False] * 5 + [True] * 2, [False] * 2 + [True] + [False] * 4])
    with torch.no_grad():
        found = token_logprobs(model, ids, wanted_BT=wanted).logprobs_BT
        logits = model.get_output_embeddings()(states(model, *shown)).log_softmax(-1)
    expected = [logits[0, 2, 50], logits[0, 4, 51], logits[1, 1, 52]]
    assert torch.allclose(found[wanted], torch.stack(expected), atol=1e-5)
    assert float(found[~wanted].abs().max()) == 0.0


def test_a_row_without_a_mask_and_another_model_are_refused(model):
    with pytest.raises(UserError, match="without a mask"):
        token_logprobs(model, torch.tensor([[1, 40, 41]]), wanted_BT=torch.tensor([[0, 0, 1]]) > 0)
    other = build_llama(train_tokenizer(["a"], vocab_size=260), hidden=8, layers=1, heads=1, seed=0)
    with pytest.raises(UserError, match="no mask predictor"):
        as_mask_predictor(other)


def test_a_saved_one_is_a_plain_llama_whose_config_tells_how_it_reads(model, tmp_path):
    save_policy(model, train_tokenizer(["a"], vocab_size=260), tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert is_mask_policy(plain)
    assert type(plain.base_model).__name__ == "LlamaModel"
    loaded = load_policy(tmp_path).model
    assert torch.equal(states(loaded, [1, MASK, 40]), states(model, [1, MASK, 40]))


def test_counts_are_spread_evenly_and_each_is_uniform():
    # As many draws as tokens: every count once, wherever the spacing begins.
    for seed in range(8):
        assert sorted(masked_counts(4, 4, Random(seed))) == [1, 2, 3, 4]
    # Two draws of four tokens lie two apart: 3 and 1, for example.
    assert {tuple(masked_counts(4, 2, Random(seed))) for seed in range(60)} == {
        (1, 3),
        (2, 4),
        (3, 1),
        (4, 2),
    }


@pytest.mark.parametrize(("length", "draws"), [(5, 16), (8, 16), (6, 4), (3, 2)])
def test_each_count_is_met_alike_by_every_draw_where_the_spacing_is_no_whole_number(length, draws):
    """Over all places where it may begin, a draw masks each number of tokens once."""

    class Begins(Random):
        place = 0

        def randrange(self, *_):
            return self.place

    chance, found = Begins(), []
    for chance.place in range(length):
        found.append(masked_counts(length, draws, chance))
    for of_draw in zip(*found, strict=True):
        assert sorted(of_draw) == [*range(1, length + 1)]


def test_a_row_is_what_is_shown_then_what_is_hidden():
    for row in noised_rows((1, 7), (21, 22, 23), mask=MASK, draws=6, chance=Random(0)):
        shown, hidden = row.token_ids[:5], list(row.token_ids[5:])
        assert shown[:2] == (1, 7)
        assert len(hidden) == row.num_hidden == shown.count(MASK) >= 1
        whole = [hidden.pop(0) if token == MASK else token for token in shown[2:]]
        assert whole == [21, 22, 23]


def test_draws_average_to_the_sum_over_all_masks():
    """L / x times the sum over x hidden tokens, x uniform: each token counts 1 on average."""
    chance, length, total = Random(0), 3, [0.0, 0.0, 0.0]
    draws = 6000
    for _ in range(draws):
        (row,) = noised_rows((), (20, 21, 22), mask=MASK, draws=1, chance=chance)
        for token in row.token_ids[length:]:
            total[token - 20] += length / row.num_hidden / draws
    assert total == pytest.approx([1.0] * 3, abs=0.05)


def test_an_answer_is_filled_up_with_ends():
    assert filled_up((5, 2), canvas=4, end=2) == (5, 2, 2, 2)
