import math

import pytest
import torch

from posttrain.learning.models.rounding import Kahan, Rounding, Stochastic, stochastic_bf16_

# Between 1 and 2 neighbors in bfloat16 are 2^-7 apart.
GAP = 2.0**-7


def noise(seed=0):
    return torch.Generator().manual_seed(seed)


def test_chance_rounds_to_the_neighbors_and_to_the_value_on_average():
    num = 200_000
    for value, below, above, up in [
        (1 + GAP / 4, 1.0, 1 + GAP, 0.25),
        # Away from zero on the other side, too: -1 - gap/4 lies a quarter of the way to -1 - gap.
        (-1 - GAP / 4, -1.0, -1 - GAP, 0.25),
        (1 + 0.9 * GAP, 1.0, 1 + GAP, 0.9),
    ]:
        found = stochastic_bf16_(torch.full((num,), value), noise()).double()
        assert set(found.tolist()) == {below, above}
        # Five standard deviations of a share.
        slack = 5 * math.sqrt(up * (1 - up) / num)
        assert float((found == above).double().mean()) == pytest.approx(up, abs=slack)


def test_what_needs_no_rounding_stays():
    exact = torch.tensor([0.0, -0.0, 1.0, 1 + GAP, -3.25, 2.0**-126, 2.0**-133, torch.inf])
    for seed in range(50):
        assert torch.equal(stochastic_bf16_(exact.clone(), noise(seed)), exact)


def test_noise_follows_from_seed_step_and_place_alone():
    def rounded(seed=1, step=0, index=0):
        weight = torch.zeros(512, dtype=torch.bfloat16)
        Stochastic(seed).store(torch.full((512,), 1 + GAP / 2), weight, index=index, step=step)
        return weight

    torch.manual_seed(3)
    first = rounded()
    torch.rand(7)
    assert torch.equal(rounded(), first)
    for other in (rounded(seed=2), rounded(step=1), rounded(index=1)):
        assert not torch.equal(other, first)


def steps_of(rounding, num, size):
    """A weight of 1 that takes equal steps in float32."""
    weight = torch.ones(4096, dtype=torch.bfloat16)
    for step in range(num):
        wide = rounding.widened(weight, 0)
        rounding.store(wide + size, weight, index=0, step=step)
    return weight.double()


def test_small_steps_are_lost_to_the_nearest_and_kept_by_the_others():
    # 64 steps of a 32nd of the gap: two gaps in all.
    options = {"num": 64, "size": GAP / 32}
    assert set(steps_of(Rounding(), **options).tolist()) == {1.0}
    assert set(steps_of(Kahan(), **options).tolist()) == {1 + 2 * GAP}
    moved = (steps_of(Stochastic(0), **options) - 1) / GAP
    # Each of 64 steps is a gap with probability 1/32: mean 2, variance 64 x 31/1024.
    assert float(moved.mean()) == pytest.approx(2.0, abs=5 * math.sqrt(64 * 31 / 1024 / 4096))
    assert 1.0 < float(moved.var()) < 3.0


def test_what_is_left_comes_back_with_the_state():
    weight, first = torch.ones(3, dtype=torch.bfloat16), Kahan()
    first.store(torch.full((3,), 1 + GAP / 4), weight, index=5, step=0)
    again = Kahan()
    again.load_state_dict(first.state_dict())
    assert again.widened(weight, 5).tolist() == [1 + GAP / 4] * 3
    assert again.widened(weight, 4).tolist() == [1.0] * 3
