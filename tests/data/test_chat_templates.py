from typing import Literal

import pytest

from posttrain.data.chat_templates.base import Template
from posttrain.data.chat_templates.registry import TEMPLATES
from posttrain.data.templates import render_prompt
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.errors import UserError
from tasks.pretrain.config import PretrainConfig
from tasks.sft.config import SftConfig

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


BROKEN = [
    ("{{ bos_token }\n", r"is no Jinja in line 1: unexpected '}'; correct that line"),
    ("a\n{% for each in messages %}", r"is no Jinja in line 2: .*endfor"),
    ("{{ messages[5]['content'] + 1 }}", "fails on a user message and its answer: .*no element 5"),
    ("{{ raise_exception('no system') }}", "fails on a user message and its answer: no system;"),
    ("{{ messages[1]['content'] / 2 }}", "fails on a user message and its answer: "),
    ("{{ bos_token }}hello", "drops the message of the user; let it write every message"),
    ("{{ messages[0]['content'] }}", "drops the message of the assistant; let it write"),
]


@pytest.mark.parametrize(("text", "said"), BROKEN)
@pytest.mark.parametrize(("task", "config"), [("sft", SftConfig), ("pretrain", PretrainConfig)])
def test_a_broken_template_of_a_recipe_is_refused_where_it_stands(task, config, text, said):
    with pytest.raises(UserError, match=rf"^{task}\.template\.text: this template {said}"):
        config.parse({"template": {"kind": "jinja", "text": text}}, where=task)


@pytest.mark.parametrize(("text", "said"), BROKEN)
def test_a_broken_template_of_a_plug_in_is_refused_in_the_stage_by_its_setting(
    tokenizer, text, said
):
    class Mine(Template):
        kind: Literal["mine"] = "mine"

        def chat_template(self, tokenizer):
            return text

    said = rf"^sft\.template: template\.mine gave a template that {said}"
    with pytest.raises(UserError, match=said):
        Mine().give_to(tokenizer, where="sft")
    assert not tokenizer.chat_template


def test_what_transformers_renders_is_right_in_a_recipe(tokenizer):
    """Its own tags and functions, and a generation prompt of its own."""
    text = (
        "{{ strftime_now('%d') }}{% for each in messages %}{% if loop.index > 9 %}{% break %}"
        "{% endif %}<|{{ each['role'] }}|>{% if each['role'] == 'assistant' %}{% generation %}"
        "{{ each['content'] | tojson }}{% endgeneration %}{% else %}{{ each['content'] }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    template = TEMPLATES.parse({"kind": "jinja", "text": text})
    template.give_to(tokenizer, where="sft")
    assert render_prompt(tokenizer, "3 + 4 =").endswith("<|user|>3 + 4 =<|assistant|>")


SWITCHED = "{% if enable_thinking is defined and not enable_thinking %}[off]{% endif %}" + TEXT


@pytest.mark.parametrize("before", [SWITCHED, "{% set enable_thinking = true %}" + SWITCHED])
def test_thinking_is_switched_in_the_template_itself_so_that_later_stages_follow(tokenizer, before):
    tokenizer.chat_template = before
    for thinking, written in ((False, "[off]<bos><3 + 4 =>"), (True, "<bos><3 + 4 =>")):
        TEMPLATES.parse({"kind": "own", "thinking": thinking}).give_to(tokenizer, where="sft")
        # What is saved with the model is all that a later stage has.
        assert render_prompt(tokenizer, "3 + 4 =") == written
        TEMPLATES.parse("own").give_to(tokenizer, where="rl")
        assert render_prompt(tokenizer, "3 + 4 =") == written
    assert tokenizer.chat_template.count("{% set enable_thinking") == 1


@pytest.mark.parametrize("known", [None, TEXT])
def test_thinking_wants_a_template_that_reads_the_switch(tokenizer, known):
    tokenizer.chat_template = known
    with pytest.raises(UserError, match="sft.template.thinking: the model's chat template never r"):
        TEMPLATES.parse({"kind": "own", "thinking": False}).give_to(tokenizer, where="sft")
    assert tokenizer.chat_template == known
