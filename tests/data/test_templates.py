import pytest

from posttrain.data.rows import check_answers, encode_rows
from posttrain.data.templates import (
    encode_completions,
    encode_prompts,
    end_of_turn,
    render_prompt,
)
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.errors import UserError

CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def tokenizer():
    return train_tokenizer(["3 + 4 = 7\n#### 7"] * 20, vocab_size=280)


def test_a_prompt_opens_with_bos_and_ends_with_a_newline(tokenizer):
    assert render_prompt(tokenizer, "3 + 4 =") == "3 + 4 =\n"
    (ids,) = encode_prompts(tokenizer, ["3 + 4 ="])
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids) == "<bos>3 + 4 =\n"


def test_a_completion_ends_with_eos_and_has_no_bos(tokenizer):
    (ids,) = encode_completions(tokenizer, ["7"])
    assert ids == [tokenizer.convert_tokens_to_ids("7"), tokenizer.eos_token_id]


def test_a_chat_template_is_used_and_its_opening_token_is_not_doubled(tokenizer):
    tokenizer.chat_template = CHAT
    assert render_prompt(tokenizer, "3 + 4 =") == "<bos><user>3 + 4 =\n<assistant>"
    (ids,) = encode_prompts(tokenizer, ["3 + 4 ="])
    assert ids.count(tokenizer.bos_token_id) == 1


def test_a_template_that_drops_the_prompt_is_refused(tokenizer):
    tokenizer.chat_template = "{{ bos_token }}hello"
    with pytest.raises(UserError, match="drops the prompt '3 \\+ 4 ='"):
        encode_prompts(tokenizer, ["3 + 4 ="])


@pytest.mark.parametrize(
    "template",
    [
        "{% if %}",
        "{{ raise_exception('a system message comes first') }}",
        "{{ messages[3].role }}",
        "{{ 1/0 }}",
    ],
)
def test_a_template_that_fails_is_refused(tokenizer, template):
    tokenizer.chat_template = template
    with pytest.raises(UserError, match="chat template fails on one user message: .+; use a temp"):
        render_prompt(tokenizer, "3 + 4 =")


def test_an_empty_completion_is_refused(tokenizer):
    with pytest.raises(UserError, match="completion '' has no tokens"):
        encode_completions(tokenizer, ["7", ""])


def test_no_rows_are_no_rows(tokenizer):
    assert encode_prompts(tokenizer, []) == encode_completions(tokenizer, []) == []


def test_text_that_spells_a_special_token_stays_text(tokenizer):
    (prompt,) = encode_prompts(tokenizer, ["<eos> 3 <pad>"])
    (completion,) = encode_completions(tokenizer, ["<eos>7"])
    special = set(tokenizer.all_special_ids)
    assert [token for token in prompt if token in special] == [tokenizer.bos_token_id]
    assert [token for token in completion if token in special] == [tokenizer.eos_token_id]
    assert tokenizer.decode(completion, skip_special_tokens=True) == "<eos>7"


def test_a_template_that_fails_on_an_answer_alone_is_refused_before_training(tokenizer):
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        "{{ raise_exception('no assistant here') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    assert render_prompt(tokenizer, "3 + 4 =") == "3 + 4 ="
    with pytest.raises(UserError, match="fails on a user message and its answer: no assistant he"):
        check_answers(tokenizer, ["3 + 4 ="], ["7"])


# What a template writes behind an answer, and the token that ends what is learned.
ENDS = {
    "its own end, not the tokenizer's": ("<|end|>\n", "<|end|>"),
    "its own end and that of the text": ("<|end|>\n<eos>", "<|end|>"),
    "the tokenizer's": ("\n<eos>", "<eos>"),
    "none": ("\n", "<eos>"),
    "a word that is no special token": ("[end]\n", "<eos>"),
}


@pytest.mark.parametrize(("behind", "end"), ENDS.values(), ids=ENDS)
def test_a_turn_ends_with_the_templates_own_end(tokenizer, behind, end):
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
    tokenizer.add_tokens(["[end]"])
    assert tokenizer.decode([end_of_turn(tokenizer)]) == "<eos>"
    tokenizer.chat_template = CHAT.replace("\n", behind)
    assert tokenizer.decode([end_of_turn(tokenizer)]) == end
    (ids,) = encode_completions(tokenizer, ["7"])
    assert tokenizer.decode(ids) == f"7{end}"


@pytest.mark.parametrize("template", ["{{ 1/0 }}", "{{ bos_token }}{{ messages[0].content }}"])
def test_a_template_that_writes_no_answer_ends_none(tokenizer, template):
    tokenizer.chat_template = template
    assert end_of_turn(tokenizer) == tokenizer.eos_token_id


# Mistral's: no prompt for generation, a blank before the answer and its end behind it.
INSTRUCT = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }}"
    " [/INST]{% else %} {{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize("said", ["7", " 7"])
def test_an_answer_has_the_blank_that_the_template_writes_before_it(tokenizer, said):
    tokenizer.chat_template = INSTRUCT
    (row,) = encode_rows(tokenizer, ["3 + 4 ="], [said])
    turns = [{"role": "user", "content": "3 + 4 ="}, {"role": "assistant", "content": "7"}]
    whole = tokenizer.apply_chat_template(turns, tokenize=False)
    assert tokenizer.decode(row.ids) == whole == "<bos>[INST] 3 + 4 = [/INST] 7<eos>"


def test_a_prompt_keeps_the_end_that_the_template_writes(tokenizer):
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}"
    )
    (ids,) = encode_prompts(tokenizer, ["3 + 4 ="])
    assert tokenizer.decode(ids) == "<bos>3 + 4 =<eos>"
