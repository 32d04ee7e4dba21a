"""Random numbers that depend on what they are for, and on nothing else."""

import numpy as np
import torch

from posttrain.data.mixing import splitmix64
from posttrain.learning.rollouts.engines.rng import row_keys, uniforms
from posttrain.stage.seeds import purpose_seed


def test_splitmix_reference_values():
    """The first outputs of the published SplitMix64 generator seeded with 1234567."""
    golden = 0x9E3779B97F4A7C15
    states = np.array([(1234567 + golden * i) % 2**64 for i in (1, 2, 3)], dtype=np.uint64)
    assert splitmix64(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_keys_depend_on_seed_prompt_and_index_only():
    keys = row_keys(7, ["a", "b"], 3)
    assert len(set(keys.tolist())) == 6
    assert row_keys(7, ["b"], 2).tolist() == keys[3:5].tolist()
    assert not set(row_keys(8, ["a", "b"], 3).tolist()) & set(keys.tolist())
    # Where the seed ends and the id begins is part of the key.
    assert row_keys(1, ["2"], 1).tolist() != row_keys(12, [""], 1).tolist()


def test_uniforms_are_uniform_and_independent():
    keys = row_keys(0, [str(i) for i in range(500)], 20)
    first, second = uniforms(keys, 0), uniforms(keys, 1)
    assert first.min() >= 0
    assert first.max() < 1
    # 10,000 draws: a decile holds 1000 +- 30, the correlation is 0 +- 0.01; five deviations.
    for draws in (first, second):
        counts = torch.histc(draws, bins=10, min=0, max=1)
        assert (counts - 1000).abs().max() < 150
    assert torch.corrcoef(torch.stack([first, second]))[0, 1].abs() < 0.05
    by_row = first.view(500, 20)
    assert torch.corrcoef(by_row[:, :2].T)[0, 1].abs() < 0.23


def test_the_largest_value_cannot_round_up_to_one():
    assert torch.tensor(2**23 - 1, dtype=torch.float32) * 2.0**-23 < 1.0
    steps = [uniforms(row_keys(s, ["x"], 1000), s) for s in range(20)]
    assert torch.cat(steps).max() <= 1 - 2**-23


def test_every_purpose_has_its_own_seed():
    purposes = [
        (0, "rl", 1),
        (0, "rl", 2),
        (1, "rl", 1),
        (0, "probe"),
        (0, "rl1"),
        (0, "rl", "1", ""),
    ]
    seeds = [purpose_seed(*purpose) for purpose in purposes]
    assert len(set(seeds)) == len(purposes)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert purpose_seed(0, "rl", 1) == seeds[0]


def test_rows_may_be_at_steps_of_their_own():
    keys = row_keys(4, ["a", "b", "c"], 1)
    steps = np.array([0, 7, 2**40], dtype=np.uint64)
    each = [uniforms(keys[i : i + 1], int(step)) for i, step in enumerate(steps)]
    assert uniforms(keys, steps).tolist() == torch.cat(each).tolist()
