"""Two real releases of a miniature of the default recipe, as the tests make them."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def make(place: Path) -> Any:
    """Make `mini@v1.0.0` and `mini@v1.1.0` below a folder, in a minute or two.

    Args:
        place: A new folder: it gets `project` and `keys`.

    Returns:
        The project, as `tests/publishing/release/conftest.py` has it.

    """
    source = ROOT / "tests/publishing/release/conftest.py"
    spec = importlib.util.spec_from_file_location("released_miniature", source)
    assert spec is not None
    assert spec.loader is not None
    tests = importlib.util.module_from_spec(spec)
    sys.modules["released_miniature"] = tests
    spec.loader.exec_module(tests)
    from posttrain.publishing.release import keys

    place.mkdir(parents=True)
    keys.make_pair(place / "keys")
    return tests.release_twice(place)
