"""Problem samplers that learn: what each is paid, what it draws by, and that it goes on exactly."""

import math

import polars as pl
import pytest
import torch

from posttrain.data.schemas import Problem, problems_table, with_row_ids
from posttrain.learning.curriculum.alike import clusters_of, nearest_latest
from posttrain.learning.curriculum.base import GroupResult, ProblemPool
from posttrain.learning.curriculum.designed import Designed, DesignedStream, distances, score
from posttrain.learning.curriculum.registry import PROBLEM_SAMPLERS
from posttrain.learning.curriculum.start import start_sampler
from posttrain.learning.maths.mixtures import GaussianMixture, best_mixture, fit_mixture
from posttrain.learning.swing import SwingConfig
from posttrain.stage.errors import UserError

LEVELS, PER_LEVEL = 4, 6


def pool_of(levels=LEVELS, sources=("sums",), solved=None):
    made = [
        Problem(source, f"{source} {level} {n} =", "1", level, "exact")
        for source in sources
        for level in range(levels)
        for n in range(PER_LEVEL)
    ]
    table = with_row_ids(problems_table(made), ("source", "prompt", "answer", "verifier"))
    rates = None
    if solved is not None:
        counts = [solved[level] for level in table["difficulty"].to_list()]
        rates = pl.DataFrame(
            {"problem_id": table["id"], "solved": counts, "attempts": 8, "policy": "p"}
        )
    return ProblemPool(table, rates, policy="p")


def started(kind, pool, **fields):
    return start_sampler(PROBLEM_SAMPLERS.parts[kind](**fields), pool, count=4)


def result(problem, rewards, advantages=None):
    solved = tuple(None if each is None else bool(each) for each in rewards)
    sizes = tuple(advantages or (0.0,) * len(rewards))
    return GroupResult(problem, tuple(rewards), solved, (3,) * len(rewards), sizes)


SAMPLERS = {
    "alp_gmm": {"window": 10, "most": 3},
    "band": {"least": 0.1},
    "bandit": {},
    "cyclical": {"steps": 2},
    "designed": {"steps": 3},
    "replayed_levels": {"regret": "reference"},
    "solve_rate": {},
    "transfer": {"steps": 2},
    "uniform": {},
}


def test_every_sampler_is_looked_at():
    repeating = {kind for kind, part in PROBLEM_SAMPLERS.parts.items() if part.REPEATS}
    assert {*SAMPLERS} | repeating == {*PROBLEM_SAMPLERS.parts}


@pytest.mark.parametrize("kind", SAMPLERS)
def test_every_sampler_draws_different_problems_and_goes_on_from_its_state(kind):
    """Eight steps at once, and six with the state handed over before two more."""
    pool = pool_of(sources=("sums", "sorting"), solved=[8, 6, 1, 1])

    def practice(stream, steps):
        drawn = []
        for step in steps:
            first = list(stream.draw(6, seed=3, step=step))
            more = list(stream.draw(4, seed=3, step=step, without=first))
            assert len({*first, *more}) == 10
            drawn.append(first + more)
            told = [result(p, (1.0, p % 2, step % 2), (0.7, -0.2, -0.5)) for p in first + more]
            stream.observe(told)
        return drawn

    one, other = (started(kind, pool, **SAMPLERS[kind]) for _ in range(2))
    whole = practice(one, range(8))
    assert practice(other, range(6)) == whole[:6]
    resumed = started(kind, pool, **SAMPLERS[kind])
    resumed.load_state_dict(other.state_dict())
    assert practice(resumed, range(6, 8)) == whole[6:]
    assert resumed.metrics() == one.metrics()
    assert one.metrics().keys() == PROBLEM_SAMPLERS.parts[kind].METRICS.keys()
    assert whole[0] != whole[1]


def test_a_bandit_is_paid_the_mean_absolute_advantage_of_its_category():
    """By difficulty: 0 is paid 1, then nothing; 1 is paid 1/2 in the second step."""
    pool = pool_of(levels=2)
    paid = {"fade": [0.25, 0.25], "keep": [0.5, 0.25]}
    for idle, expected in paid.items():
        stream = started("bandit", pool, by="difficulty", temperature=0.25, idle=idle)
        stream.observe([result(0, (1.0, 0.0), (1.0, -1.0))])
        assert stream.value_A.tolist() == [0.5, 0.0]
        odds = math.exp(0.5 / 0.25)
        assert stream.shares().tolist() == pytest.approx([odds / (odds + 1), 1 / (odds + 1)])
        stream.observe([result(PER_LEVEL, (1.0, 0.0), (0.5, -0.5))])
        assert stream.value_A.tolist() == expected


