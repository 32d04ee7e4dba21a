"""One problem several times in a step."""

import polars as pl
import pytest

from posttrain.data.schemas import Problem, problems_table, with_row_ids
from posttrain.learning.curriculum.base import ProblemPool
from posttrain.learning.curriculum.examples import Examples
from posttrain.learning.curriculum.start import refuse_draw, start_sampler, told_apart
from posttrain.learning.curriculum.uniform import Uniform
from posttrain.learning.rl.producers.base import start_producer
from posttrain.learning.rl.producers.episodes import Episodes
from posttrain.learning.rollouts.engines.base import Prompt
from posttrain.stage.errors import UserError


def pool_of(solved):
    made = [Problem("s", f"{n} =", "1", 0, "exact") for n in range(len(solved))]
    table = with_row_ids(problems_table(made), ("source", "prompt", "answer", "verifier"))
    rates = pl.DataFrame(
        {"problem_id": table["id"], "solved": solved, "attempts": 4, "policy": "p"}
    )
    return ProblemPool(table, rates, policy="p")


def test_the_examples_nearest_a_half_fill_every_step():
    """Rates 1, 1/4, 1/2, 0, 3/4: the nearest are the third, then the second and the fifth."""
    pool = pool_of([4, 1, 2, 0, 3])
    one = start_sampler(Examples(), pool, count=8)
    assert one.draw(8, seed=0, step=0) == [2] * 8
    three = start_sampler(Examples(number=3), pool, count=8)
    assert three.draw(4, seed=0, step=0) == [2, 1, 4, 2]
    assert three.draw(2, seed=0, step=0, without=[2, 1, 4, 2]) == [1, 4]
    assert three.draw(4, seed=0, step=1) == [1, 4, 2, 1]
    with pytest.raises(UserError, match="5 problems were probed, and rl.draw.sampler takes 6"):
        start_sampler(Examples(number=6), pool, count=8)


def test_only_a_sampler_that_says_so_may_draw_a_problem_twice():
    refuse_draw(Examples(), [1, 1, 2], 3, known=3, without=[1])
    with pytest.raises(UserError, match="to so many different numbers below 3"):
        refuse_draw(Uniform(), [1, 1, 2], 3, known=3, without=[])
    for drawn in ([3, 3], [1] * 4, []):
        with pytest.raises(UserError, match="examples: `draw`"):
            refuse_draw(Examples(), drawn, 3, known=3, without=[])


def test_each_copy_of_a_prompt_has_an_id_of_its_own():
    """What is drawn depends on the id, so that copies are other samples of the same prompt."""
    prompts = [Prompt("a", (1,)), Prompt("b", (2,)), Prompt("a", (1,))]
    ids = [prompt.id for prompt in told_apart(prompts, [0, 1, 0], without=[1])]
    assert ids == ["a", "b@1", "a@1"]


def test_a_producer_that_cannot_tell_copies_apart_is_refused():
    with pytest.raises(
        UserError, match="episodes makes one group of each; set rl.producer to plain"
    ):
        start_producer(Episodes(), bench=None, sampler=Examples())
