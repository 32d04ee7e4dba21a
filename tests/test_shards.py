"""Shards of the tests: together they are all of them, no test is in two, and they are as long."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def plugin(request):
    """tests/conftest.py as a module."""
    plugins = request.config.pluginmanager.get_plugins()
    return next(p for p in plugins if getattr(p, "__file__", "") == str(ROOT / "tests/conftest.py"))


def collected(*options):
    files = [f"tests/test_{name}.py" for name in ("budgets", "documents", "shards")]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *options, *files], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}


class Item:
    """A test as far as shards look at it."""

    def __init__(self, nodeid):
        self.nodeid, self.keywords = nodeid, {}

    def get_closest_marker(self, name):
        return None


def test_two_shards_are_all_tests_and_no_test_is_in_both(plugin):
    names = [f"tests/{file}.py::test_{n}" for file in "abcde" for n in range(ord(file) - 95)]
    shards, hook = [], SimpleNamespace(pytest_deselected=lambda items: None)
    for number in (1, 2):
        shards.append(items := [Item(name) for name in names])
        options = SimpleNamespace(shard=f"{number}/2")
        plugin.pytest_collection_modifyitems(SimpleNamespace(option=options, hook=hook), items)
    first, second = ([item.nodeid for item in shard] for shard in shards)
    assert first
    assert second
    assert sorted(first + second) == sorted(names)
    files = [{name.partition("::")[0] for name in shard} for shard in (first, second)]
    assert not files[0] & files[1]


def test_the_option_chooses_files():
    assert 0 < len(collected("--shard", "1/2")) < 3


def test_the_longest_files_come_first_where_workers_share_them_out(plugin):
    names = [
        f"tests/{file}.py::test_{n}" for file, number in (("a", 2), ("b", 3)) for n in range(number)
    ]
    items = [Item(name) for name in names]
    options = SimpleNamespace(shard=None, dist="loadfile")
    plugin.pytest_collection_modifyitems(SimpleNamespace(option=options), items)
    assert [item.nodeid for item in items] == [*names[2:], *names[:2]]


@pytest.mark.parametrize("shard", ["0/2", "3/2"])
def test_a_shard_that_there_is_not_is_refused(plugin, shard):
    asked = SimpleNamespace(option=SimpleNamespace(shard=shard))
    with pytest.raises(pytest.UsageError, match="--shard takes K/N with 1 <= K <= N"):
        plugin.pytest_collection_modifyitems(asked, [])


def test_the_longest_go_first_each_to_the_shard_with_least(plugin):
    # 6 | 5, then 4 to the second (9), 3 to the first (9), 1 to the first of equals.
    weights = {"a": 5.0, "b": 6.0, "c": 3.0, "d": 4.0, "e": 1.0}
    assert plugin.assign(weights, 2) == {"b": 1, "a": 2, "d": 2, "c": 1, "e": 1}


@given(
    weights=st.dictionaries(st.text(min_size=1), st.floats(0.01, 100), min_size=1),
    shards=st.integers(1, 9),
)
def test_no_shard_is_longer_than_the_mean_and_one_unit(plugin, weights, shards):
    chosen = plugin.assign(weights, shards)
    assert chosen.keys() == weights.keys()
    loads = [sum(weights[u] for u in chosen if chosen[u] == k) for k in range(1, shards + 1)]
    assert max(loads) <= sum(weights.values()) / shards + max(weights.values()) + 1e-6


def test_a_test_belongs_to_the_longest_unit_listed_or_to_its_tier_of_its_file(plugin):
    listed = {
        "slow tests/a.py": 1.0,
        "slow tests/a.py::test_x": 2.0,
        "slow tests/a.py::test_x[2]": 3,
    }

    def unit(nodeid, *keywords):
        return plugin.unit_of(plugin.tiered(nodeid, keywords), listed)

    assert unit("tests/a.py::test_x[1]", "slow") == "slow tests/a.py::test_x"
    assert unit("tests/a.py::test_x[2]", "slow") == "slow tests/a.py::test_x[2]"
    assert unit("tests/a.py::test_y", "slow") == "slow tests/a.py"
    assert unit("tests/a.py::test_x[1]") == "quick tests/a.py"
    assert unit("tests/b.py::test_z", "slow") == "slow tests/b.py"


def test_every_unit_listed_names_a_file_that_is_there(plugin):
    units = [unit.split(" ", 1) for unit in plugin.read_durations()]
    assert {tier for tier, _ in units} <= {"slow", "quick"}
    files = {name.partition("::")[0] for _, name in units}
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_successive_commits_walk_through_all_slices_each_with_and_without_engines():
    rules = re.findall(r"^(?:SLICES|slice|engines)=.*$", (ROOT / ".ci/run").read_text(), re.M)
    loop = f"for number in {{0..17}}; do {'; '.join(rules)}; echo $slice $engines; done"
    # Without SLICE and ENGINE_TESTS, which this very run may have been given.
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-c", loop], capture_output=True, text=True, check=True, env=env)
    chosen = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert [part for part, _ in chosen] == [1, 2, 3, 4, 5, 6] * 3
    assert sorted(part for part, engines in chosen if engines) == [1, 2, 3, 4, 5, 6]
