"""Small domains of reasoning: what is asked, that its answer is the right one, and slips."""

from pathlib import Path
from random import Random

import pytest
import yaml

# Sources name their verifiers by the slot, which is there once its registry is imported.
import posttrain.learning.rewards.verifiers.registry  # noqa: F401
from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.posed import PosedSource
from posttrain.data.sources.registry import SOURCES
from posttrain.data.teachers.notes import Notes
from posttrain.learning.rewards.verifiers.expression import ExpressionVerifier, polynomial_values
from posttrain.methods.find import SHIPPED
from posttrain.stage.errors import UserError

DOMAINS = ["code", "logic", "science", "simulation", "tabular"]


def source_of(kind, **settings):
    return SOURCES.parts[kind].parse({"kind": kind, **settings}, where="source")


def read(kind, *, problems=60, heldout=12, sides=None, **settings):
    source = source_of(kind, **settings)
    request = SourceRequest(3, problems, heldout, 0.2, scratch=Path(), sides=sides or {})
    return source.read(request)


def lines(kind, level, seed=0, error_rate=0.0):
    posed = source_of(kind).posed(level, Random(seed))
    notes = Notes(Random(seed), error_rate)
    return posed, notes.text(posed.work(notes)).splitlines()


def test_every_source_that_poses_is_looked_at():
    posed = {kind for kind, part in SOURCES.parts.items() if issubclass(part, PosedSource)}
    assert posed == {*DOMAINS, "restored"}


@pytest.mark.parametrize("kind", DOMAINS)
def test_rows_are_parted_by_level_and_side_and_depend_on_the_seed_alone(kind):
    rows = read(kind)
    assert rows == read(kind)
    prompts = [each.prompt for each in (*rows.train, *rows.heldout)]
    assert len({*prompts}) == len(prompts) == 72
    for side, count in ((rows.train, 20), (rows.heldout, 4)):
        assert [sum(each.difficulty == level for each in side) for level in (1, 2, 3)] == [
            count
        ] * 3
    assert len(rows.solutions) == 3 * 60
    other = read(kind, sides=dict.fromkeys(prompts, "train"))
    assert not {*prompts} & {each.prompt for each in other.train}
    assert read(kind, solutions=0).solutions == []


@pytest.mark.parametrize("kind", DOMAINS)
def test_without_a_slip_a_solution_ends_with_the_answer_and_with_slips_often_with_another(kind):
    for level in (1, 2, 3):
        for seed in range(20):
            posed, worked = lines(kind, level, seed)
            assert worked[-1] == f"#### {posed.answer}"
            assert len(worked) > 1
    slipped = [lines(kind, 3, seed, error_rate=0.5) for seed in range(20)]
    assert sum(worked[-1] != f"#### {posed.answer}" for posed, worked in slipped) >= 8


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_program_ends_with_what_python_says(level):
    for seed in range(20):
        posed, worked = lines("simulation", level, seed)
        *program, asked = posed.prompt.removesuffix("?").split("; ")
        space = {}
        exec("\n".join(program), space)  # noqa: S102 - the program is ours
        assert str(space[asked]) == posed.answer
        assert len(worked) == level + 1


def test_an_order_has_every_pair_that_is_told():
    for seed in range(20):
        posed, worked = lines("logic", 2, seed)
        *pairs, _ = posed.prompt.split()
        assert len(posed.answer) == len(worked) == 4
        for pair in pairs:
            one, other = pair.split("<")
            assert posed.answer.index(one) + 1 == posed.answer.index(other)


def test_a_column_adds_up():
    for seed in range(20):
        posed, worked = lines("tabular", 2, seed)
        head, *rows, asked = posed.prompt.splitlines()
        at = head.split().index(asked.removesuffix("?").split()[1])
        column = [int(row.split()[at]) for row in rows]
        assert (str(sum(column)), len(column)) == (posed.answer, 3)
        assert worked[0] == " ".join(map(str, column))


def test_a_quantity_is_a_product_or_a_factor_with_its_unit():
    for seed in range(20):
        for level, law in ((1, int.__mul__), (2, int.__floordiv__)):
            posed, _ = lines("science", level, seed)
            told, _, asked = posed.prompt.removesuffix("?").partition(": ")
            first, second = (int(each.split()[0]) for each in told.split(", "))
            assert posed.answer == f"{law(first, second)} {asked}"


