import time

import pytest
from pydantic import ValidationError

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.extractors.after_thinking import AfterThinkingAnswer
from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.boxed import BoxedAnswer
from posttrain.learning.rewards.extractors.code import CodeAnswer
from posttrain.learning.rewards.extractors.json_value import JsonAnswer, json_values
from posttrain.learning.rewards.extractors.last_line import LastLineAnswer
from posttrain.learning.rewards.extractors.marker import MarkerAnswer
from posttrain.learning.rewards.extractors.regex import RegexAnswer
from posttrain.learning.rewards.extractors.registry import EXTRACTORS
from posttrain.learning.rewards.extractors.tag import TagAnswer
from posttrain.learning.rewards.extractors.whole import WholeAnswer
from posttrain.learning.rewards.verifiers.exact import ExactVerifier
from posttrain.learning.rewards.verifiers.numeric import NumericVerifier
from posttrain.learning.rewards.verifiers.reasoning_gym import GymVerifier
from posttrain.learning.rewards.verify import (
    metadata_for,
    places_of_answers,
    stated_answers,
    verifier_of,
    verify,
)
from posttrain.stage.errors import UserError
from posttrain.stage.slots import parts_in

ALL = {
    "marker": MarkerAnswer(),
    "boxed": BoxedAnswer(),
    "tag": TagAnswer(),
    "regex": RegexAnswer(pattern=r"answer is (\S+)"),
    "json": JsonAnswer(),
    "last_line": LastLineAnswer(),
    "whole": WholeAnswer(),
    "code": CodeAnswer(),
    "after_thinking": AfterThinkingAnswer(),
}


def test_every_extractor_is_tried_here():
    assert {kind: type(part) for kind, part in ALL.items()} == EXTRACTORS.parts


