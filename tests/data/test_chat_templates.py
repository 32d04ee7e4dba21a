import pytest

from posttrain.data.chat_templates.registry import TEMPLATES
from posttrain.data.templates import render_prompt
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.errors import UserError

TEXT = "{{ bos_token }}{% for each in messages %}<{{ each['content'] }}>{% endfor %}"


@pytest.fixture
def tokenizer():
    return train_tokenizer(["3 + 4 = 7"] * 20, vocab_size=280)


@pytest.mark.parametrize("known", [None, "", TEXT])
def test_the_own_template_changes_nothing(tokenizer, known):
    tokenizer.chat_template = known
    TEMPLATES.parse("own").give_to(tokenizer, where="sft")
    assert tokenizer.chat_template == known


def test_a_template_is_given_once_and_again(tokenizer):
    template = TEMPLATES.parse({"kind": "jinja", "text": TEXT})
    for _ in range(2):
        template.give_to(tokenizer, where="sft")
        assert render_prompt(tokenizer, "3 + 4 =") == "<bos><3 + 4 =>"


def test_another_template_than_the_model_learned_is_refused(tokenizer):
    tokenizer.chat_template = TEXT
    template = TEMPLATES.parse({"kind": "jinja", "text": TEXT + "\n"})
    with pytest.raises(UserError, match="sft: the model has a chat template, which differs from"):
        template.give_to(tokenizer, where="sft")
    assert tokenizer.chat_template == TEXT
