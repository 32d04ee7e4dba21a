"""Rows of others: how each format is recognized, and what a row becomes, worked out by hand."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.data.contexts import PromptContext
from posttrain.data.formats.base import value_at
from posttrain.data.formats.detect import detect
from posttrain.data.formats.forms import Conversation, JudgedAnswers, Unfit
from posttrain.data.formats.registry import FORMATS
from posttrain.data.row_files import FileRow
from posttrain.stage.errors import UserError

HI = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
NO = [HI[0], {"role": "assistant", "content": "no"}]
SEARCH = {"name": "search", "parameters": {"type": "object"}}
CALL = {"type": "function", "function": {"name": "search", "arguments": {"q": "x"}}}


def reading(*rows):
    return detect(rows, where="f.jsonl")


def forms(row, wanted=None):
    known = FORMATS.parse(wanted) if wanted else reading(row).format
    return list(known.convert(row, "f.jsonl:7"))


def refused(row, wanted):
    with pytest.raises(UserError) as caught:
        forms(row, wanted)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# A row, the format that it is found to be of, and what is learned: prompt, context, answer.
TAUGHT = {
    "messages": ({"messages": HI}, "messages", ("hi", {}, "yo")),
    "messages with a system prompt and a round before": (
        {"messages": [{"role": "system", "content": "Be brief."}, *HI, HI[0],
                      {"role": "assistant", "content": " bye\n"}]},
        "messages",
        ("hi", {"system": "Be brief.", "turns": HI}, "bye"),
    ),
    "messages in parts, a developer, and nulls of a table": (
        {"messages": [{"role": "developer", "content": "Be kind.", "tool_calls": None},
                      {"role": "user", "content": [{"type": "text", "text": "h"},
                                                   {"type": "text", "text": "i"}]}, HI[1]]},
        "messages",
        ("hi", {"system": "Be kind."}, "yo"),
    ),
    "messages as JSON, as CSV has them": (
        {"messages": json.dumps(HI), "system": "Be brief."},
        "messages",
        ("hi", {"system": "Be brief."}, "yo"),
    ),
    "a call of a tool, its result, and tools": (
        {"messages": [HI[0], {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "function": {"name": "search", "arguments": '{"q": "x"}'}}]},
            {"role": "tool", "content": "found", "tool_call_id": "1"}, *HI[1:], *HI],
         "tools": json.dumps([SEARCH])},
        "messages",
        ("hi", {"turns": [HI[0], {"role": "assistant", "tool_calls": [
            {"id": "1", "function": CALL["function"]}]},
            {"role": "tool", "content": "found"}, HI[1]],
            "tools": [{"type": "function", "function": SEARCH}]}, "yo"),
    ),
    "a conversation that ends with the call of a tool": (
        {"messages": [HI[0], {"role": "assistant", "content": None, "tool_calls": [CALL]}],
         "tools": [SEARCH]},
        "messages",
        ("hi", {"answer_calls": [CALL], "tools": [{"type": "function", "function": SEARCH}]}, ""),
    ),
    "an answer behind the result of a tool": (
        {"messages": [*HI, {"role": "user", "content": "where?"},
                      {"role": "assistant", "content": None, "tool_calls": [CALL]},
                      {"role": "tool", "content": "found"},
                      {"role": "assistant", "content": "there"}]},
        "messages",
        ("where?", {"turns": HI, "between": [{"role": "assistant", "tool_calls": [CALL]},
                                             {"role": "tool", "content": "found"}]}, "there"),
    ),
    # What follows the last answer that bears loss changes nothing before it.
    "weights": (
        {"messages": [HI[0], {**HI[1], "weight": 0}, HI[0], {**NO[1], "weight": 1}, HI[0],
                      {**HI[1], "weight": 0.0}]},
        "messages",
        ("hi", {"turns": [HI[0], {**HI[1], "weight": 0}]}, "no"),
    ),
    "thoughts beside the answer, and in one before": (
        {"messages": [HI[0], {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyo"}, HI[0],
                      {**HI[1], "reasoning_content": "well", "weight": None}]},
        "messages",
        ("hi", {"turns": [HI[0], {"role": "assistant",
                                  "content": "<think>\nhm\n</think>\n\nyo"}]},
         "<think>\nwell\n</think>\n\nyo"),
    ),
    "a text": ({"text": "once upon a time", "id": 7}, "text", ("", {}, "once upon a time")),
    "ShareGPT with weights": (
        {"conversations": [{"from": "human", "value": "hi"},
                           {"from": "gpt", "value": "yo", "weight": 0},
                           {"from": "human", "value": "hi"},
                           {"from": "gpt", "value": "no", "weight": 1}]},
        "sharegpt",
        ("hi", {"turns": [HI[0], {**HI[1], "weight": 0}]}, "no"),
    ),
    "ShareGPT": (
        {"conversations": [{"from": "system", "value": "Be brief."},
                           {"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}]},
        "sharegpt",
        ("hi", {"system": "Be brief."}, "yo"),
    ),
    "ShareGPT with a call": (
        {"conversations": [{"from": "human", "value": "hi"},
                           {"from": "function_call", "value": '{"name": "search", "arguments": '
                                                              '{"q": "x"}}'},
                           {"from": "observation", "value": "found"},
                           {"from": "gpt", "value": "there"}, {"from": "human", "value": "hi"},
                           {"from": "gpt", "value": "yo"}],
         "system": "Be brief."},
        "sharegpt",
        ("hi", {"system": "Be brief.", "turns": [
            HI[0], {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "content": "found"},
            {"role": "assistant", "content": "there"}]}, "yo"),
    ),
    "Alpaca": (
        {"instruction": "Add.", "input": "2 and 3", "output": "5"},
        "alpaca",
        ("Add.\n\n2 and 3", {}, "5"),
    ),
    "Alpaca without input, with rounds before": (
        {"instruction": "Add.", "input": "", "output": "5", "history": [["hi", "yo"]]},
        "alpaca",
        ("Add.", {"turns": HI}, "5"),
    ),
    "instruction, context, response": (
        {"instruction": "Say it.", "context": "It is 5.", "response": "5", "category": "open"},
        "instruction",
        ("Say it.\n\nIt is 5.", {}, "5"),
    ),
    "prompt and completion": ({"prompt": "2 + 3 =", "completion": 5}, "prompt_completion",
                              ("2 + 3 =", {}, "5")),
    "prompt and completion as messages": (
        {"prompt": [{"role": "system", "content": "s"}, HI[0]], "completion": HI[1:]},
        "prompt_completion",
        ("hi", {"system": "s"}, "yo"),
    ),
    "input and output": ({"input": "hi", "output": "yo"}, "prompt_completion", ("hi", {}, "yo")),
    "question and answer": ({"question": "2 + 3?", "answer": 5}, "question_answer",
                            ("2 + 3?", {}, "5")),
    "problem, solution, answer": (
        {"problem": "2 + 3?", "solution": "It is 5.", "answer": "5"},
        "question_answer",
        ("2 + 3?", {}, "It is 5."),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAUGHT)
def test_a_row_is_recognized_and_becomes_an_answer_to_learn(name):
    row, kind, (prompt, context, answer) = TAUGHT[name]
    assert reading(row).format.kind == kind
    (form,) = forms(row)
    found = form.taught()
    assert (found.prompt, found.answer) == (prompt, answer)
    assert found.context == PromptContext.parse(context, where="test")


DIALOG = "\n\nHuman: hi\n\nAssistant: yo\n\nHuman: what?\n\nAssistant: "
JUDGED = {
    "texts with a prompt": (
        {"prompt": "hi", "chosen": " yo", "rejected": "no "},
        "preference",
        [("hi", {}, "yo", "no", None, None)],
    ),
    "messages, the prompt in both": (
        {"chosen": HI, "rejected": NO, "score_chosen": 4, "score_rejected": "1.5"},
        "preference",
        [("hi", {}, "yo", "no", 4.0, 1.5)],
    ),
    "messages, the prompt beside and in both": (
        {"prompt": "hi", "chosen": HI, "rejected": NO},
        "preference",
        [("hi", {}, "yo", "no", None, None)],
    ),
    "messages behind a prompt with a system message": (
        {"prompt": [{"role": "system", "content": "s"}, HI[0]], "chosen": HI[1:],
         "rejected": NO[1:]},
        "preference",
        [("hi", {"system": "s"}, "yo", "no", None, None)],
    ),
    "dialogs of Human and Assistant": (
        {"chosen": DIALOG + "this", "rejected": DIALOG + "that"},
        "preference",
        [("what?", {"turns": HI}, "this", "that", None, None)],
    ),
    "a good answer alone": (
        {"prompt": "hi", "completion": "yo", "label": True},
        "kto",
        [("hi", {}, "yo", "", None, None)],
    ),
    "a bad answer alone, from CSV": (
        {"prompt": "hi", "completion": "no", "label": "False"},
        "kto",
        [("hi", {}, "", "no", None, None)],
    ),
    "messages with a label": (
        {"prompt": HI[:1], "completion": HI[1:], "label": 1},
        "kto",
        [("hi", {}, "yo", "", None, None)],
    ),
    "answers with scores": (
        {"prompt": "hi", "responses": ["a", "b", "c"], "scores": [2, 3, 1]},
        "ranked",
        [("hi", {}, "b", "c", 3.0, 1.0)],
    ),
    "answers with ranks": (
        {"prompt": "hi", "answers": ["a", "b", "c"], "ranks": [2, 1, 3]},
        "ranked",
        [("hi", {}, "b", "c", None, None)],
    ),
    "answers that have their scores inside": (
        {"instruction": "hi", "completions": [{"response": "a", "overall_score": 1.0},
                                              {"response": "b", "overall_score": 5.0}]},
        "ranked",
        [("hi", {}, "b", "a", 5.0, 1.0)],
    ),
    "equal scores": ({"prompt": "hi", "answers": ["a", "b"], "scores": [1, 1]}, "ranked", []),
}  # fmt: skip


def judged(row, wanted=None):
    found = [form.judged() for form in forms(row, wanted)]
    assert all(isinstance(each, JudgedAnswers) for each in found)
    said = [each.context.model_dump(mode="json", exclude_defaults=True) for each in found]
    return [
        (a.prompt, context, a.chosen, a.rejected, a.chosen_score, a.rejected_score)
        for a, context in zip(found, said, strict=True)
    ]


@pytest.mark.parametrize("name", JUDGED)
def test_a_row_is_recognized_and_becomes_answers_told_apart(name):
    row, kind, expected = JUDGED[name]
    assert reading(row).format.kind == kind
    assert judged(row) == expected


def test_a_list_gives_the_pairs_that_are_asked_for():
    row = {"prompt": "hi", "answers": ["b", "a", "c"], "scores": [2, 3, 1]}

    def pairs(how):
        return [each[2:4] for each in judged(row, {"kind": "ranked", "pairs": how})]

    assert pairs("best_worst") == [("a", "c")]
    assert pairs("adjacent") == [("a", "b"), ("b", "c")]
    assert pairs("all") == [("a", "b"), ("a", "c"), ("b", "c")]
    in_order = {"prompt": "hi", "answers": ["a", "b"]}
    assert judged(in_order, {"kind": "ranked", "best_first": True})[0][2:] == ("a", "b", None, None)


# Two formats that fit, neither of which reads all that the other does: both are named.
BOTH = [
    ({"prompt": "hi", "chosen": HI, "rejected": NO, "messages": HI}, ("messages", "preference")),
    ({"question": "a", "answer": "b", "text": "a b"}, ("question_answer", "text")),
    ({"prompt": "a", "completion": "b", "answer": "c"}, ("prompt_completion", "question_answer")),
    ({"instruction": "a", "output": "b", "response": "c"}, ("alpaca", "instruction")),
]


@pytest.mark.parametrize(("row", "kinds"), BOTH, ids=lambda value: "-".join(value))
def test_of_two_readings_none_is_guessed(row, kinds):
    with pytest.raises(UserError) as caught:
        reading(row)
    for kind in kinds:
        assert f"`--as {kind}`" in str(caught.value)
        # Whoever says which is believed.
        wanted = FORMATS.parse(kind)
        assert detect([row], where="f", wanted=wanted).format.kind == kind


def test_what_reads_more_is_taken_and_says_so():
    found = reading({"prompt": "a", "completion": "b", "label": True, "id": 7})
    assert str(found) == (
        "kto: prompt, completion, label; not read: id"
        " (rather than prompt_completion, which would read less)"
    )
    # A label of another sort is none: it is left unread, and said to be.
    found = reading({"prompt": "a", "completion": "b", "label": "sports"})
    assert str(found) == "prompt_completion: prompt, completion; not read: label"


def test_two_columns_for_one_thing_are_not_guessed_between():
    row = {"prompt": "a", "response": "b", "output": "c"}
    with pytest.raises(
        UserError,
        match=r"f.jsonl: completion of format prompt_completion could be"
        r" 'response' or 'output'; say which with columns: {completion: response}",
    ):
        reading(row)  # fmt: skip
    wanted = FORMATS.parse({"kind": "prompt_completion", "columns": {"completion": "output"}})
    assert detect([row], where="f", wanted=wanted).meanings["completion"] == "output"


def test_one_broken_row_is_named_and_makes_no_other_format_of_the_file():
    rows = [{"prompt": "a", "completion": "b", "label": True}] * 9
    broken = {"prompt": "a", "completion": "b", "label": "maybe"}
    assert reading(*rows, broken).format.kind == "kto"
    assert refused(broken, "kto") == "f.jsonl:7: label must be true or false, got 'maybe'"


def test_what_no_format_knows_names_the_nearest_and_the_ways_out():
    with pytest.raises(UserError) as caught:
        reading({"instruction": "a", "outptu": "b"})
    assert str(caught.value) == (
        "f.jsonl: no format has the columns instruction, outptu; of format alpaca it lacks output;"
        " map them with `--as KIND --column OURS=THEIRS` (format: {kind: ..., columns: {ours:"
        " theirs}}), or convert rows by a function: format: {kind: map, function: module:function}"
    )
    with pytest.raises(UserError, match="no format has the columns none that hold anything"):
        reading({"a": None, "b": ""})


def test_columns_are_mapped_by_dotted_paths():
    row = {"meta": {"q": "hi"}, "turns": [{"text": "yo"}], "a.b": "dots"}
    wanted = FORMATS.parse(
        {"kind": "prompt_completion", "columns": {"prompt": "meta.q", "completion": "turns.0.text"}}
    )
    found = detect([row], where="f", wanted=wanted)
    assert found.meanings == {"prompt": "meta.q", "completion": "turns.0.text"}
    assert found.unread == ("a.b",)
    assert forms(row, wanted)[0].taught().prompt == "hi"
    assert value_at(row, "a.b") == "dots"


def test_a_mapped_column_that_is_not_there_is_named_with_the_nearest():
    for columns, sentence in (
        ({"prompt": "meta.qq"}, "there is no column 'meta.qq' for prompt; did you mean 'meta.q'?"),
        ({"promt": "meta.q"}, "has no column 'promt'; did you mean 'prompt'?"),
    ):
        wanted = FORMATS.parse({"kind": "prompt_completion", "columns": columns})
        with pytest.raises(UserError) as caught:
            detect([{"meta": {"q": "hi"}}], where="f", wanted=wanted)
        assert sentence in str(caught.value)
    with pytest.raises(UserError, match="not of format alpaca: they lack output; their columns"):
        detect([{"instruction": "a"}], where="f", wanted=FORMATS.parse("alpaca"))


def test_what_is_whole_and_of_no_use_says_why():
    def unfit(*messages):
        with pytest.raises(Unfit) as caught:
            Conversation(messages).taught()
        return str(caught.value)

    asks, says = HI
    tool = {"role": "tool", "content": "found"}
    assert unfit() == "it has no messages"
    assert unfit(asks) == "its last message is the user's, so there is no answer to learn"
    assert unfit(says) == "the answer follows a message of no one's, and not of the user's"
    assert unfit(asks, {**says, "content": " "}) == "its last answer is empty"
    assert unfit(says, tool, says) == (
        "the answer follows a message of the tool's, and not of the user's"
    )
    assert unfit(asks, says, says) == (
        "the answer follows a message of the assistant's, and not of the user's"
    )
    assert unfit(asks, {**says, "weight": 0}) == "all that the assistant says has weight 0"
    assert unfit(asks, {"role": "system", "content": "s"}, asks, says) == (
        "a system message stands in its middle"
    )


WRONG = [
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages",
     "f.jsonl:7: message 1 has the role 'robot'"),
    ({"messages": [HI[0], {"role": "asistant", "content": "x"}]}, "messages",
     "f.jsonl:7: message 2 has the role 'asistant'; did you mean 'assistant'?"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
     "messages", "f.jsonl:7: message 1 holds"),
    ({"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]}, "messages",
     "f.jsonl:7: message 1 has the weight 0.5; 1 bears loss, and 0 does not"),
    ({"messages": "no list"}, "messages", "f.jsonl:7: messages must be a list of objects"),
    ({"messages": HI, "tools": "search"}, "messages", "f.jsonl:7: tools must be a list of JSON"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{x"}]}]},
     "messages", "f.jsonl:7: message 1: the arguments of a call are no JSON: '{x'"),
    ({"conversations": [{"from": "humn", "value": "x"}]}, "sharegpt",
     "f.jsonl:7: message 1 is from 'humn'; did you mean 'human'?"),
    ({"conversations": [{"from": "human"}]}, "sharegpt",
     "f.jsonl:7: message 1 must be an object with from and value"),
    ({"instruction": "a", "output": ""}, "alpaca",
     "f.jsonl:7: the output is empty; fill it, or drop the row"),
    ({"instruction": ["a"], "output": "b"}, "alpaca",
     "f.jsonl:7: the instruction must be text, got ['a']"),
    ({"prompt": "a", "completion": "\ud800"}, "prompt_completion", "holds half a character"),
    ({"chosen": HI, "rejected": [{"role": "user", "content": "ho"}, HI[1]]}, "preference",
     "f.jsonl:7: there is no prompt, and chosen and rejected do not begin with the same message"),
    ({"chosen": [*HI, *HI], "rejected": NO}, "preference",
     "f.jsonl:7: chosen has 3 messages behind what both begin with"),
    ({"prompt": "a", "chosen": "b", "rejected": "c", "score_chosen": "high"}, "preference",
     "f.jsonl:7: the chosen_score must be a number, got 'high'"),
    ({"prompt": "a", "chosen": "b", "rejected": "c", "weight": 0}, "preference",
     "f.jsonl:7: weight must be above 0"),
    ({"prompt": "a", "answers": ["b", "c"], "scores": [1]}, "ranked",
     "f.jsonl:7: there are 1 scores for 2 answers"),
    ({"prompt": "a", "answers": ["b", ""], "scores": [1, 2]}, "ranked",
     "f.jsonl:7: completion 2 has no text"),
    ({"prompt": "a", "answers": ["b", "c"]}, "ranked", "f.jsonl:7: completion 1 has no score"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "kind", "sentence"), WRONG, ids=range(len(WRONG)))
def test_a_row_that_cannot_be_read_is_named_with_its_line(row, kind, sentence):
    assert sentence in refused(row, kind)


def test_same_answers_are_no_preference():
    (form,) = forms({"prompt": "a", "chosen": "b", "rejected": "b "})
    with pytest.raises(Unfit, match="both answers are the same"):
        form.judged()


def test_a_function_of_ones_own_converts_what_no_format_knows(tmp_path, monkeypatch):
    (tmp_path / "my_rows.py").write_text(
        "def convert(row):\n"
        "    if not row['a']: return None\n"
        "    return {'messages': [{'role': 'user', 'content': row['q']},"
        " {'role': 'assistant', 'content': row['a']}]}\n"
        "def number(row): return 1\n"
        "def broken(row): return row['x']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def mapped(function):
        return {"kind": "map", "function": f"my_rows:{function}"}

    (form,) = forms({"q": "hi", "a": "yo"}, mapped("convert"))
    assert form.taught().answer == "yo"
    assert forms({"q": "hi", "a": ""}, mapped("convert")) == []
    assert "must return a mapping with messages, or None" in refused({}, mapped("number"))
    assert "f.jsonl:7: my_rows:broken raised KeyError: 'x'" in refused({}, mapped("broken"))
    assert "there is no my_rows:none" in refused({}, mapped("none"))
    assert "there is no nobody:f" in refused({}, {"kind": "map", "function": "nobody:f"})


TEXT = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: text.strip())


@settings(max_examples=100)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4), st.one_of(st.just(""), TEXT))
def test_a_conversation_is_the_same_whichever_way_it_is_written(rounds, system):
    said = [("system", system)] if system else []
    for asks, answers in rounds:
        said += [("user", asks), ("assistant", answers)]
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    *earlier, (prompt, answer) = rounds
    written = [
        {"messages": [{"role": role, "content": text} for role, text in said]},
        {"conversations": [{"from": names[role], "value": text} for role, text in said]},
        {"instruction": prompt, "output": answer, "history": [list(each) for each in earlier],
         "system": system},
    ]  # fmt: skip
    found = [forms(json.loads(json.dumps(row)))[0].taught() for row in written]
    assert found[0] == found[1] == found[2]
    assert found[0].answer == answer.strip()
    assert found[0].context.messages(found[0].prompt) == [
        {"role": role, "content": text.strip()} for role, text in said[:-1]
    ]


@settings(max_examples=50)
@given(TEXT, TEXT, TEXT)
def test_a_pair_is_the_same_whichever_way_it_is_written(prompt, chosen, rejected):
    asks = {"role": "user", "content": prompt}
    sides = {"chosen": chosen, "rejected": rejected}
    told = {name: {"role": "assistant", "content": text} for name, text in sides.items()}
    written = [
        {"prompt": prompt, **sides},
        {"prompt": [asks], **{name: [each] for name, each in told.items()}},
        {"prompt": prompt, **{name: [asks, each] for name, each in told.items()}},
        {name: [asks, each] for name, each in told.items()},
    ]
    found = [forms(row, "preference")[0] for row in written]
    assert all(each == found[0] for each in found)


def test_where_a_row_stands_is_its_origin():
    assert FileRow("chats.jsonl", 17, {}).where == "chats.jsonl:17"
