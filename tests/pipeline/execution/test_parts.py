"""What a checkpoint and a table carry inside, told by behavior; models that do not fit."""

import json
import re
from types import SimpleNamespace
from typing import Annotated, Literal

import polars as pl
import pytest

from posttrain.data.source_verifiers import write_verifiers
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rewards.constraints.registry import CONSTRAINTS
from posttrain.learning.rewards.extractors.registry import EXTRACTORS
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.learning.rewards.verifiers.exact import ExactVerifier
from posttrain.learning.rewards.verifiers.numeric import NumericVerifier
from posttrain.learning.rewards.verifiers.registry import VERIFIERS
from posttrain.pipeline.execution.compatibility import refuse_mixed
from posttrain.pipeline.execution.parts import (
    OF_SOURCE,
    PLAIN,
    ArtifactPart,
    parts_of,
    with_settings,
)
from posttrain.pipeline.verifiers import verifier_digest, verifiers_of
from posttrain.provenance.code import CodeReader
from posttrain.provenance.ledger import ArtifactRecord
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot, Part, plugged
from posttrain.stage.spec import ArtifactKind, Port, Stage, Task

CHECKPOINT = ArtifactKind.CHECKPOINT


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["1 + 2 = 3", "what is that"], vocab_size=300)


@pytest.fixture
def saved(tokenizer, tmp_path):
    def save(name, template=None, **special):
        tokenizer.chat_template = template
        tokenizer.save_pretrained(tmp_path / name)
        config = tmp_path / name / "tokenizer_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | special))
        tokenizer.chat_template = None
        return tmp_path / name

    return save


def told(folder):
    return {part.type: part.digest for part in parts_of(folder, CHECKPOINT)}


def test_a_tokenizer_is_told_by_what_it_does_not_by_its_spelling(saved):
    one, other = saved("one"), saved("other", model_max_length=7)
    rules = json.loads((other / "tokenizer.json").read_text())
    rules["truncation"] = {
        "direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0
    }  # fmt: skip
    (other / "tokenizer.json").write_text(json.dumps(rules, indent=7))
    assert told(one) == told(other)
    special = told(saved("special", eos_token={"content": "<pad>"}))
    assert special["tokenizer"] != told(one)["tokenizer"]
    assert special["template"] == told(one)["template"]


def test_the_template_is_a_part_of_its_own(saved):
    plain, chat = parts_of(saved("a"), CHECKPOINT), parts_of(saved("b", "{{ x }}"), CHECKPOINT)
    assert [part.path("data/a") for part in plain] == ["data/a#tokenizer", PLAIN]
    assert [part.path("data/b") for part in chat] == ["data/b#tokenizer", "data/b#template"]
    assert plain[0] == chat[0]
    assert plain[1].digest != chat[1].digest


def test_rows_that_name_no_verifier_ask_no_installed_package_for_one(tmp_path, monkeypatch):
    def asked():
        raise AssertionError("a held stage may not read what is installed in its project")

    monkeypatch.setattr("posttrain.stage.slots.installed_parts", asked)
    rows = pl.DataFrame({"verifier": ["", ""], "metadata": ['{"difficulty": {"terms": 3}}'] * 2})
    rows.write_parquet(tmp_path / "rows.parquet")
    assert parts_of(tmp_path / "rows.parquet", ArtifactKind.PROBLEMS) == ()


def test_a_model_without_a_tokenizer_has_no_parts(tmp_path):
    assert parts_of(tmp_path, CHECKPOINT) == ()


def test_a_table_has_the_verifiers_that_it_names_each_once(tmp_path):
    path = tmp_path / "table.parquet"
    pl.DataFrame({"id": list("abcd"), "verifier": ["exact", "", "numeric", "exact"]}).write_parquet(
        path
    )
    found = parts_of(path, ArtifactKind.COMPLETIONS)
    assert [(part.type, part.name, part.digest) for part in found] == [
        # Of the rows that name none: the verifiers of their sources.
        ("verifier", "", None),
        ("verifier", "exact", None),
        ("verifier", "numeric", None),
    ]
    pl.DataFrame({"id": ["a"]}).write_parquet(path)
    assert parts_of(path, ArtifactKind.ROLLOUTS) == ()


def asked(template):
    return json.dumps({"judge": {"endpoint": {"model": "grader"}, "template": template}})


