import pytest
from pydantic import ValidationError

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.json_schema import SchemaVerifier
from posttrain.learning.rewards.verifiers.regex import RegexVerifier
from posttrain.stage.errors import UserError

PROBLEM = Problem("forms", "Write a date.", "", 1, "regex")
PERSON = {
    "type": "object",
    "required": ["name", "age"],
    "properties": {"age": {"type": "integer", "minimum": 0}},
}


@pytest.mark.parametrize(
    ("pattern", "text", "reason"),
    [
        (r"\d{4}-\d{2}", "on 2026-11-23", "correct"),
        (r"^\d{4}$", "on 2026", "wrong_answer"),
        (r"^\d{4}$", " 2026 ", "correct"),
        (r"x", " ", "no_answer"),
    ],
)
def test_a_pattern_is_searched(pattern, text, reason):
    assert RegexVerifier(pattern=pattern).score(text, PROBLEM).reason == reason


def test_patterns_are_checked_when_they_are_read():
    with pytest.raises(ValidationError, match="no regular expression"):
        RegexVerifier(pattern="(")
    with pytest.raises(UserError, match="neither its source nor its row has a pattern"):
        RegexVerifier().score("a", PROBLEM)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('Here: {"name": "Ada", "age": 36}', "correct"),
        ('{"name": "Ada"}', "not_valid"),
        ('{"name": "Ada", "age": -1}', "not_valid"),
        # The last object counts.
        ('{"name": "Ada", "age": 36} {"name": "Ada"}', "not_valid"),
        ("Ada, 36", "not_json"),
        ("", "no_answer"),
    ],
)
def test_the_last_json_object_is_validated(text, reason):
    assert SchemaVerifier(json_schema=PERSON).score(text, PROBLEM).reason == reason


def test_schemas_are_checked_when_they_are_read_and_fetch_nothing():
    with pytest.raises(ValidationError, match="no JSON schema: 'thing' is not valid"):
        SchemaVerifier(json_schema={"type": "thing"})
    with pytest.raises(UserError, match="neither its source nor its row has a json_schema"):
        SchemaVerifier().score("{}", PROBLEM)
    elsewhere = SchemaVerifier(json_schema={"$ref": "http://127.0.0.1:9/schema.json"})
    with pytest.raises(UserError, match="refers to 'http://127.0.0.1:9/schema.json', which is not"):
        elsewhere.score("{}", PROBLEM)
