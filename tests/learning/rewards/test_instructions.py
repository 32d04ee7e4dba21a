import pytest
from pydantic import ValidationError

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.constraints.registry import CONSTRAINTS
from posttrain.learning.rewards.verifiers.instructions import InstructionsVerifier
from posttrain.learning.rewards.verify import metadata_for, verifier_of, verify
from posttrain.stage.errors import UserError

# Of each: its arguments, texts that follow it, texts that do not.
CASES = {
    "keywords:existence": [
        ({"keywords": ["sun", "moon"]}, ["Sun and MOON"], ["only the sun"]),
        ({"keywords": ["c++"]}, ["C++"], ["c"]),
    ],
    "keywords:frequency": [
        ({"keyword": "go", "frequency": 2, "relation": "at least"}, ["Go, gone"], ["go"]),
        ({"keyword": "go", "frequency": 2, "relation": "less than"}, ["go"], ["go go"]),
    ],
    "keywords:forbidden_words": [
        ({"forbidden_words": ["cat"]}, ["concatenate"], ["a Cat."]),
    ],
    "keywords:letter_frequency": [
        ({"letter": "E", "let_frequency": 2, "let_relation": "at least"}, ["eE"], ["e"]),
    ],
    "language:response_language": [
        ({"language": "de"}, ["Das ist ein gewöhnlicher deutscher Satz."], ["This is English"]),
        ({"language": "de"}, ["123"], []),
    ],
    "length_constraints:number_words": [
        ({"num_words": 3, "relation": "at least"}, ["one two-three"], ["one two"]),
        ({"num_words": 3, "relation": "less than"}, ["one two"], ["one two three"]),
    ],
    "length_constraints:number_sentences": [
        ({"num_sentences": 2, "relation": "at least"}, ['"No." Why?', "One. two"], ["One, 2"]),
        ({"num_sentences": 2, "relation": "less than"}, ["Dr. A. Smith left."], ["No! Yes."]),
    ],
    "length_constraints:number_paragraphs": [
        ({"num_paragraphs": 2}, ["a *** b", "***\na\n***\nb"], ["a\n\nb", "a *** *** b"]),
    ],
    "length_constraints:nth_paragraph_first_word": [
        (
            {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
            ["First.\n\n'Then' it ended."],
            ["Then.\n\nFirst.", "then", "a\n\nthen\n\nb"],
        ),
    ],
    "detectable_content:number_placeholders": [
        ({"num_placeholders": 2}, ["[name], [address]"], ["[name]", "[name\n]"]),
    ],
    "detectable_content:postscript": [
        ({"postscript_marker": "P.S."}, ["Bye.\nP. S. more"], ["Bye. PS"]),
        ({"postscript_marker": "P.P.S"}, ["p.p.s. more"], ["P.S. more"]),
    ],
    "detectable_format:number_bullet_lists": [
        ({"num_bullets": 2}, ["* a\n - b\n**c**"], ["* a", "* a\n* b\n* c"]),
    ],
    "detectable_format:constrained_response": [
        ({}, ["My answer is no."], ["No."]),
    ],
    "detectable_format:number_highlighted_sections": [
        ({"num_highlights": 2}, ["*a* and **b**"], ["*a* and ** **", "*a\n*"]),
    ],
    "detectable_format:multiple_sections": [
        ({"section_spliter": "Section", "num_sections": 2}, ["Section 1 Section 2"], ["Section"]),
    ],
    "detectable_format:json_format": [
        ({}, ['{"a": 1}', '```json\n{"a": 1}\n```'], ["a", '{"a": 1} b']),
    ],
    "detectable_format:title": [({}, ["<<Joy>>\ntext"], ["<Joy>", "<< >>"])],
    "combination:two_responses": [
        ({}, ["a ****** b", "******a******b"], ["a ****** a", "a", "a******b******c"]),
    ],
    "combination:repeat_prompt": [
        ({"prompt_to_repeat": "Why so?"}, ["why so? Because."], ["Because. Why so?"]),
    ],
    "startend:end_checker": [({"end_phrase": "The end."}, ['"So. the end."'], ["The end. No."])],
    "startend:quotation": [({}, [' "a" '], ["a", '"']),],
    "change_case:capital_word_frequency": [
        (
            {"capital_frequency": 2, "capital_relation": "at least"},
            ["NO WAY-OUT"],
            ["NO way"],
        ),
    ],
    "change_case:english_capital": [
        ({}, ["THIS IS AN ENGLISH SENTENCE."], ["This is an English sentence."]),
    ],
    "change_case:english_lowercase": [
        ({}, ["this is an english sentence."], ["This is an English sentence."]),
    ],
    "punctuation:no_comma": [({}, ["a; b"], ["a, b"])],
}  # fmt: skip
NEEDS_LANGDETECT = ("language:response_language", "change_case:english")


def test_they_are_ifevals_25_and_each_is_tried():
    assert len(CONSTRAINTS.parts) == 25
    assert CASES.keys() == CONSTRAINTS.parts.keys()


@pytest.mark.parametrize("kind", CASES)
def test_a_text_follows_it_or_does_not(kind):
    if kind.startswith(NEEDS_LANGDETECT):
        pytest.importorskip("langdetect")
    for arguments, good, bad in CASES[kind]:
        part = CONSTRAINTS.parse({"kind": kind, **arguments})
        assert [text for text in good if not part.followed(text)] == []
        assert [text for text in bad if part.followed(text)] == []


TWO = [
    {"kind": "punctuation:no_comma"},
    {"kind": "keywords:existence", "keywords": ["sun"]},
]


def score(text, **fields):
    verifier = InstructionsVerifier(**fields)
    return verify(text, Problem("s", "q", "", 1, "instructions", metadata_for(verifier)))


def test_the_share_that_is_followed_is_the_score():
    assert score("the sun", constraints=TWO).reason == "correct"
    assert score("the sun, the moon", constraints=TWO).value == 0.5
    assert score("moon, stars", constraints=TWO).value == 0.0
    assert score("moon, stars", constraints=TWO).reason == "not_followed"
    assert score(" ", constraints=TWO).reason == "no_answer"


def test_loosely_an_introduction_and_asterisks_are_forgiven():
    text = "Sure, here it is:\nthe *s*un"
    assert score(text, constraints=TWO).value == 0.0
    assert score(text, constraints=TWO, loose=True).value == 1.0


def test_rows_of_ifeval_are_read_as_they_are():
    row = {
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [
            {"num_words": None, "relation": None},
            {"num_words": 2.0, "relation": "at least", "keyword": None},
        ],
    }
    verifier = InstructionsVerifier(**row)
    assert [each.kind for each in verifier.constraints] == row["instruction_id_list"]
    problem = Problem("s", "q", "", 1, "instructions", metadata_for(verifier))
    assert verifier_of(problem) == verifier
    assert score("one, two", **row).value == 0.5


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"constraints": [{"kind": "punctuation:no_coma"}]}, "did you mean 'punctuation:no_comma'"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "1 entries, kwargs 0"),
        ({"instruction_id_list": "punctuation:no_comma", "kwargs": []}, "must both be lists"),
    ],
)
def test_what_is_no_list_of_constraints_is_refused(fields, complaint):
    with pytest.raises(ValidationError, match=complaint):
        InstructionsVerifier(**fields)


def test_a_row_without_constraints_is_refused():
    with pytest.raises(UserError, match="'instructions', and has no constraint; name the column"):
        score("a")