def test_a_bandit_may_be_paid_by_progress_or_by_regret():
    """Half right, then half right again: progress 1/2, then 0. The best of 1, 0, 0, 0: 3/4."""
    stream = started("bandit", pool_of(levels=2), by="difficulty", paid_by="progress")
    stream.observe([result(0, (1.0, 0.0, None))])
    assert stream.value_A.tolist() == [0.25, 0.0]
    stream.observe([result(1, (0.0, 1.0))])
    assert stream.value_A.tolist() == [0.125, 0.0]
    stream = started("bandit", pool_of(levels=2), by="difficulty", paid_by="regret")
    stream.observe([result(0, (1.0, 0.0, 0.0, 0.0)), result(1, (None, None))])
    assert stream.value_A.tolist() == [0.5 * 0.75 / 2, 0.0]


def test_categories_are_drawn_by_their_share():
    stream = started("bandit", pool_of(levels=2), by="difficulty", temperature=0.5)
    stream.value_A = torch.tensor([0.0, 0.5 * math.log(4)], dtype=torch.float64)
    drawn = [stream.draw(1, seed=0, step=step)[0] // PER_LEVEL for step in range(2000)]
    # A fifth and four fifths; the standard deviation of the count is 18.
    assert abs(drawn.count(0) - 400) < 90


def test_texts_that_read_alike_are_one_category_whatever_their_numbers():
    texts = ["What is 3 + 4?", "Sort 9 1 5:", "What is 8 + 1?", "Sort 2 7 3:", "What is 6 + 6?"]
    one, two, *rest = clusters_of(texts, 2)
    assert one != two
    assert rest == [one, two, one]
    assert clusters_of(["same"] * 3, 2) == [0, 0, 0]


def test_progress_is_against_the_nearest_earlier_problem():
    """Levels 0 to 3 lie at 0, 1/3, 2/3, 1: level 1 is nearer to 0 than to 3."""
    stream = started("alp_gmm", pool_of(), window=10)
    at = [level * PER_LEVEL for level in range(LEVELS)]
    stream.observe([result(at[0], (1.0, 1.0)), result(at[3], (0.0, 0.0))])
    assert stream.recent == [(at[3], 1.0)]
    stream.observe([result(at[1], (0.5, None)), result(at[1] + 1, (1.0, 0.5))])
    assert stream.recent[1:] == [(at[1], 0.5), (at[1] + 1, 0.25)]


def test_a_mixture_leads_to_where_the_progress_is():
    """Rewards of level 2 swing, the others' stand: of 400 draws most are of level 2."""
    stream = started("alp_gmm", pool_of(), window=40, explore=0.0, most=4)
    for step in range(40):
        swing = float(step // LEVELS % 2)
        level = step % LEVELS
        stream.observe([result(level * PER_LEVEL, (swing,) if level == 2 else (0.0,))])
    drawn = [p // PER_LEVEL for step in range(100) for p in stream.draw(4, seed=0, step=step)]
    assert drawn.count(2) > 300


def test_a_point_of_a_gaussian_has_its_mean_and_covariance():
    # The covariance [4 2; 2 2] is the square of [2 0; 1 1]: (1, 2) + (2 * 1, 1 * 1 + 1 * -1).
    means_KD = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
    covariances_KDD = torch.tensor([[[1.0, 0], [0, 1]], [[4.0, 2], [2, 2]]], dtype=torch.float64)
    mixture = GaussianMixture(torch.tensor([0.5, 0.5]), means_KD, covariances_KDD, 0.0)
    noise_D = torch.tensor([1.0, -1.0], dtype=torch.float64)
    assert mixture.point(1, noise_D).tolist() == [3.0, 2.0]


def test_mixtures_are_found_without_chance():
    """Points at -1 and 1: one Gaussian has variance 1; two heaps far apart are two."""
    points = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    alone = fit_mixture(points, 1, ridge=0.0)
    assert alone.covariances_KDD.flatten().tolist() == pytest.approx([1.0])
    assert alone.log_likelihood == pytest.approx(-(1 + math.log(2 * math.pi)))
    assert alone.aic == pytest.approx(2 * 2 - 2 * alone.log_likelihood)
    spread = torch.linspace(-0.2, 0.2, 30, dtype=torch.float64)[:, None]
    heaps = best_mixture(torch.cat([spread, spread + 5]), 1, 4)
    assert sorted(heaps.means_KD.flatten().tolist())[:: len(heaps.means_KD) - 1] == pytest.approx(
        [0.0, 5.0], abs=0.2
    )
    assert float(heaps.weights_K.sum()) == pytest.approx(1.0)


def test_known_problems_come_again_by_rank_of_regret_and_by_age():
    """Regrets 1/4, 1/2 of the best reward so far; the ranks' weights 1/2 and 1, ages 2 and 1."""
    stream = started("replayed_levels", pool_of(), temperature=1.0, stale=0.5, replay=1.0)
    stream.observe([result(3, (1.0, 1.0, 0.5, 0.5))])
    stream.observe([result(5, (1.0, 0.0))])
    assert stream.regret_P[[3, 5]].tolist() == [0.25, 0.5]
    weights = stream.weights()
    assert weights[[3, 5]].tolist() == pytest.approx([0.5 / 3 + 0.5 * 2 / 3, 0.5 * 2 / 3 + 0.5 / 3])
    assert float(weights.sum()) == pytest.approx(1.0)
    assert set(stream.draw(2, seed=0, step=2)) == {3, 5}
    stream.observe([result(5, (0.0, 0.0))])
    assert float(stream.regret_P[5]) == 1.0


def test_regret_may_be_against_a_reference_or_the_size_of_advantages():
    pool = pool_of(levels=2, solved=[8, 4])
    stream = started("replayed_levels", pool, regret="reference")
    stream.observe([result(0, (1.0, 0.0)), result(PER_LEVEL, (1.0, 1.0))])
    assert stream.regret_P[[0, PER_LEVEL]].tolist() == [0.5, -0.5]
    stream = started("replayed_levels", pool, regret="advantage")
    stream.observe([result(0, (1.0, 0.0), (0.75, -0.25))])
    assert float(stream.regret_P[0]) == 0.5
    with pytest.raises(UserError, match="regret against a reference needs solve rates"):
        started("replayed_levels", pool_of(), regret="reference")


def test_practice_goes_on_where_most_is_hoped_for():
    """Levels at 0 and 1; level 1 came to 1/2, its loss on the way to 0 is 1/2.

    Far apart, the process knows nothing of 0: hoped are 1/2 + 2 * 0.3 there, and 1/2 + 2 * 0.049
    at 1, where 0.049 is the root of 0.09 - 0.09^2 / (0.09 + 0.05^2). So the gains are
    (1.1 - 0 + 0.6 - 0.5) / 2 and (0.0986 + 0.0986) / 2.
    """
    stream = started("transfer", pool_of(levels=2), steps=2, length_scale=0.1)
    assert stream.arm == 1
    assert {p // PER_LEVEL for p in stream.draw(4, seed=0, step=0)} == {1}
    stream.observe([result(PER_LEVEL, (1.0, 1.0))])
    assert stream.metrics()["phases"] == 0.0
    stream.observe([result(PER_LEVEL, (1.0, 0.0))])
    left = math.sqrt(0.09 - 0.09**2 / (0.09 + 0.05**2))
    assert stream._gains().tolist() == pytest.approx([0.6, 2 * left])
    assert stream.metrics() == {"difficulty": 0.0, "phases": 1.0, "worth": pytest.approx(0.25)}


def test_a_band_takes_problems_of_its_solve_rates_alone():
    """Solved of 8 attempts: 8, 4, 1 and 0."""
    pool = pool_of(solved=[8, 4, 1, 0])
    stream = started("band", pool, least=0.1, most=0.5)
    drawn = {p // PER_LEVEL for step in range(50) for p in stream.draw(4, seed=0, step=step)}
    assert drawn == {1, 2}
    with pytest.raises(UserError, match=r"none has a solve rate from 0\.6 to 0\.9"):
        started("band", pool, least=0.6, most=0.9)
    with pytest.raises(ValueError, match=r"least 0\.6 is more than most 0\.5; exchange them"):
        PROBLEM_SAMPLERS.parts["band"](least=0.6, most=0.5)


def test_the_easiest_share_grows_and_shrinks():
    """Of four levels of six problems: 1/4, 1/2, all, 1/2, 1/4, 1/2, for two steps each."""
    stream = started("cyclical", pool_of(), steps=2)
    levels = [1, 2, 4, 2, 1, 2]
    for step in range(12):
        drawn = {p // PER_LEVEL for seed in range(20) for p in stream.draw(4, seed=seed, step=step)}
        assert drawn == {*range(levels[step // 2])}
        stream.observe([])
        assert stream.metrics() == {"share": levels[step // 2] / 4}
    # Draws know the step alone, and where a share runs out the next ones follow from the easiest.
    again = started("cyclical", pool_of(), steps=2)
    assert list(again.draw(4, seed=1, step=7)) == list(stream.draw(4, seed=1, step=7))
    most = again.draw(10, seed=0, step=0)
    assert [p // PER_LEVEL for p in most] == [0] * 6 + [1] * 4
    assert len(again.draw(20, seed=0, step=0, without=most)) == 24 - 10


def test_progress_is_measured_against_what_was_practiced_on_nearest_and_last():
    # On a line at 0, 1, 1, 2 and 4, of which all but the first were practiced on.
    points_PD = torch.tensor([[0.0], [1.0], [1.0], [2.0], [4.0]], dtype=torch.float64)
    age_P = torch.tensor([-1, 0, 2, 1, 3])
    assert [nearest_latest(points_PD, problem, age_P) for problem in range(5)] == [2, 2, 2, 3, 4]
    # 2 lies as far from 4 as from 0: who was practiced on later.
    assert nearest_latest(points_PD[[0, 3, 4]], 1, torch.tensor([5, -1, 4])) == 0
    assert nearest_latest(points_PD, 0, torch.full((5,), -1)) is None


@pytest.mark.parametrize(
    "sizes", [(0.25, 1.0, 0.5), (0.3, 0.9, 0.5), (0.1, 1.0, 0.7), (0.4, 0.4, 0.5)]
)
def test_shares_are_those_of_the_passes_of_supervised_training(sizes):
    settings = dict(zip(("least", "most", "factor"), sizes, strict=True))
    part = PROBLEM_SAMPLERS.parts["cyclical"](steps=3, **settings)
    swing = SwingConfig(**settings)
    assert [part.share_at(3 * n + 2) for n in range(20)] == [swing.share_of(n) for n in range(20)]
    with pytest.raises(ValueError, match=r"least 0\.5 is above most 0\.3; swap them"):
        PROBLEM_SAMPLERS.parts["cyclical"](least=0.5, most=0.3)


def test_sources_take_turns_within_the_easiest_share():
    """Shares of sources ask for the whole order, of which the easiest stand first."""
    part = PROBLEM_SAMPLERS.parts["cyclical"]()
    pool = pool_of(sources=("sums", "sorting"))
    stream = start_sampler(part, pool, count=4, sources={"sums": 1.0, "sorting": 1.0})
    levels = pool.problems["difficulty"].to_list()
    assert {levels[p] for step in range(10) for p in stream.draw(4, seed=0, step=step)} == {0}


def test_solve_rates_may_say_what_is_easy():
    """Of eight attempts the levels solved 1, 8, 0 and none was made of the last."""
    pool = pool_of(solved=[1, 8, 0, 0])
    last = pool.problems["difficulty"] == 3
    rates = pool.solve_rates.filter(~last)
    asked = ProblemPool(pool.problems, rates, policy="p")
    stream = started("cyclical", asked, by="solve_rate", steps=1)
    assert [place // PER_LEVEL for place in stream.order] == [1] * 6 + [0] * 6 + [2] * 6 + [3] * 6
    for lacking in (ProblemPool(pool.problems), ProblemPool(pool.problems, rates.head(0))):
        with pytest.raises(UserError, match="none of 24 problems has one; connect a probe's"):
            started("cyclical", lacking, by="solve_rate")


def test_an_order_goes_on_with_what_is_unlike_and_ends_with_what_is_like():
    """Two directions at a right angle, and the one between them."""
    place_AD = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]], dtype=torch.float64)
    near = 1 - math.sqrt(0.5)
    far, close = 1 / (1 + near), near / (1 + near)
    apart = distances(place_AD).tolist()
    assert apart[0] == pytest.approx([0, far, close])
    assert apart[2] == pytest.approx([0.5, 0.5, 0])
    side = (1 / 9 + (far - 1 / 3) ** 2 + (close - 1 / 3) ** 2) / 3
    vary = [side / (2 * side + 1 / 18), side / (2 * side + 1 / 18), 1 / 18 / (2 * side + 1 / 18)]
    assert score((0, 1, 2), apart, vary) == pytest.approx(2 - vary[0] - close + far, abs=1e-9)
    assert score((2, 0, 1), apart, vary) == pytest.approx(2 - vary[2], abs=1e-9)
    # Of four the second is compared with the third alone, which is both next and mirrored.
    four = [[0.0, 0.1, 0.2, 0.7], [0.1, 0, 0.4, 0.5], [0.2, 0.4, 0, 0.4], [0.7, 0.5, 0.4, 0]]
    assert score((0, 1, 2, 3), four, [0.25] * 4) == pytest.approx(0.75 + 1 - 0.7 + 0.1 + 1)
    names = ["a", "b", "c"]
    best = DesignedStream(names, place_AD, config=Designed(steps=2))
    worst = DesignedStream(names, place_AD, config=Designed(steps=2, rank="worst"))
    assert best.order == (0, 1, 2)
    assert worst.order == (0, 2, 1)
    assert best.metrics()["score_spread"] == pytest.approx(2 * (far - close))
    turns = [int(best.shares(step).argmax()) for step in range(8)]
    assert turns == [0, 0, 1, 1, 2, 2, 2, 2]


def test_more_categories_than_orders_can_be_scored_of_are_refused():
    with pytest.raises(UserError, match="there are 9 categories, of which it orders 8 at most"):
        started("designed", pool_of(levels=9), by="difficulty")