@pytest.mark.parametrize(
    ("extractor", "text", "answer"),
    [
        (MarkerAnswer(marker="Answer:"), "so\nAnswer: 5\n", "5"),
        (MarkerAnswer(marker="Answer:"), "#### 5", None),
        (BoxedAnswer(), r"so \boxed{4}.", "4"),
        (BoxedAnswer(), r"\boxed{1} no, \boxed{2}", "2"),
        (BoxedAnswer(), r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (BoxedAnswer(), r"\fbox {x}", "x"),
        # The outer box is not closed; the inner one is, and opens last.
        (BoxedAnswer(), r"\boxed{ \boxed{3}", "3"),
        (BoxedAnswer(), r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (BoxedAnswer(), r"\boxed{7} then \boxed{8", "7"),
        (BoxedAnswer(), r"} \boxed{5}", "5"),
        (BoxedAnswer(), r"\boxed{}", None),
        (BoxedAnswer(), "4", None),
        (TagAnswer(), "<think>a</think> <answer> 5 </answer>", "5"),
        (TagAnswer(), "<answer>4</answer><answer>5</answer>", "5"),
        (TagAnswer(), "<answer>4</answer> <answer>5", "4"),
        (TagAnswer(), "5</answer>", None),
        (TagAnswer(), "<answer></answer>", None),
        (TagAnswer(tag="sql"), "<sql>SELECT 1</sql>", "SELECT 1"),
        (ALL["regex"], "the answer is 4, no: the answer is 5", "5"),
        (RegexAnswer(pattern=r"\d+"), "4 and 57", "57"),
        (ALL["regex"], "it is 5", None),
        (JsonAnswer(), 'I say {"answer": " 5 "}.', "5"),
        (JsonAnswer(), '{"answer": 5}', "5"),
        (JsonAnswer(), '{"answer": {"a": [1]}}', '{"a": [1]}'),
        # The last object that has the key.
        (JsonAnswer(), '{"answer": 4} {"answer": 5} {"other": 6}', "5"),
        (JsonAnswer(path="result.1.value"), '{"result": [{}, {"value": "x"}]}', "x"),
        (JsonAnswer(path="result.7"), '{"result": [1]}', None),
        (JsonAnswer(), '{"answer": null}', None),
        (JsonAnswer(), '{"answer": 5', None),
        (LastLineAnswer(), "a\n b \n\n", "b"),
        (LastLineAnswer(), " \n", None),
        (WholeAnswer(), " a\nb ", "a\nb"),
        (WholeAnswer(), " ", None),
        (ALL["after_thinking"], "<think>\n#### 4\n</think>\n#### 5", "5"),
        # What is thought is no answer, also where the prompt has opened the tag.
        (ALL["after_thinking"], "#### 4\n</think>\nno idea", None),
        (ALL["after_thinking"], "<think>\n#### 4", None),
        (ALL["after_thinking"], "#### 4", None),
        (AfterThinkingAnswer(closed=False), "#### 4", "4"),
        (AfterThinkingAnswer(closed=False), "<think>\n#### 4", None),
        (AfterThinkingAnswer(answer="whole", tag="r"), "<r>a</r> b </r> 5 ", "5"),
        (AfterThinkingAnswer(answer={"kind": "boxed"}), r"\boxed{4}</think>\boxed{5}", "5"),
    ],
)
def test_the_answer_is_found(extractor, text, answer):
    assert extractor.extract(text) == answer


@pytest.mark.parametrize("extractor", ALL.values(), ids=ALL)
def test_a_text_of_many_marks_takes_no_time(extractor):
    """A model may write anything: a hundred thousand openings are read in one go, or not at all."""
    begun = time.perf_counter()
    for piece in (r"\boxed{", "<answer>", "{", "[", '{"a":', "#### \n", "answer is "):
        extractor.extract(piece * 100_000)
    assert time.perf_counter() - begun < 10


def test_another_extractor_is_read_and_told_apart_like_any_part():
    """Its settings come back from what is written of it, and its kind counts in keys."""
    regex = {"kind": "regex", "pattern": "is (.)"}
    found = EXTRACTORS.parse({"kind": "after_thinking", "answer": regex})
    assert found.extract("it is 4</think>it is 5") == "5"
    assert EXTRACTORS.parse(found.model_dump()) == found
    assert [part.kind for part in parts_in(found)] == ["after_thinking", "regex"]
    with pytest.raises(
        UserError, match=r"answer.answer: there is no extractor 'lastline'; did you"
    ):
        ExactVerifier.parse(
            {"answer": {"kind": "after_thinking", "answer": "lastline"}}, where="verifier"
        )


def test_the_last_object_is_found_behind_any_brackets_that_are_none():
    text = r"\frac{a}{b} [x " * 1000 + '{"answer": 5}'
    assert JsonAnswer().extract(text) == "5"


def test_json_is_found_amid_text_and_not_inside_of_itself():
    assert json_values('a {b} [1, {"c": 2}] {"d": {"e": 3}}') == [[1, {"c": 2}], {"d": {"e": 3}}]


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [("(a", "no regular expression"), ("(a)(b)", "2 groups, and one is the answer")],
)
def test_a_pattern_that_names_no_answer_is_refused(pattern, complaint):
    with pytest.raises(ValidationError, match=complaint):
        RegexAnswer(pattern=pattern)


@pytest.mark.parametrize(
    ("extractor", "reference"),
    [
        (BoxedAnswer(), r"1 + 1 is \boxed{2}"),
        (BoxedAnswer(), "2"),
        (BoxedAnswer(), "so\n#### 2"),
        (TagAnswer(), "<answer>2</answer>"),
        (RegexAnswer(pattern=r"(\d+)\."), "so\n#### 2"),
        (JsonAnswer(), " 2 "),
    ],
)
def test_the_reference_may_be_a_worked_solution(extractor, reference):
    assert extractor.reference(reference) == "2"


@pytest.mark.parametrize("part", [ExactVerifier, NumericVerifier, GymVerifier])
def test_a_verifier_compares_what_its_extractor_finds(part):
    verifier = part(answer={"kind": "boxed"})
    problem = Problem("chain_sum", "2 + 3 =", "5", 1, part().kind, metadata_for(verifier))
    assert verifier_of(problem) == verifier
    assert verify(r"it is \boxed{5}", problem).reason == "correct"
    assert verify(r"it is \boxed{4}", problem).value < 1
    assert verify("#### 5", problem).reason == "no_answer"
    assert stated_answers([r"\boxed{5}", "5"], problem) == ["5", None]


def test_the_default_leaves_the_rows_of_problems_as_they_were():
    assert metadata_for(NumericVerifier()) == "{}"
    assert metadata_for(NumericVerifier(answer={"kind": "marker"})) == "{}"
    assert metadata_for(NumericVerifier(answer="boxed")) == (
        '{"numeric": {"answer": {"kind": "boxed"}}}'
    )


def test_a_row_names_its_extractor_wrongly():
    problem = Problem("s", "q", "5", 1, "exact", '{"exact": {"answer": "boxt"}}')
    with pytest.raises(UserError, match="of 's': ExactVerifier.answer: .*did you mean 'boxed'"):
        verify("#### 5", problem)


def test_places_are_named_once_with_their_verifier():
    boxed = metadata_for(NumericVerifier(answer="boxed"))
    problems = [
        Problem("s", f"q{n}", "5", 1, "numeric", each) for n, each in enumerate([boxed] * 3)
    ]
    problems.append(Problem("s", "q", "5", 1, "exact"))
    assert places_of_answers(problems) == (
        r"in a \boxed{...} (verifier numeric), or on a line that starts with '####' (verifier"
        " exact)"
    )


@pytest.mark.parametrize("extractor", ALL.values(), ids=ALL)
def test_every_extractor_says_where_it_looks(extractor):
    assert extractor.place() != Extractor.place(extractor)
