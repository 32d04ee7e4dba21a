import pytest

from posttrain.data.rows import TokenRow, TokenTable, check_answers, check_rows, encode_rows
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.errors import UserError

ROWS = [TokenRow((1, 5, 6, 2), start=2), TokenRow((1, 7, 2), start=1), TokenRow((1, 8, 9, 9, 2), 4)]


def test_a_batch_is_padded_on_the_right_and_masks_prompts():
    batch = TokenTable(ROWS, pad=0).batch([2, 0])
    assert batch.input_ids_BT.tolist() == [[1, 8, 9, 9, 2], [1, 5, 6, 2, 0]]
    assert batch.wanted_BT.int().tolist() == [[0, 0, 0, 0, 1], [0, 0, 1, 1, 0]]
    assert batch.num_units == 3


def test_prompt_tokens_bear_no_loss_unless_the_text_is_raw():
    tokenizer = train_tokenizer(["3 + 4 = 7"] * 9, vocab_size=270)
    (masked,) = encode_rows(tokenizer, ["3"], ["7"])
    (raw,) = encode_rows(tokenizer, ["3"], ["7"], mask_prompts=False)
    assert masked.ids == raw.ids
    assert tokenizer.decode(masked.ids) == "<bos>3\n7<eos>"
    assert tokenizer.decode(masked.ids[masked.start :]) == "7<eos>"
    assert raw.start == 1


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "there is no row to train on"),
        ([TokenRow((1, 10, 2), 1)], "row 0 holds token 10, but the model embeds 10"),
        ([TokenRow((1, -1, 2), 1)], "row 0 holds token -1, but the model embeds 10"),
        ([TokenRow((1, 2), 1), TokenRow((1, 5), 2)], "row 1 has no token that bears loss"),
    ],
)
def test_rows_that_cannot_teach_are_refused(rows, sentence):
    with pytest.raises(UserError, match=sentence):
        check_rows(rows, num_embeddings=10)


TEMPLATE = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
FORGETFUL = "{% for m in messages if m['role'] == 'user' %}[user]{{ m['content'] }}{% endfor %}"


def test_a_template_that_drops_the_answer_is_refused():
    tokenizer = train_tokenizer(["3 + 4 = 7"] * 9, vocab_size=270)
    check_answers(tokenizer, ["3"], ["7"])
    tokenizer.chat_template = TEMPLATE
    check_answers(tokenizer, ["3"], ["7"])
    tokenizer.chat_template = FORGETFUL
    with pytest.raises(UserError, match="chat template drops the answer '7'; use a template that"):
        check_answers(tokenizer, ["3"], ["7"])


def test_a_tokenizer_that_knows_nothing_of_an_answer_is_refused():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1, "seven": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token="</s>"
    )
    check_answers(tokenizer, ["x"], ["seven"])
    with pytest.raises(UserError, match="the tokenizer knows nothing of the answer '7'"):
        check_answers(tokenizer, ["x"], ["7"])
