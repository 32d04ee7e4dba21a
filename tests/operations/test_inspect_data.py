"""What a file holds: counts and lengths worked out by hand, and tokens as training sees them."""

import json

import pytest

from posttrain.data.contexts import PromptContext, PromptInContext
from posttrain.data.formats.registry import FORMATS
from posttrain.data.rows import encode_rows
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.operations.inspect_data import Encoding, LengthSpread, inspect_file
from posttrain.stage.errors import UserError

CHAT = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer():
    """One that merges nothing but what stands in these words."""
    made = train_tokenizer(["five is 2 + 3"] * 20, vocab_size=270)
    made.chat_template = CHAT
    return made


@pytest.fixture
def lines(tmp_path):
    def write(*rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def chat(*said):
    roles = ("user", "assistant")
    turns = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]
    return {"messages": turns}


def test_lengths_are_by_nearest_rank():
    # Half of 20 lengths are at most 10, 95 of 100 at most 19.
    assert LengthSpread.of(range(1, 21)) == LengthSpread(10, 19, 20)
    assert LengthSpread.of([7]) == LengthSpread(7, 7, 7)


def test_rows_are_counted_by_what_becomes_of_them(lines):
    path = lines(
        chat("2 + 3?", "five"),
        chat("2 + 3?", "five"),
        chat("2 + 3?", "it is five"),
        chat("2 + 3?"),
        {"messages": [{"role": "usr", "content": "x"}]},
    )
    found = inspect_file(path)
    assert (found.num_rows, found.num_usable, found.num_broken) == (5, 2, 1)
    assert dict(found.left_out) == {
        "duplicate": 1,
        "its last message is the user's, so there is no answer to learn": 1,
    }
    assert found.broken == [f"{path}:5: message 1 has the role 'usr'; did you mean 'user'?"]
    # 6 characters asked; 4 and 10 answered.
    assert found.lengths == {"answer": [4, 10], "prompt": [6, 6], "whole row": [10, 16]}
    assert found.unit == "characters"
    assert (found.over("answer", 4), found.over("answer", 3)) == (1, 2)


@pytest.mark.parametrize("turns", ["last", "assistant"])
def test_the_tokens_are_those_that_training_sees(lines, tokenizer, turns):
    path = lines(chat("hi", "five is", "2 + 3?", "five"))
    found = inspect_file(path, encoding=Encoding(tokenizer, turns))
    earlier = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "five is"}]
    prompt = PromptInContext("2 + 3?", PromptContext(turns=earlier))
    (row,) = encode_rows(tokenizer, [prompt], ["five"], turns=turns)
    (shown,) = found.shown
    learned = "".join("".join(span.tokens) for span in shown.spans if span.learned)
    masked = "".join("".join(span.tokens) for span in shown.spans if not span.learned)
    if turns == "last":
        assert learned == "five<eos>"
        assert masked == ("<user>hi<eos>\n<assistant>five is<eos>\n<user>2 + 3?<eos>\n<assistant>")
    else:
        assert learned == "five is<eos>five<eos>"
        assert masked == "<user>hi<eos>\n<assistant>\n<user>2 + 3?<eos>\n<assistant>"
    assert sum(len(s.tokens) for s in shown.spans if s.learned) == row.num_learned
    assert found.lengths["answer"] == [row.num_learned]
    assert found.lengths["whole row"] == [len(row.ids)]


def test_both_sides_of_a_pair_are_shown_and_of_a_label_one(lines, tokenizer):
    pair = lines({"prompt": "2 + 3?", "chosen": "five", "rejected": "2"})
    found = inspect_file(pair, encoding=Encoding(tokenizer))
    assert [row.side for row in found.shown] == ["chosen", "rejected"]
    label = lines({"prompt": "2 + 3?", "completion": "2", "label": False})
    found = inspect_file(label, encoding=Encoding(tokenizer))
    assert [row.side for row in found.shown] == ["rejected"]
    assert found.lengths.keys() == {"rejected", "prompt", "whole row"}


def test_of_a_text_every_token_bears_loss(lines, tokenizer):
    found = inspect_file(lines({"text": "five is five"}), encoding=Encoding(tokenizer))
    shown = [("".join(span.tokens), span.learned) for span in found.shown[0].spans]
    assert shown == [("<bos>", False), ("five is five<eos>", True)]


def test_the_row_that_is_asked_for_is_shown(lines, tokenizer):
    path = lines(*(chat(f"{n}?", f"{n}") for n in range(5)))
    found = inspect_file(path, encoding=Encoding(tokenizer), line=4)
    assert [row.where for row in found.shown] == [f"{path}:4"]
    with pytest.raises(UserError, match="has no row 9 that can be learned; leave --row out"):
        inspect_file(path, encoding=Encoding(tokenizer), line=9)


def test_a_format_that_is_stated_is_taken(lines):
    path = lines({"prompt": "a", "response": "b", "output": "c"})
    with pytest.raises(UserError, match="could be 'response' or 'output'"):
        inspect_file(path)
    wanted = FORMATS.parse({"kind": "prompt_completion", "columns": {"completion": "output"}})
    assert inspect_file(path, wanted=wanted).num_usable == 1
