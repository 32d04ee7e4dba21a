"""Critiques of spans by a model: what is quoted is found, laid on tokens, counted, asked once."""

import json
from types import SimpleNamespace

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rewards.components.base import Answers
from posttrain.learning.rewards.components.judged_spans import (
    JudgedSpansComponent,
    QuotedSpans,
    quoted_spans,
)
from posttrain.learning.rewards.components.unaligned_spans import UnalignedSpansComponent
from posttrain.learning.rewards.config import RewardStack
from posttrain.stage.errors import UserError

TEXT = "Paris is big. Paris is in Spain."


def critique(good=(), poor=()):
    return json.dumps({"textual_feedback": "So.", "good_spans": good, "poor_spans": poor})


def places(reply, text=TEXT):
    spans = quoted_spans(reply, text)
    return [(text[begin:end], begin, good) for begin, end, good in spans.found], spans.lost


def test_quotes_are_found_as_they_are_and_others_are_counted():
    reply = f"Here it is:\n```json\n{critique(['big'], ['in Spain', 'in france', ' '])}\n```"
    assert places(reply) == ([("big", 9, True), ("in Spain", 23, False)], 1)
    # Letters that differ are another phrase.
    assert places(critique(["paris"])) == ([], 1)


def test_a_quote_that_stands_there_twice_means_each_in_turn():
    assert places(critique(["Paris"])) == ([("Paris", 0, True)], 0)
    assert places(critique(["Paris"] * 3)) == ([("Paris", 0, True), ("Paris", 14, True)], 1)
    # In both lists it is poor.
    assert places(critique(["Paris", "big"], ["Paris"])) == (
        [("big", 9, True), ("Paris", 0, False)],
        0,
    )


@pytest.mark.parametrize(
    "reply",
    [
        "I cannot say.",
        "{not json}",
        '{"good_spans": []}',
        '{"good_spans": "big", "poor_spans": []}',
        '{"good_spans": [3], "poor_spans": []}',
        "[1, 2]",
    ],
)
def test_a_reply_without_lists_of_texts_judges_nothing(reply):
    assert quoted_spans(reply, TEXT) is None


class Words:
    """A tokenizer of which each token is one of these; 0 says nothing."""

    PIECES = ("", "Paris", " is", " big", ".", " ", "in Sp", "ain")

    def decode(self, ids, *, skip_special_tokens):
        assert skip_special_tokens
        return "".join(self.PIECES[each] for each in ids)


def answers(texts, ids):
    return Answers(
        Problem("own", "Where?", "France", 1, "exact"),
        texts,
        tuple(len(each) for each in ids),
        (False,) * len(texts),
        # The first token is read, and is not the policy's.
        token_ids=tuple((1, *each) for each in ids),
        drawn=tuple((False, *(True,) * len(each)) for each in ids),
    )


def asked(tokenizer):
    return SimpleNamespace(models=SimpleNamespace(tokenizer=tokenizer))


def test_every_token_of_a_span_is_paid_and_the_first_of_two_spans_counts(server):
    """Paris| is| big|.| |Paris| is| |in Sp|ain|. and the end, which says nothing."""
    ids = ((1, 2, 3, 4, 5, 1, 2, 5, 6, 7, 4, 0), (1, 4))
    group = answers((TEXT, "Paris."), ids)
    said = {
        # " is big" overlaps the poor "big.", and stands before it.
        TEXT: critique(["is big", "Madrid"], ["big.", "Spain"]),
        "Paris.": "I cannot say.",
    }
    server.reply = lambda body: said[body["messages"][0]["content"].rpartition("|")[2]]
    part = JudgedSpansComponent(
        endpoint=server.endpoint(), template="{prompt}|{answer}|{completion}", weight=0.5
    )
    [found] = part.score_tokens([group], asked(Words()))
    # "Spain" begins inside of the token "in Sp".
    assert found == [
        [0.0, 0.5, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0, -0.5, -0.5, 0.0, 0.0],
        None,
    ]
    assert {body["messages"][0]["content"] for body in server.requests} == {
        f"Where?|France|{TEXT}",
        "Where?|France|Paris.",
    }
    # Counted without another request, and scored again to the same from what was answered.
    server.reply = lambda _body: critique()
    lost = UnalignedSpansComponent(asks=part)
    assert lost.score_all([group, group], None) == [[1.0, None]] * 2
    assert part.score_tokens([group], asked(Words())) == [found]
    assert len(server.requests) == 2
    with pytest.raises(UserError, match="there is no tokenizer here"):
        part.score_tokens([group], asked(None))


def test_a_span_has_the_tokens_that_hold_a_letter_of_it(server):
    """Held against the letters themselves, with a tokenizer of bytes that cuts words as it may."""
    tokenizer = train_tokenizer(
        ["Paris is big in Spain", "Zürich liegt am See"] * 9, vocab_size=280
    )
    text = "Zürich is big. Ünd Paris"
    ids = tuple(tokenizer.encode(text, add_special_tokens=False))
    server.reply = lambda _body: critique(["rich is"], ["Ünd"])
    part = JudgedSpansComponent(endpoint=server.endpoint())
    [[paid]] = part.score_tokens([answers((text,), (ids,))], asked(tokenizer))
    ends = [len(tokenizer.decode(ids[: place + 1]).rstrip("\ufffd")) for place in range(len(ids))]
    good, poor = text.find("rich is"), text.find("Ünd")
    letters = [1.0 if good <= at < good + 7 else -1.0 if poor <= at < poor + 3 else 0.0
               for at in range(len(text))]  # fmt: skip
    begin = 0
    for end, each in zip(ends, paid, strict=True):
        if letters[begin:end]:
            assert each == max(letters[begin:end], key=abs)
        begin = end


def test_a_template_without_the_answer_is_refused(server):
    critic = {"kind": "judged_spans", "endpoint": server.endpoint().model_dump(), "template": "?"}
    with pytest.raises(UserError, match=r"the template must contain \{completion\}"):
        RewardStack.parse(
            {"components": {"correct": "verifier", "critic": critic}}, where="rl.reward"
        )


def test_critic_and_count_stand_in_one_reward(server):
    critic = {"kind": "judged_spans", "endpoint": server.endpoint().model_dump()}
    stack = RewardStack.parse(
        {
            "components": {
                "correct": "verifier",
                "critique": critic,
                "lost": {"kind": "unaligned_spans", "asks": critic},
            },
            "combine": {"kind": "sum", "weights": {"correct": 0.0, "lost": 0.0}},
            "bonus_may_outweigh": True,
        },
        where="rl.reward",
    )
    assert stack.by_token == {"critique": 1.0}
    assert QuotedSpans((), 0) == quoted_spans(critique(), TEXT)