def test_a_function_returns_what_is_told():
    for seed in range(20):
        posed, _ = lines("code", 3, seed)
        told = [int(each.split(":")[1]) for each in posed.prompt.split()[:3]]
        assert list(polynomial_values(posed.answer)[9:12]) == told


def test_levels_below_one_and_too_few_problems_are_refused():
    with pytest.raises(UserError, match="level 0 is below 1"):
        source_of("logic", levels=[0])
    told = "code has 700 different problems at level 1, and 1212 are asked for"
    with pytest.raises(UserError, match=told):
        read("code", levels=[1], problems=1200)


def test_what_has_no_steps_has_no_rate_of_slips():
    with pytest.raises(UserError, match="error_rate"):
        source_of("restored", name="books", error_rate=0.5)
    assert source_of("logic", error_rate=0.5).error_rate == 0.5


@pytest.mark.parametrize("name", ["domains", "recalling"])
def test_the_sources_of_arenas_have_as_many_problems_as_are_asked_for(name):
    sections = yaml.safe_load((SHIPPED / "arenas" / f"{name}.yaml").read_text())["sections"]
    for said in sections.values():
        for source in said.get("sources", ()):
            kind = source["kind"]
            if not issubclass(SOURCES.parts[kind], PosedSource):
                continue
            others = {name: value for name, value in source.items() if name != "kind"}
            asked = said["num_problems"], said["num_heldout"]
            rows = read(kind, problems=asked[0], heldout=asked[1], **others)
            assert (len(rows.train), len(rows.heldout)) == asked


def test_no_row_of_an_objective_is_rehearsed_twice():
    sections = yaml.safe_load((SHIPPED / "arenas" / "recalling.yaml").read_text())["sections"]
    method = yaml.safe_load((SHIPPED / "cur" / "birdie.yaml").read_text())["sets"]["rl"]
    for name, table in method["inputs"]["rehearsals"].items():
        rows = method["updates"]["rehearsals"][name]["rows"]
        stage = sections[table.removesuffix(".traces")]
        assert rows * sections["rl"]["steps"] <= stage["num_problems"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("2*x+1", "correct"),
        ("x + 1 + x", "correct"),
        ("1-x*(-2)", "correct"),
        ("2*x", "wrong_answer"),
        ("2x+1", "not_an_expression"),
        ("x**2", "not_an_expression"),
        ("__import__('os')", "not_an_expression"),
        ("True*x+x+1", "not_an_expression"),
        ("+".join(["x"] * 40), "not_an_expression"),
        ("(" * 60, "not_an_expression"),
    ],
)
def test_an_expression_is_judged_by_its_values(answer, reason):
    problem = read("code").train[0]
    asked = type(problem)("code", "1:3 2:5 3:7 f(x)?", "2*x+1", 1, "expression")
    assert ExpressionVerifier().score(f"#### {answer}", asked).reason == reason


def test_a_reference_that_is_no_expression_is_named():
    problem = read("logic").train[0]
    with pytest.raises(UserError, match="is checked by the verifier 'expression', but its answer"):
        ExpressionVerifier().score("#### x", problem)
    assert not ExpressionVerifier().reads(problem)


def restored(objective, seed, level=2):
    source = source_of("restored", name="books", objective=objective)
    posed = source.posed(level, Random(seed))
    return posed.prompt.split()[1:], posed.answer.split(), posed


def test_what_a_text_is_restored_from():
    for seed in range(20):
        told, answer, posed = restored("copying", seed)
        assert told == answer == sorted(answer)
        assert len(answer) == 4
        assert posed.prompt.startswith("copy ")
        told, answer, _ = restored("deshuffling", seed)
        assert sorted(told) == answer
        told, answer, _ = restored("infilling", seed)
        assert sum("_" in each for each in told) == 2
        pairs = zip(told, answer, strict=True)
        assert all((one[0], one[2:]) == (other[0], other[2:]) for one, other in pairs)
        (asked, *told), answer, _ = restored("selective_copying", seed)
        assert [each for each in told if each.startswith(asked)] == [asked + answer[0]]
        told, answer, _ = restored("next", seed)
        assert (len(told), len(answer)) == (2, 2)
    rows = read("restored", name="books", objective="infilling", problems=9, heldout=3)
    assert [each.text for each in rows.solutions] == [f"#### {each.answer}" for each in rows.train]
