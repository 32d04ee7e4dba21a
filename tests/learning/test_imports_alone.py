"""`posttrain.learning` imports where nothing but its four requirements is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = '''
import importlib, pkgutil, re, sys
from importlib.metadata import packages_distributions, requires

def named(text):
    return re.sub(r"[-_.]+", "-", text).lower()

def required_by(roots):
    """The distributions and everything that they require, extras left out."""
    from packaging.requirements import Requirement
    found, waiting = set(), list(roots)
    while waiting:
        name = named(waiting.pop())
        if name in found:
            continue
        found.add(name)
        try:
            lines = requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        needed = [Requirement(line) for line in lines]
        waiting += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found

allowed = required_by(["torch", "transformers", "pydantic", "polars"])
blocked = {
    package
    for package, distributions in packages_distributions().items()
    if package != "posttrain" and not {named(each) for each in distributions} & allowed
}

class Without:
    """A finder that does not find what is blocked, as if it were not installed."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

for name in list(sys.modules):
    if name.partition(".")[0] in blocked:
        del sys.modules[name]
blocked |= {"tasks", "flows"}
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]

import posttrain.learning
names = [m.name for m in pkgutil.walk_packages(posttrain.learning.__path__, "posttrain.learning.")]
failed = {}
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed[name] = str(error)
print(len(names), len(blocked), sorted(blocked & {"numpy", "peft", "ray", "prefect", "pyarrow"}))
for name, error in failed.items():
    print("FAILED", name, error)
'''


@pytest.mark.slow  # it imports torch, transformers and all that learns
def test_every_module_imports_without_anything_else_that_is_installed():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, *failed = done.stdout.splitlines()
    assert failed == []
    # The test blocks what it says: packages that this environment has, and many of them.
    assert int(first.split()[1]) > 50
    assert "prefect" in first
