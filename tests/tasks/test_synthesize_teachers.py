"""The teachers: what they write without an error, and what becomes of one."""

import json
import operator
import random
import re

import pytest

from posttrain.data.schemas import Problem
from posttrain.data.teachers.base import TeacherRequest
from posttrain.data.teachers.confident import ConfidentTeacher
from posttrain.data.teachers.folding import FoldingTeacher, folded_steps
from posttrain.data.teachers.notes import Notes
from posttrain.data.teachers.programs import PROGRAMS, ProgramTeacher
from posttrain.data.teachers.registry import TEACHERS
from posttrain.data.teachers.repeating import RepeatingTeacher
from posttrain.data.teachers.self_rating import SelfRatingTeacher
from posttrain.data.teachers.skipping import SkippingTeacher
from posttrain.learning.rewards.score import final_answer

OPERATIONS = {"+": operator.add, "-": operator.sub}
STEP = re.compile(r"(-?\d+) ([-+]) (-?\d+) = (-?\d+)")


def worked(name, metadata, *, error_rate=0.0, seed=0):
    notes = Notes(random.Random(seed), error_rate)
    return notes.text(PROGRAMS[name](metadata, notes))


@pytest.mark.parametrize(
    ("name", "metadata", "solution"),
    [
        ("chain_sum", {"expression": "4 + 3 - 9"}, "4 + 3 = 7\n7 - 9 = -2\n#### -2"),
        ("chain_sum", {"expression": "7"}, "#### 7"),
        # A product goes before a sum, and a minus before a bracket turns the sign: -(6 - 2) = -4.
        (
            "basic_arithmetic",
            {"expression": "1 + 3 * -( 6 / 3 - -2 )"},
            "6 / 3 = 2\n2 - -2 = 4\n3 * -4 = -12\n1 + -12 = -11\n#### -11",
        ),
        # Innermost first: 5 + 1, then 2 - 6, then 8 - -4, then 12 + -3.
        (
            "basic_arithmetic",
            {"expression": "8 - ( 2 - ( 5 + 1 ) ) + -3"},
            "5 + 1 = 6\n2 - 6 = -4\n8 - -4 = 12\n12 + -3 = 9\n#### 9",
        ),
        # Sheep have 4 legs, starfish 5, ducks 2: 8, then 8 + 5, then 13 + 6.
        (
            "leg_counting",
            {"animals": {"sheep": 2, "starfish": 1, "duck": 3}},
            "2 sheep = 8\n1 starfish = 5\n8 + 5 = 13\n3 duck = 6\n13 + 6 = 19\n#### 19",
        ),
        ("leg_counting", {"animals": {"snake": 3}}, "3 snake = 0\n#### 0"),
        (
            "number_sorting",
            {"original_numbers": ["2.0", "9.0", "0.0", "2.0"], "direction": "ascending"},
            "#### [0, 2, 2, 9]",
        ),
        (
            "number_sorting",
            {"original_numbers": ["2.0", "9.0", "0.0"], "direction": "descending"},
            "#### [9, 2, 0]",
        ),
        (
            "word_sorting",
            {"transformed_words": ["pear", "Fig", "apple"], "direction": "ascending"},
            "#### Fig, apple, pear",
        ),
        (
            "number_sorting",
            {"original_numbers": ["1234567.0", "-0.0", "12345.67"], "direction": "ascending"},
            "#### [0, 12345.67, 1234567]",
        ),
        # 84 = 2 * 36 + 12, and 36 = 3 * 12.
        ("gcd", {"numbers": [84, 36]}, "84 % 36 = 12\n36 % 12 = 0\n#### 12"),
        ("gcd", {"numbers": [4, 6]}, "4 % 6 = 4\n6 % 4 = 2\n4 % 2 = 0\n#### 2"),
        # 21 in base 5 is 2 * 5 + 1 = 11; 11 = 5 * 2 + 1, 5 = 2 * 2 + 1, 2 = 1 * 2, 1: 1011.
        (
            "base_conversion",
            {"source_base": 5, "target_base": 2, "source_repr": "21"},
            "0 * 5 + 2 = 2\n2 * 5 + 1 = 11\n"
            "11 / 2 = 5 rest 1\n5 / 2 = 2 rest 1\n2 / 2 = 1 rest 0\n1 / 2 = 0 rest 1\n#### 1011",
        ),
        (
            "base_conversion",
            {"source_base": 2, "target_base": 16, "source_repr": "0"},
            "0 * 2 + 0 = 0\n#### 0",
        ),
        # 6 is 110 in base 2.
        (
            "count_bits",
            {"number": 6},
            "6 / 2 = 3 rest 0, 0\n3 / 2 = 1 rest 1, 1\n1 / 2 = 0 rest 1, 2\n#### 2",
        ),
    ],
)
def test_a_teacher_that_never_errs_works_a_problem_out_by_hand(name, metadata, solution):
    assert worked(name, metadata) == solution


