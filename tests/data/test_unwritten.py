"""What a chat template leaves out of a conversation is found by writing it with and without."""

import pytest

from posttrain.data.chat_templates.unwritten import LeftOut
from posttrain.data.contexts import PromptContext
from posttrain.learning.models.tokenizer import train_tokenizer

PLAIN = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}{% endfor %}"
CALLS = "{% for c in m['tool_calls'] or [] %}({{ c['function']['name'] }}){% endfor %}"
WITH_CALLS = PLAIN.replace("{{ eos_token }}", CALLS + "{{ eos_token }}")
WHOLE = "{% for t in tools or [] %}[{{ t['function']['name'] }}]{% endfor %}" + WITH_CALLS
# As Llama 3.1's does: a turn is its calls, or its words.
INSTEAD = WHOLE.replace("{{ m['content'] }}", "{{ m['content'] if not m['tool_calls'] }}")
CALL = {"type": "function", "function": {"name": "look", "arguments": {}}}
TOOL = {"type": "function", "function": {"name": "look"}}


def called(words):
    turns = [
        {"role": "assistant", "content": words, "tool_calls": [CALL]},
        {"role": "tool", "content": "sunny"},
    ]
    return PromptContext(between=turns)


def left_out(template, context, answer="Sunny."):
    tokenizer = train_tokenizer(["how is it there"] * 20, vocab_size=270)
    tokenizer.chat_template = template
    return LeftOut(tokenizer).of("Weather?", context, answer)


@pytest.mark.parametrize(
    ("template", "context", "part"),
    [
        (PLAIN, called(""), "the assistant's calls of tools"),
        (PLAIN, PromptContext(answer_calls=[CALL]), "the assistant's calls of tools"),
        (PLAIN, PromptContext(tools=[TOOL]), "the list of tools"),
        (WITH_CALLS, PromptContext(tools=[TOOL]), "the list of tools"),
        (INSTEAD, called("I look."), "what the assistant says beside a call"),
        (
            PLAIN.replace("in messages", "in messages if m['role'] != 'tool'"),
            PromptContext(between=[{"role": "tool", "content": "sunny"}]),
            "what the tool says",
        ),
    ],
)
def test_a_part_without_a_trace_is_named_with_the_remedy(template, context, part):
    said = f"the chat template does not write {part}; use a template that does"
    assert left_out(template, context) == said


@pytest.mark.parametrize(
    ("template", "context"),
    [
        (PLAIN, PromptContext(system="Be brief.")),
        (WITH_CALLS, called("I look.")),
        (WHOLE, PromptContext(tools=[TOOL], answer_calls=[CALL])),
        (INSTEAD, called("")),
        # Without a template every message is its text and a newline.
        (None, PromptContext(system="Be brief.")),
    ],
)
def test_a_row_that_is_written_whole_is_taken(template, context):
    assert left_out(template, context) is None


def test_a_template_that_fails_on_a_probe_is_tried_on_the_rows_themselves():
    """One that takes no system message, as Gemma's: no row without one is left out for it."""
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + PLAIN
    assert left_out(strict, PromptContext()) is None
    assert "calls of tools" in left_out(strict, called(""))


def test_tools_without_a_template_are_left_out():
    said = "a model without a template does not write the list of tools; use a template that does"
    assert left_out(None, PromptContext(tools=[TOOL])) == said
