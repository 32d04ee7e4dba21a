"""System prompts, few-shot rows, earlier turns and tools around a prompt."""

import pytest
import torch

from posttrain.data.chat_templates.own import OwnTemplate
from posttrain.data.contexts import PromptContext, PromptInContext, in_context
from posttrain.data.rows import TokenTable, check_answers, encode_rows, learned_ends
from posttrain.data.templates import encode_prompts, render_prompt
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.errors import UserError

CHAT = (
    "{% if tools %}<tools>{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}"
    "{% for c in m['tool_calls'] or [] %}<call>{{ c['name'] }}{% endfor %}"
    "{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TOLD = PromptContext(
    system="Be brief.",
    before="Think first.",
    after="Write ####.",
    shots=[{"prompt": "1 + 1 =", "answer": "2"}],
    turns=[{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}],
)


@pytest.fixture
def tokenizer():
    return train_tokenizer(["3 + 4 = 7\n#### 7"] * 20, vocab_size=280)


def test_a_context_is_written_as_what_is_not_at_its_default_and_read_back():
    assert PromptContext().written() == ""
    assert PromptContext(system="Be brief.").written() == '{"system":"Be brief."}'
    assert PromptContext.read(TOLD.written()) == TOLD
    assert PromptContext.read("") == PromptContext()


def test_messages_are_the_system_prompt_shots_turns_and_the_prompt_in_its_own():
    assert TOLD.messages("3 + 4 =") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Think first.\n1 + 1 =\nWrite ####."},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "Think first.\n3 + 4 =\nWrite ####."},
    ]


def test_what_a_row_says_goes_before_what_its_source_says():
    row = PromptContext(turns=[{"role": "user", "content": "bye"}])
    both = TOLD.with_row(row)
    assert (both.system, both.shots) == (TOLD.system, TOLD.shots)
    assert both.turns == row.turns


def test_without_a_template_every_message_is_its_text_and_a_newline(tokenizer):
    text = render_prompt(tokenizer, PromptInContext("3 + 4 =", PromptContext(system="Be brief.")))
    assert text == "Be brief.\n3 + 4 =\n"
    told = PromptInContext("3 + 4 =", PromptContext(tools=[{"name": "add"}]))
    with pytest.raises(UserError, match="comes with tools, which only a chat template can write"):
        render_prompt(tokenizer, told)


def test_the_models_own_template_writes_system_tools_and_calls(tokenizer):
    tokenizer.chat_template = CHAT
    context = PromptContext(
        system="Be brief.",
        tools=[{"name": "add"}],
        turns=[
            {"role": "user", "content": "sum?"},
            {"role": "assistant", "tool_calls": [{"name": "add"}]},
            {"role": "tool", "content": "7"},
        ],
    )
    assert render_prompt(tokenizer, PromptInContext("3 + 4 =", context)) == (
        '<tools>[{"name": "add"}]\n<system>Be brief.<eos>\n<user>sum?<eos>\n'
        "<assistant><call>add<eos>\n<tool>7<eos>\n<user>3 + 4 =<eos>\n<assistant>"
    )


def test_a_template_that_drops_the_system_prompt_is_refused(tokenizer):
    tokenizer.chat_template = CHAT.replace("for m in messages", "for m in messages[-1:]")
    told = PromptInContext("3 + 4 =", PromptContext(system="Be brief."))
    with pytest.raises(UserError, match="drops the system prompt 'Be brief.'; use a template that"):
        encode_prompts(tokenizer, [told])


def test_a_template_that_takes_no_system_message_says_so(tokenizer):
    tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT
    )
    told = PromptInContext("3 + 4 =", PromptContext(system="Be brief."))
    with pytest.raises(UserError, match="fails on messages of system, user: no system; use a te"):
        render_prompt(tokenizer, told)


def learned_text(tokenizer, row):
    """The text of the tokens that bear loss, by the mask of a batch."""
    batch = TokenTable([row], pad=0).batch([0])
    return tokenizer.decode(batch.input_ids_BT[batch.wanted_BT])


@pytest.mark.parametrize("template", [None, CHAT])
def test_all_that_the_assistant_said_bears_loss_but_for_the_shots(tokenizer, template):
    tokenizer.chat_template = template
    prompts = [PromptInContext("3 + 4 =", TOLD)]
    (last,) = encode_rows(tokenizer, prompts, ["7"])
    (both,) = encode_rows(tokenizer, prompts, ["7"], turns="assistant")
    assert last.ids == both.ids
    assert learned_text(tokenizer, last) == "7<eos>"
    # The end that the template writes behind an answer is learned with it.
    assert learned_text(tokenizer, both) == ("hi<eos>7<eos>" if template else "hi7<eos>")