def test_an_expression_that_cannot_be_read_whole_is_an_error():
    with pytest.raises(ValueError, match=r"beyond '\*\* 2'"):
        worked("chain_sum", {"expression": "4 + 3 ** 2"})


@pytest.mark.parametrize("seed", range(20))
def test_a_teacher_that_always_errs_is_off_by_up_to_three_and_builds_on_it(seed):
    lines = worked("chain_sum", {"expression": "4 + 3 - 9 + 5"}, error_rate=1.0, seed=seed)
    *steps, answer = lines.splitlines()
    carried = "4"
    for step, (sign, term) in zip(steps, ["+3", "-9", "+5"], strict=True):
        left, operation, right, result = STEP.fullmatch(step).groups()
        assert (left, operation, right) == (carried, sign, term)
        assert 1 <= abs(int(result) - OPERATIONS[sign](int(left), int(right))) <= 3
        carried = result
    assert answer == f"#### {carried}"


@pytest.mark.parametrize("seed", range(5))
def test_a_slip_in_a_product_is_carried_into_the_sum(seed):
    animals = {"animals": {"sheep": 2, "duck": 3}}
    lines = worked("leg_counting", animals, error_rate=1.0, seed=seed)
    sheep, ducks, total = re.fullmatch(
        r"2 sheep = (\d+)\n3 duck = (\d+)\n\1 \+ \2 = (\d+)\n#### \3", lines
    ).groups()
    for written, right in ((sheep, 8), (ducks, 6), (total, int(sheep) + int(ducks))):
        assert 1 <= abs(int(written) - right) <= 3


def test_a_slip_in_sorting_picks_another_number_and_loses_none():
    numbers = {"original_numbers": ["5.0", "1.0", "3.0", "1.0"], "direction": "ascending"}
    written = [worked("number_sorting", numbers, error_rate=1.0, seed=seed) for seed in range(30)]
    lists = [json.loads(text.removeprefix("#### ")) for text in written]
    assert all(sorted(numbers) == [1, 1, 3, 5] for numbers in lists)
    assert sum(numbers != [1, 1, 3, 5] for numbers in lists) > 15


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("name", "metadata"),
    [
        ("gcd", {"numbers": [84, 36, 10]}),
        ("base_conversion", {"source_base": 5, "target_base": 2, "source_repr": "4321"}),
        ("count_bits", {"number": 1023}),
    ],
)
def test_one_that_always_errs_about_whole_numbers_comes_to_an_end(name, metadata, seed):
    lines = worked(name, metadata, error_rate=1.0, seed=seed)
    assert re.fullmatch(r"#### \d+", lines.splitlines()[-1])
    assert "-" not in lines


@pytest.fixture
def sum_problems():
    return [
        Problem(
            "chain_sum",
            f"{index} + 1 =",
            str(index + 1),
            1,
            "exact",
            metadata=json.dumps({"source_dataset": "chain_sum", "expression": f"{index} + 1"}),
        )
        for index in range(300)
    ]


def solved_by(teacher, problems):
    request = TeacherRequest(per_problem=2, seed=7, report=lambda _: None)
    return [each.text for each in teacher.solve(problems, request)]


