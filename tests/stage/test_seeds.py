"""Seeds are those by which every earlier result was drawn."""

import random

from posttrain.stage.seeds import derived_seed, order_key, purpose_seed, shuffler, stable_seed


def test_the_values_stay():
    assert derived_seed(0, "rl") == 327599775
    assert stable_seed(0, "legs", "train") == 523297265
    assert purpose_seed(0, "rl", 17) == 3309845797308426097
    assert order_key(0, "split", "p1").hex()[:16] == "821b02f818c8132e"


def test_each_purpose_has_a_stream_of_its_own():
    assert shuffler(3, "order", 2).random() == random.Random("3:order:2").random()
    assert shuffler("3:order:2").random() == random.Random("3:order:2").random()
    seeds = {purpose_seed(seed, *purpose) for seed in (0, 1) for purpose in (("a", 1), ("a1",), ())}
    assert len(seeds) == 6
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert 0 <= derived_seed(1, "x") < 2**31 > stable_seed(1, "x") >= 0
