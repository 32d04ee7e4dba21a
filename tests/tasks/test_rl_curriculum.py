"""The curriculum: expected solve rates, draws, and what is refused."""

import polars as pl
import pytest
import torch

from posttrain.data.schemas import problems_table
from posttrain.learning.curriculum.solve_rate import Curriculum, Shares, start_curriculum
from posttrain.stage.errors import UserError


def curriculum_of(solved, attempts, sources):
    ids = [f"q{index}" for index in range(len(sources))]
    return Curriculum(ids, sources, solved_N=solved, attempts_N=attempts)


def test_expected_rates_lean_on_the_stratum():
    """Stratum a: 6 + 2 of 16, so (8 + .5) / (16 + 1) = 1/2; b: 8 of 8, so 8.5 / 9."""
    found = curriculum_of([6, 2, 0, 8, 0], [8, 8, 0, 8, 0], "aaabb").rates()
    half, most = 0.5, 8.5 / 9
    expected = [(6 + 2 * half) / 10, (2 + 2 * half) / 10, half, (8 + 2 * most) / 10, most]
    assert found.tolist() == pytest.approx(expected)


def test_problems_are_drawn_in_proportion_to_their_signal():
    curriculum = curriculum_of([4, 8, 1], [8, 8, 8], "abc")
    weights = curriculum.signal() / curriculum.signal().sum()
    counts = torch.zeros(3)
    for step in range(3000):
        counts[curriculum.draw(1, seed=0, step=step)] += 1
    spread = (3000 * weights * (1 - weights)).sqrt()
    assert ((counts - 3000 * weights).abs() < 5 * spread).all()


def test_draws_are_different_problems_and_depend_on_seed_and_step_alone():
    curriculum = curriculum_of([4] * 20, [8] * 20, "a" * 20)
    drawn = curriculum.draw(10, seed=0, step=3)
    assert len(set(drawn)) == 10
    assert curriculum.draw(10, seed=0, step=3) == drawn
    assert curriculum.draw(10, seed=0, step=4) != drawn
    assert curriculum.draw(10, seed=1, step=3) != drawn


def test_old_attempts_fade_as_new_ones_come():
    curriculum = curriculum_of([4, 4], [8, 8], "ab")
    curriculum.observe([1], solved=[6.0], attempts=[6])
    assert curriculum.solved_N.tolist() == pytest.approx([3.92, 9.92])
    assert curriculum.attempts_N.tolist() == pytest.approx([7.84, 13.84])
    copied = curriculum_of([0, 0], [0, 0], "ab")
    copied.load_state_dict(curriculum.state_dict())
    assert torch.equal(copied.rates(), curriculum.rates())


def test_fewer_problems_than_a_step_draws_are_refused(coins):
    rates = pl.DataFrame({"problem_id": [], "solved": [], "attempts": [], "policy": []})
    with pytest.raises(UserError, match="there are 40 problems, but every step draws 41"):
        start_curriculum(problems_table(coins), rates, policy="x", draw=41, where="here")


SOURCES = ["sums"] * 8 + ["sorts"] * 8 + ["other"] * 4


def shared(**shares):
    curriculum = curriculum_of([4] * 20, [8] * 20, SOURCES)
    curriculum.shares = Shares(shares, SOURCES)
    return curriculum


def test_sources_take_turns_by_their_shares():
    """Shares 5 : 3 in draws of 4: 2.5 and 1.5 a step, so 25 and 15 after ten, never off by one."""
    curriculum = shared(sums=5.0, sorts=3.0)
    counts = {"sums": 0, "sorts": 0, "other": 0}
    for step in range(10):
        drawn = curriculum.draw(4, seed=0, step=step)
        assert len(set(drawn)) == 4
        for index in drawn:
            counts[SOURCES[index]] += 1
        assert abs(counts["sums"] - 2.5 * (step + 1)) < 1
    assert counts == {"sums": 25, "sorts": 15, "other": 0}


def test_within_a_source_the_order_is_that_of_the_race():
    curriculum, plain = shared(sums=1.0), curriculum_of([4] * 20, [8] * 20, SOURCES)
    order = [index for index in plain.draw(20, seed=0, step=1) if SOURCES[index] == "sums"]
    assert curriculum.draw(5, seed=0, step=1) == order[:5]


def test_a_later_round_goes_on_where_the_earlier_ones_ended():
    for curriculum in (shared(sums=1.0, sorts=1.0), curriculum_of([4] * 20, [8] * 20, SOURCES)):
        again = curriculum_of([4] * 20, [8] * 20, SOURCES)
        again.shares = Shares({"sums": 1.0, "sorts": 1.0}, SOURCES) if curriculum.shares else None
        first = curriculum.draw(4, seed=0, step=2)
        second = curriculum.draw(4, seed=0, step=2, without=first)
        assert first + second == again.draw(8, seed=0, step=2)
    assert curriculum.draw(30, seed=0, step=2, without=first) != []
    assert len(curriculum.draw(30, seed=0, step=2, without=first)) == 16


def test_a_source_that_is_out_is_passed():
    drawn = shared(other=1.0, sums=1.0).draw(12, seed=0, step=0)
    assert sorted(SOURCES[index] for index in drawn) == ["other"] * 4 + ["sums"] * 8


def test_what_is_owed_survives_a_checkpoint():
    one, two = shared(sums=5.0, sorts=3.0), shared(sums=5.0, sorts=3.0)
    one.draw(3, seed=0, step=0)
    two.load_state_dict(one.state_dict())
    assert two.shares.owed == one.shares.owed
    assert two.draw(5, seed=0, step=1) == one.draw(5, seed=0, step=1)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"upp": 1.0}, "rl.draw.sources: no problem has the source 'upp'; did you mean 'up'"),
        ({"up": 9.0, "down": 1.0}, "share of 'up' is 27 problems per step, but there are 20"),
    ],
)
def test_shares_that_cannot_be_given_are_refused(coins, sources, message):
    problems = problems_table(coins)
    rates = pl.DataFrame({"problem_id": problems["id"], "solved": 1, "attempts": 2, "policy": "p"})
    with pytest.raises(UserError, match=message):
        start_curriculum(problems, rates, policy="p", draw=30, where="rates", sources=sources)