def test_a_confident_teacher_states_what_was_drawn_under_the_same_solutions(sum_problems):
    plain = solved_by(ProgramTeacher(error_rate=0.5), sum_problems)
    stating = solved_by(ConfidentTeacher(error_rate=0.5, confidences=(0.25, 1.0)), sum_problems)
    parted = [text.rsplit("\nConfidence: ", 1) for text in stating]
    assert [text for text, _ in parted] == plain
    said = [stated for _, stated in parted]
    # 600 fair draws: 240 of one kind is five deviations away.
    assert {*said} == {"0.25", "1"}
    assert said.count("1") > 240 < said.count("0.25")
    right = [final_answer(text) == str(index // 2 + 1) for index, text in enumerate(plain)]
    sure = [each == "1" for each in said]
    # What is stated does not know what is right: among right and wrong about half are sure.
    for kind in (True, False):
        share = [s for s, r in zip(sure, right, strict=True) if r is kind]
        assert 0.35 < sum(share) / len(share) < 0.65
    assert [final_answer(text) for text in stating] == [final_answer(text) for text in plain]


def test_a_self_rating_teacher_draws_each_line_for_itself(sum_problems):
    plain = solved_by(ProgramTeacher(error_rate=0.5), sum_problems)
    rating = solved_by(
        SelfRatingTeacher(error_rate=0.5, ratings=("Done", "Score"), values=(0.25, 1.0)),
        sum_problems,
    )
    pattern = re.compile(r"(.*)\nDone: (0\.25|1)\nScore: (0\.25|1)", re.DOTALL)
    parted = [pattern.fullmatch(text).groups() for text in rating]
    assert [text for text, _, _ in parted] == plain
    assert [final_answer(text) for text in rating] == [final_answer(text) for text in plain]
    # 600 fair draws of a quarter each: 150, and 97 is five deviations away.
    both = [(done, score) for _, done, score in parted]
    assert min(both.count(each) for each in {*both}) > 97
    assert len({*both}) == 4
    right = [final_answer(text) == str(index // 2 + 1) for index, text in enumerate(plain)]
    for kind in (True, False):
        high = [score == "1" for (_, score), r in zip(both, right, strict=True) if r is kind]
        assert 0.35 < sum(high) / len(high) < 0.65


def test_a_self_rating_teacher_rates_a_share_of_its_solutions_as_it_would_rate_all(sum_problems):
    plain = solved_by(ProgramTeacher(error_rate=0.5), sum_problems)
    every = solved_by(SelfRatingTeacher(error_rate=0.5), sum_problems)
    some = solved_by(SelfRatingTeacher(error_rate=0.5, share=0.25), sum_problems)
    assert all(text in pair for text, *pair in zip(some, plain, every, strict=True))
    rated = [text == whole for text, whole in zip(some, every, strict=True)]
    # 150 of 600 are expected, and 97 is five deviations away.
    assert 97 < sum(rated) < 203
    right = [final_answer(text) == str(index // 2 + 1) for index, text in enumerate(plain)]
    for kind in (True, False):
        those = [each for each, r in zip(rated, right, strict=True) if r is kind]
        assert 0.1 < sum(those) / len(those) < 0.4


def test_a_repeating_teacher_writes_its_last_line_again_and_nothing_else(sum_problems):
    plain = solved_by(ProgramTeacher(error_rate=0.5), sum_problems)
    repeating = solved_by(RepeatingTeacher(error_rate=0.5, most=2), sum_problems)
    again = []
    for text, longer in zip(plain, repeating, strict=True):
        last = "\n" + text.splitlines()[-1]
        again.append(longer.count(last) - 1)
        assert longer == text + last * again[-1]
    assert {*again} == {0, 1, 2}
    assert min(again.count(times) for times in range(3)) > 140


def test_a_skipping_teacher_leaves_out_steps_and_never_the_answer(sum_problems):
    plain = solved_by(ProgramTeacher(error_rate=0.5), sum_problems)
    some = solved_by(SkippingTeacher(error_rate=0.5, keeps=(0.5,)), sum_problems)
    pairs = [*zip(plain, some, strict=True)]
    assert all(text.splitlines()[-1] == short.splitlines()[-1] for text, short in pairs)
    left = [short != text for text, short in pairs]
    # 600 fair draws over the one step: 240 of a kind is five deviations away.
    assert 240 < sum(left) < 360
    assert solved_by(SkippingTeacher(error_rate=0.5, keeps=(1.0,)), sum_problems) == plain
    bare = solved_by(SkippingTeacher(error_rate=0.5, keeps=(0.0,)), sum_problems)
    assert bare == [text.splitlines()[-1] for text in plain]


@pytest.mark.parametrize(
    ("lines", "most", "expected"),
    [
        (["2 * 3 = 6", "4 - 6 = -2", "-2 + 1 = -1"], 9, ["4 - (2 * 3) + 1 = -1"]),
        (["2 * 3 = 6", "4 - 6 = -2", "-2 + 1 = -1"], 1, ["2 * 3 = 6", "4 - 6 = -2", "-2 + 1 = -1"]),
        # A wrong result is taken in by what builds on it.
        (["2 + 3 = 6", "6 * 4 = 24", "24 + 1 = 25"], 2, ["(2 + 3) * 4 = 24", "24 + 1 = 25"]),
        # What does not build on the line before stands by itself, and so does what is no step.
        (["2 * 3 = 6", "4 * 5 = 20", "6 + 20 = 26"], 2, ["2 * 3 = 6", "6 + (4 * 5) = 26"]),
        (["9 % 6 = 3", "1 + 2 = 3"], 2, ["9 % 6 = 3", "1 + 2 = 3"]),
    ],
)
def test_a_line_takes_in_what_it_builds_on(lines, most, expected):
    assert folded_steps([*lines, "#### 7"], most) == [*expected, "#### 7"]


def test_a_folding_teacher_changes_lines_and_not_results(sum_problems):
    plain = solved_by(ProgramTeacher(error_rate=0.5), sum_problems)
    assert solved_by(FoldingTeacher(error_rate=0.5, operations=(1,)), sum_problems) == plain
    mixed = solved_by(FoldingTeacher(error_rate=0.5, operations=(1, 4)), sum_problems)
    whole = solved_by(FoldingTeacher(error_rate=0.5, operations=(4,)), sum_problems)
    assert all(each in pair for each, *pair in zip(mixed, plain, whole, strict=True))


@pytest.mark.parametrize(
    "kind", ["programs", "confident", "repeating", "skipping", "folding", "self_rating"]
)
def test_they_say_which_generators_get_solutions(kind):
    teacher = TEACHERS.parts[kind]()
    assert teacher.solves("chain_sum")
    assert not teacher.solves("spell_backward")
    assert ProgramTeacher(without_program="answer").solves("spell_backward")