def test_packed_and_padded_rows_have_the_same_mask(tokenizer):
    tokenizer.chat_template = CHAT
    prompts = [PromptInContext("3 + 4 =", TOLD), "1 + 1 =", PromptInContext("2 + 3 =", TOLD)]
    rows = encode_rows(tokenizer, prompts, ["7", "2", "5"], turns="assistant")
    padded = TokenTable(rows, pad=0).batch([0, 1, 2])
    packed = TokenTable(rows, pad=0, packed=True).batch([0, 1, 2])
    assert padded.num_units == packed.num_units == sum(row.num_learned for row in rows)
    taken = [batch.input_ids_BT[batch.wanted_BT] for batch in (padded, packed)]
    assert torch.equal(*taken)
    assert learned_ends(padded).tolist() == learned_ends(packed).tolist()
    assert packed.packing.wanted_rows_BT.sum(-1).tolist() == [row.num_learned for row in rows]


def test_an_answer_that_the_template_rewrites_cannot_be_learned(tokenizer):
    tokenizer.chat_template = CHAT.replace("m['content'] }}", "m['content'] | upper }}")
    prompts = [PromptInContext("3 + 4 =", TOLD.model_copy(update={"system": "", "before": ""}))]
    with pytest.raises(UserError, match="writes the earlier answer 'hi' otherwise than it was giv"):
        encode_rows(tokenizer, prompts, ["7"], turns="assistant")


def test_answers_are_checked_in_their_context(tokenizer):
    tokenizer.chat_template = CHAT
    check_answers(tokenizer, [PromptInContext("3 + 4 =", TOLD)], ["7"])


def test_rows_without_a_context_are_plain_prompts():
    prompts = in_context(["a", "b"], ["", TOLD.written()])
    assert prompts == ["a", PromptInContext("b", TOLD)]


# As Qwen3 writes: turns end with a token that is not the tokenizer's end of text; thinking stands
# in the last turn alone, an empty one if there is none, and is closed at once where it is switched
# off.
TURNS = (
    "{% for m in messages %}<|{{ m['role'] }}|>"
    "{% if m['role'] == 'assistant' and loop.last %}<think></think>{% endif %}"
    "{{ m['content'].split('</think>')[-1] }}"
    "{% for c in m['tool_calls'] or [] %}<call>{{ c['name'] }}</call>{% endfor %}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and enable_thinking is false %}<think></think>\n{% endif %}"
    "{% endif %}"
)
CALLED = PromptContext(
    turns=[
        {"role": "user", "content": "one?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two?"},
        {"role": "assistant", "content": "2", "weight": 0},
    ],
    between=[
        {"role": "assistant", "tool_calls": [{"name": "add"}], "weight": 0},
        {"role": "tool", "content": "found 7"},
        {"role": "assistant", "content": "so", "tool_calls": [{"name": "check"}]},
        {"role": "tool", "content": "yes"},
    ],
)


@pytest.fixture
def ended(tokenizer):
    """A tokenizer whose chat template ends turns with a token of its own."""
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
    tokenizer.chat_template = TURNS
    return tokenizer


@pytest.mark.parametrize(
    ("turns", "learned"),
    [
        ("last", "7<|end|>"),
        # No turn of the user's or of a tool, none of weight 0, and each with its end.
        ("assistant", "1<|end|>so<call>check</call><|end|>7<|end|>"),
    ],
)
def test_calls_bear_loss_and_results_of_tools_and_turns_of_no_weight_do_not(ended, turns, learned):
    (row,) = encode_rows(ended, [PromptInContext("3 + 4 =", CALLED)], ["7"], turns=turns)
    assert ended.decode(row.ids) == (
        "<|user|>one?<|end|>\n<|assistant|>1<|end|>\n<|user|>two?<|end|>\n<|assistant|>2<|end|>\n"
        "<|user|>3 + 4 =<|end|>\n<|assistant|><call>add</call><|end|>\n<|tool|>found 7<|end|>\n"
        "<|assistant|>so<call>check</call><|end|>\n<|tool|>yes<|end|>\n"
        "<|assistant|>7<|end|>"
    )
    assert learned_text(ended, row) == learned


