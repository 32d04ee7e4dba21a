"""A slice of the random projects: bytes that differ under an equal key are never seen.

`python -m benchmarks.reliability.keys` tries thousands; docs/reliability.md has its figures.
"""

import random
import sys
from pathlib import Path

import pytest

from benchmarks.reliability import keys
from benchmarks.reliability.projects import FRAGMENTS
from tests.quick import first_now

# What the hermetic process refuses or does not hand over, and no key need know.
HELD = {
    "file listed by a made-up folder": keys.REFUSED,
    "other variable": keys.CALM,
    "variable by a made-up name": keys.CALM,
}


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda fragment: fragment.name)
def test_a_value_that_a_stage_comes_by_is_in_its_key_or_out_of_its_reach(
    fragment, tmp_path, monkeypatch
):
    project = keys.Project(tmp_path)
    keys._write(project, [fragment], random.Random(1))
    monkeypatch.setattr(sys, "path", [str(project.root), str(project.site), *sys.path])
    key, files = keys._key(project)
    before, _ = keys._executed(project, files)
    where, old, _ = project.reached[0]
    keys._change(project, where, old)
    other, files = keys._key(project)
    after, surplus = keys._executed(project, files)
    assert "Error" not in before + after
    outcome = keys.outcome_of(before != after, key != other, surplus)
    assert outcome == HELD.get(fragment.name, keys.SEEN)


@pytest.mark.parametrize("first", first_now(range(0, 50, 10)))
def test_random_projects(first):
    assert Path(keys.__file__).is_file()
    outcomes = [keys.case(seed)[0] for seed in range(first, first + 10)]
    assert keys.ESCAPED not in outcomes
    assert keys.CALM in outcomes
