"""The curriculum: expected solve rates, draws, and what is refused."""

import polars as pl
import pytest
import torch

from posttrain.errors import UserError
from posttrain.records import problems_table
from tasks.rl.curriculum import Curriculum, start_curriculum


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