def test_a_model_that_judges_is_told_by_its_name_and_by_all_that_it_is_asked_with(tmp_path):
    def names(*templates):
        rows = {
            "verifier": ["judge"] * len(templates) + ["exact"],
            "metadata": [asked(each) for each in templates] + ['{"digits": 1}'],
        }
        pl.DataFrame(rows).write_parquet(tmp_path / "p.parquet")
        return [part.name for part in parts_of(tmp_path / "p.parquet", ArtifactKind.PROBLEMS)]

    exact, one = names("Grade {completion}.")
    assert exact == "exact"
    assert one.startswith("judge/grader.")
    assert names("Grade {completion}.") == names("Grade {completion}.", "Grade {completion}.")
    # The same model, asked in two ways: one verifier, another one.
    again, two = names("Grade {completion}.", "Be strict: {completion}")
    assert again == exact
    assert two.startswith("judge/grader.")
    assert two not in (one, *names("Be strict: {completion}"))
    assert names("Be strict: {completion}", "Grade {completion}.") == [exact, two]
    said = {"judge": {"endpoint": {"model": "other"}, "template": "Grade {completion}."}}
    rows = {"verifier": ["judge"] * 2, "metadata": [asked("Grade {completion}."), json.dumps(said)]}
    pl.DataFrame(rows).write_parquet(tmp_path / "p.parquet")
    found = [part.name for part in parts_of(tmp_path / "p.parquet", ArtifactKind.PROBLEMS)]
    assert [name.partition(".")[0] for name in found] == ["judge/grader", "judge/other"]
    assert one in found


def test_rows_with_settings_of_their_own_are_one_verifier_and_name_its_parts(tmp_path):
    """Of each row the kind alone tells which settings are meant: the source's is not in the row."""

    def names(own, *settings):
        rows = [json.dumps({"difficulty": {"digits": 1}} | each) for each in settings]
        pl.DataFrame({"verifier": [own] * len(rows), "metadata": rows}).write_parquet(path)
        return [part.name for part in parts_of(path, ArtifactKind.PROBLEMS)]

    path = tmp_path / "p.parquet"
    tests = [{"python_tests": {"tests": [f"assert f({n}) == {n}"]}} for n in range(300)]
    for own in ("", "python_tests"):
        inside, one = names(own, *tests)
        assert inside == "extractor.code"
        assert re.fullmatch(r"python_tests/set\.[0-9a-f]{12}", one)
        assert names(own, *tests[::-1]) == [inside, one]
        assert names(own, *tests[1:]) != [inside, one]
    kinds = ("change_case:english_lowercase", "punctuation:no_comma")
    said = ({"constraints": [{"kind": kind}]} for kind in kinds)
    found = names("", *({"instructions": each} for each in said))
    assert {f"constraint.{kind}" for kind in kinds} < set(found)
    assert len(found) == 3
    assert names("", {}) == []


def test_the_parts_of_a_verifier_have_names_of_their_own(tmp_path):
    boxed = json.dumps({"exact": {"answer": {"kind": "boxed"}}})
    rows = {"verifier": ["exact"] * 2, "metadata": ["{}", boxed]}
    pl.DataFrame(rows).write_parquet(tmp_path / "p.parquet")
    plain, named, inside = parts_of(tmp_path / "p.parquet", ArtifactKind.PROBLEMS)
    assert (plain.name, inside.name) == ("exact", "extractor.boxed")
    assert named.name.startswith("exact/set.")


class Graded(Verifier):
    """What it goes by is said by the source, how an answer is found by the row."""

    kind: Literal["graded"] = "graded"
    scale: float
    answer: Annotated[Part, InSlot(EXTRACTORS)] = EXTRACTORS.parse("marker")

    def score(self, text, problem):
        return Score(self.scale, "")


def test_parts_that_rows_name_count_where_the_rest_is_for_the_source_to_say(tmp_path):
    def names(settings):
        rows = {"verifier": [""], "metadata": [json.dumps(settings)]}
        pl.DataFrame(rows).write_parquet(tmp_path / "p.parquet")
        with plugged(lambda: {"verifier": {"graded": Graded}}):
            found = parts_of(tmp_path / "p.parquet", ArtifactKind.PROBLEMS)
        return [part.name for part in found]

    inside, one = names({"graded": {"answer": {"kind": "tag", "tag": "b"}}})
    assert inside == "extractor.tag"
    assert one.startswith("graded/set.")
    # One that is wrong, or that nobody knows, hides no other.
    inside, _ = names({"graded": {"answer": "boxed", "scale": "wide", "limit": 3}})
    assert inside == "extractor.boxed"
    (one,) = names({"graded": {"answer": "no such extractor"}})
    assert one.startswith("graded/set.")


def test_a_table_without_questions_has_the_verifiers_of_the_problems_beside_or_before_it():
    judge, exact = (
        ArtifactPart(ArtifactKind.VERIFIER, "judge"),
        ArtifactPart(ArtifactKind.VERIFIER, "exact"),
    )
    full = ArtifactPart(ArtifactKind.VERIFIER, "judge/grader.1234")
    assert with_settings({"a": (exact, judge), "b": (full,)}, ()) == {
        "a": (exact, full),
        "b": (full,),
    }
    assert with_settings({"a": (judge,)}, {"judge/x.1", "exact"}) == {
        "a": (ArtifactPart(ArtifactKind.VERIFIER, "judge/x.1"),)
    }
    assert with_settings({"a": (judge,)}, ()) == {"a": (judge,)}