CALLING = PromptContext(tools=[{"name": "add"}], answer_calls=[{"name": "add"}, {"name": "check"}])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "<call>add</call><call>check</call>"),
        ("so", "so<call>add</call><call>check</call>"),
        ("<think>7?</think>so", "<think>7?</think>so<call>add</call><call>check</call>"),
    ],
)
def test_an_answer_that_calls_tools_is_learned_as_the_template_spells_it(ended, text, said):
    """As text: what spells a special token in an answer is none, and the turn ends once."""
    (row,) = encode_rows(ended, [PromptInContext("3 + 4 =", CALLING)], [text])
    assert ended.decode(row.ids).endswith(f"<|user|>3 + 4 =<|end|>\n<|assistant|>{said}<|end|>")
    assert learned_text(ended, row) == f"{said}<|end|>"


def test_a_template_that_writes_no_calls_is_refused_by_the_name_of_the_tool(ended):
    ended.chat_template = TURNS.replace("tool_calls", "other_calls")
    with pytest.raises(UserError, match="drops the call of 'add'; use a template that writes"):
        encode_rows(ended, [PromptInContext("3 + 4 =", CALLING)], ["so"])


def test_tools_want_a_template_also_where_they_were_called_already(tokenizer):
    with pytest.raises(UserError, match="comes with tools, which only a chat template can write"):
        render_prompt(tokenizer, PromptInContext("3 + 4 =", CALLED))


THOUGHT_BEFORE = PromptContext(
    turns=[
        {"role": "user", "content": "one?"},
        {"role": "assistant", "content": "<think>one is\n</think>\n\n1"},
        {"role": "user", "content": "two?"},
        {"role": "assistant", "content": "2"},
    ]
)


def test_history_is_without_the_thinking_and_such_turns_are_not_learned(ended):
    prompts = [PromptInContext("3 + 4 =", THOUGHT_BEFORE)]
    (row,) = encode_rows(ended, prompts, ["<think>3, 4</think>7"], turns="assistant")
    assert ended.decode(row.ids) == (
        "<|user|>one?<|end|>\n<|assistant|>1<|end|>\n<|user|>two?<|end|>\n<|assistant|>2<|end|>\n"
        "<|user|>3 + 4 =<|end|>\n<|assistant|><think>3, 4</think>7<|end|>"
    )
    # A first turn learned as it stands there would teach to answer without a thought.
    assert learned_text(ended, row) == "2<|end|><think>3, 4</think>7<|end|>"


def test_with_thinking_off_answers_follow_the_thought_that_the_template_closes(ended):
    OwnTemplate(thinking=False).give_to(ended, where="sft")
    prompts = [PromptInContext("3 + 4 =", THOUGHT_BEFORE)]
    (row,) = encode_rows(ended, prompts, ["<think>3, 4</think>7"], turns="assistant")
    assert ended.decode(row.ids).endswith(
        "<|user|>3 + 4 =<|end|>\n<|assistant|><think></think>\n7<|end|>"
    )
    assert learned_text(ended, row) == "2<|end|>7<|end|>"


def test_a_tag_that_the_prompt_opens_is_not_written_twice(ended):
    ended.chat_template = TURNS.replace("<think></think>", "<think>").replace("is false", "")
    OwnTemplate(thinking=True).give_to(ended, where="sft")
    (row,) = encode_rows(ended, ["3 + 4 ="], ["<think>\n3, 4</think>7"])
    assert ended.decode(row.ids).endswith("<|assistant|><think>\n3, 4</think>7<|end|>")
    assert learned_text(ended, row) == "3, 4</think>7<|end|>"


def test_a_template_that_leaves_a_thought_out_of_an_answer_does_not_drop_the_answer(ended):
    check_answers(ended, ["3 + 4 ="], ["<think>3, 4</think>7"])
    ended.chat_template = TURNS.replace("{{ m['content'].split('</think>')[-1] }}", "")
    with pytest.raises(UserError, match="drops the answer '<think>3, 4</think>7'"):
        check_answers(ended, ["3 + 4 ="], ["<think>3, 4</think>7"])


@pytest.mark.parametrize("template", [None, TURNS])
def test_a_text_that_answers_nothing_is_learned_whole(ended, template):
    """The opening token is what its first token follows; it ends as texts do, not as turns do."""
    ended.chat_template = template
    asked, text = encode_rows(ended, ["3 + 4 =", ""], ["7", "3 + 4"])
    assert ended.decode(text.ids) == "<bos>3 + 4<eos>"
    assert (learned_text(ended, asked), learned_text(ended, text)) == (
        "7<|end|>" if template else "7<eos>",
        "3 + 4<eos>",
    )
    assert encode_rows(ended, [""], ["3 + 4"], mask_prompts=False) == [text]