def test_rows_that_name_no_verifier_were_scored_by_those_of_their_sources(tmp_path):
    path = tmp_path / "verifiers.json"
    sources = {"a": NumericVerifier(), "b": ExactVerifier(answer="boxed"), "c": NumericVerifier()}
    write_verifiers(path, sources)
    found = parts_of(path, ArtifactKind.VERIFIERS)
    (full, inside, plain) = (part.name for part in found)
    assert (inside, plain) == ("extractor.boxed", "numeric")
    assert full.startswith("exact/set.")
    whoever = ArtifactPart(ArtifactKind.VERIFIER, OF_SOURCE)
    assert with_settings({"traces": (whoever,), "verifiers": found}, ())["traces"] == found
    assert with_settings({"samples": (whoever,)}, [part.name for part in found]) == {
        "samples": found
    }
    assert with_settings({"samples": (whoever,)}, ()) == {"samples": ()}


VERIFIER_OF = "verify.py"
CODE = {
    VERIFIER_OF: "from posttrain.learning.rewards.verifiers.exact import ExactVerifier\n"
    "from posttrain.learning.rewards.verifiers.numeric import NumericVerifier\n"
    "def verifier_of(x):\n    return {'a': ExactVerifier, 'b': NumericVerifier}[x]\n",
    "verifiers/exact.py": "LIMIT = 1\nclass ExactVerifier:\n"
    "    def score(self, text):\n        return text > LIMIT\n",
    "verifiers/numeric.py": "class NumericVerifier:\n"
    "    def score(self, text):\n        return text\n",
}


def test_a_verifier_changes_with_its_own_code_only(tmp_path):
    folder = tmp_path / "posttrain" / "learning" / "rewards"
    for package in (folder.parents[1], folder.parent, folder, folder / "verifiers"):
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("")

    def digests(**changed):
        for name, text in (CODE | changed).items():
            (folder / name).write_text(text)
        reader = CodeReader(tmp_path, packages=("posttrain",))
        return [verifier_digest(reader, name) for name in ("exact", "numeric", "unknown")]

    before = digests()
    reader = CodeReader(tmp_path, packages=("posttrain",))
    names = ("exact", "exact/model.1", "exact/model.2")
    assert len({verifier_digest(reader, name) for name in names}) == 3
    assert len(set(before)) == 3
    exact = CODE["verifiers/exact.py"]
    assert digests(**{"verifiers/exact.py": exact + "# a comment\n"}) == before
    after = digests(**{"verifiers/exact.py": exact.replace("1", "2")})
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True, False]


SLOTS_HERE = (VERIFIERS, EXTRACTORS, CONSTRAINTS)
EVERY = [each.__name__ for slot in SLOTS_HERE for each in slot.parts.values()]


@pytest.fixture
def ledger():
    """Knows what scored the rows of two tables."""
    tables = {
        "t1": ["exact", "judge/m.123"],
        "t2": ["numeric", "exact", "gone"],
        "t3": ["exact/set.123", "extractor.boxed", "extractor.gone"],
    }
    records = {
        table: tuple(
            ArtifactRecord("verifier", "verifier", f"verifier:{name}", "d", 0) for name in names
        )
        for table, names in tables.items()
    }
    known = SimpleNamespace(parts_of=lambda asked: {d: records[d] for d in asked if d in records})
    return SimpleNamespace(compositions=known)


@pytest.mark.parametrize(
    ("tables", "classes"),
    [
        (["t1"], ["ExactVerifier", "JudgeVerifier"]),
        (["t1", "t2"], ["ExactVerifier", "JudgeVerifier", "NumericVerifier"]),
        ([], []),
        (["t3"], ["ExactVerifier", "BoxedAnswer"]),
        (["t1", "unknown"], EVERY),
        (None, EVERY),
    ],
)
def test_a_stage_hangs_on_the_verifiers_that_its_problems_name(ledger, tables, classes):
    found = verifiers_of(ledger, tables)
    assert sorted(each.__name__ for each in found) == sorted(classes)


def parts(model, tokenizer, template):
    path = PLAIN if template is None else f"{model}#template"
    return (
        ArtifactRecord("tokenizer", "tokenizer", f"{model}#tokenizer", tokenizer * 32, 1),
        ArtifactRecord("template", "template", path, (template or "00") * 32, 1),
    )


@pytest.fixture
def stage():
    ports = {"policy": Port(CHECKPOINT, "")}
    return Stage("rl", Task("tasks.rl", StageConfig, ports, {}), StageConfig(), {})


def test_models_of_a_stage_share_a_tokenizer(stage):
    refuse_mixed(stage, {"one": parts("a", "11", None), "two": parts("b", "11", None)})
    complaint = (
        "stage 'rl': one and two have different tokenizers (111111111111 and 222222222222); "
        "make both from checkpoints that share one tokenizer"
    )
    with pytest.raises(UserError, match=re.escape(complaint)):
        refuse_mixed(stage, {"one": parts("a", "11", None), "two": parts("b", "22", None)})


def test_a_model_may_gain_a_chat_template_but_not_change_it(stage):
    refuse_mixed(stage, {"in": parts("a", "11", None), "out": parts("b", "11", "aa")})
    with pytest.raises(UserError, match="in and out have different templates"):
        refuse_mixed(stage, {"in": parts("a", "11", "aa"), "out": parts("b", "11", "bb")})
