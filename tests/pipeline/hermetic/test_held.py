"""Changes, connections and variables that a key does not know; and places that are odd."""

import compileall
import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from posttrain.pipeline.execution.child import concluded
from posttrain.stage.declared import Declared
from tests.quick import first_now

pytestmark = pytest.mark.usefixtures("here")


def refused(toy, **options):
    done = toy.cli("run", "--local", "--only", "first", **options)
    assert done.returncode == 2, done.stderr
    return re.sub(r"\s+", " ", done.stderr)


@pytest.mark.parametrize(
    "change",
    first_now(
        [
            "open('notes.txt', 'w').write('x')",
            "os.mkdir('notes.txt')",
            "os.symlink('x', 'notes.txt')",
        ]
    ),
)
def test_a_stage_changes_nothing_outside_of_its_own(doing, change, isolation):
    toy = doing(f"import os\n{change}")
    assert (
        "stage 'first' writes notes.txt, and nothing outside of its outputs and `context.scratch`"
        " is its to change; write it there, or make it an output of its task"
    ) in refused(toy)
    assert not (toy.root / "notes.txt").exists()


@pytest.mark.slow
def test_what_a_library_writes_elsewhere_is_named(doing):
    toy = doing("import polars as pl\npl.DataFrame({'a': [1]}).write_parquet('notes.parquet')")
    assert "stage 'first' writes notes.parquet, and nothing outside" in refused(toy)


def test_a_stage_without_an_endpoint_or_a_hub_connects_to_nothing(doing, isolation):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        toy = doing(f"import socket\nsocket.create_connection(('127.0.0.1', {port}))")
        assert (
            f"stage 'first' opens a connection to 127.0.0.1:{port}, and none of its parameters"
            " names an endpoint or a hub; name one there, or let its config say so by `reaches`"
        ) in refused(toy)


CONNECTING = {
    "socket": "import socket\n    socket.create_connection(('127.0.0.1', {port}))",
    "connect_ex": "import socket\n    socket.socket().connect_ex(('127.0.0.1', {port}))",
    "urllib": "import urllib.request\n    urllib.request.urlopen('http://127.0.0.1:{port}')",
    "asyncio": "import asyncio\n    asyncio.run(asyncio.open_connection('127.0.0.1', {port}))",
}


@pytest.mark.parametrize("way", first_now(CONNECTING))
def test_a_connection_that_a_stage_goes_on_without_is_refused_all_the_same(doing, way, isolation):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        toy = doing(f"try:\n    {CONNECTING[way].format(port=port)}\nexcept Exception:\n    pass")
        said = refused(toy)
        assert f"stage 'first' opens a connection to 127.0.0.1:{port}, and none of its" in said
        assert said.strip().endswith("(it was refused, and the stage went on without it)")
        assert not (toy.root / "data/first/result.json").exists()


@pytest.mark.slow
def test_a_library_that_tries_to_connect_and_goes_on_ends_no_stage(doing):
    toy = doing(
        "import polars, socket\n"
        "asking = 'try: socket.create_connection((\"127.0.0.1\", 9))\\nexcept OSError: pass'\n"
        "exec(compile(asking, polars.__file__, 'exec'))"
    )
    done = toy.cli("run", "--local", "--only", "first")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plan", "run"])
def test_an_isolation_that_is_not_known_is_refused_before_anything_runs(toy, command):
    done = toy.cli(command, env={"POSTTRAIN_ISOLATION": "observd"})
    assert done.returncode == 2
    said = re.sub(r"\s+", " ", done.stderr)
    assert "POSTTRAIN_ISOLATION is 'observd', and only observed is known; set it to that" in said


@pytest.fixture
def beside(tmp_path_factory):
    """A folder on the path of modules, with one that no package provides."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "medade_up.py").write_text("")
    return folder


IMPORTING = {
    "import_module": "import importlib\nimportlib.import_module('dem'[::-1] + 'ade_up')",
    "loaded before": "from importlib import import_module\nimport_module('citnadyp'[::-1])",
    "__import__": "__import__('dem'[::-1] + 'ade_up')",
    "relative": "import importlib\nimportlib.import_module('.' + 'types', 'citnadyp'[::-1])",
    "runpy": "import runpy\nrunpy.run_module('dem'[::-1] + 'ade_up')",
    "swallowed": "try:\n    __import__('dem'[::-1] + 'ade_up')\nexcept Exception:\n    pass",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", first_now(IMPORTING))
def test_a_package_by_a_made_up_name_is_refused(doing, beside, way, isolation):
    toy = doing(IMPORTING[way])
    said = refused(toy, env={"PYTHONPATH": str(beside)})
    what = "medade_up" if "ade_up" in IMPORTING[way] else "pydantic"
    assert (
        f"stage 'first' imports {what} by a name that is made up when it runs, so that its key"
        f" does not know the version of {what}; write `import {what}` where it is used"
    ) in said
    assert not (toy.root / "data/first/result.json").exists()


@pytest.mark.slow
def test_imports_that_are_in_the_key_or_load_nothing_are_no_matter(doing, beside):
    toy = doing(
        """
        import importlib.util, polars, pyarrow
        made_up = 'dem'[::-1] + 'ade_up'
        # It asks whether it is there, a library imports it (the second in C, which has no frame),
        # the key has it, it is nowhere.
        assert importlib.util.find_spec(made_up)
        exec(compile(f"__import__('{made_up}')", polars.__file__, 'exec'))
        assert pyarrow.array([1.0]).to_pylist() == [1.0]
        assert importlib.import_module('polars.' + 'series'[:]).Series is polars.Series
        assert importlib.import_module('nosj'[::-1]).dumps([]) == '[]'
        try:
            importlib.import_module('dem'[::-1] + 'ade_down')
        except ImportError:
            pass
        """
    )
    done = toy.cli("run", "--local", "--only", "first", env={"PYTHONPATH": str(beside)})
    assert done.returncode == 0, done.stderr


ASKING = {
    "item": "os.environ['MY_LIMIT']",
    "get": "os.environ.get('MY_LIMIT')",
    "getenv": "os.getenv('MY_LIMIT', '0')",
}


@pytest.mark.parametrize("asking", first_now(ASKING))
def test_a_variable_that_is_set_and_not_declared_is_refused(doing, asking):
    toy = doing(f"import os\n{ASKING[asking]}")
    assert (
        "stage 'first' reads the environment variable MY_LIMIT, which its key does not know;"
        " declare it for this stage in the recipe: first: {declares: {environment: [MY_LIMIT]}},"
        " or as one of its secrets where it decides nothing about the result"
    ) in refused(toy, env={"MY_LIMIT": "9"})


SWALLOWING = {
    "item": "try:\n    os.environ['MY_LIMIT']\nexcept Exception:\n    pass",
    "getenv": "import contextlib\nwith contextlib.suppress(Exception):\n    os.getenv('MY_LIMIT')",
    "in": "try:\n    'MY_LIMIT' in os.environ\nexcept Exception:\n    pass",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", first_now(SWALLOWING))
def test_a_variable_that_a_stage_goes_on_without_is_refused_all_the_same(doing, way, isolation):
    """It would make one key's second result: another one than where the variable is not set."""
    toy = doing(f"import os\n{SWALLOWING[way]}")
    said = refused(toy, env={"MY_LIMIT": "9"})
    assert "stage 'first' reads the environment variable MY_LIMIT, which its key" in said
    assert said.strip().endswith("(it was refused, and the stage went on without it)")
    assert not (toy.root / "data/first/result.json").exists()
    done = toy.cli("run", "--local", "--only", "first", env={})
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_libraries_ask_for_and_do_not_find_is_no_matter(doing):
    toy = doing(
        "import os, polars\n"
        "asked = eval(compile('os.environ.get(\"MY_LIMIT\")', polars.__file__, 'eval'))\n"
        "assert asked is None and 'OTHER_LIMIT' not in os.environ"
    )
    done = toy.cli("run", "--local", "--only", "first", env={"MY_LIMIT": "9"})
    assert done.returncode == 0, done.stderr


def test_a_declared_variable_counts_by_its_value_and_a_secret_does_not(doing, monkeypatch):
    body = "import os\ntotal = int(os.environ['MY_LIMIT']) + len(os.environ['MY_TOKEN'])"
    toy = doing(body, "environment: [MY_LIMIT]\nsecrets: [MY_TOKEN]\n")
    monkeypatch.setenv("MY_LIMIT", "9")
    monkeypatch.setenv("MY_TOKEN", "hush-hush")
    toy.run()
    monkeypatch.setenv("MY_TOKEN", "other")
    assert toy.plan()["first"].action == "cached"
    monkeypatch.setenv("MY_LIMIT", "11")
    decision = toy.plan()["first"]
    assert decision.action == "run"
    assert decision.reasons[0].startswith("environment MY_LIMIT changed from ")
    kept = [file for file in (toy.root / ".posttrain").rglob("*") if file.is_file()]
    assert not [file for file in kept if b"hush-hush" in file.read_bytes()]


def test_what_is_not_set_is_not_there_and_programs_see_no_more(doing):
    toy = doing(
        "import os, subprocess\n"
        "assert os.environ.get('MY_LIMIT') is None\n"
        "told = subprocess.run(['env'], capture_output=True, text=True, check=True).stdout\n"
        "assert 'OTHER_LIMIT' not in told and 'PATH=' in told"
    )
    done = toy.cli("run", "--local", "--only", "first", env={"OTHER_LIMIT": "9"})
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_inputs_that_are_links_and_a_project_with_spaces_in_its_path(doing, tmp_path):
    toy = doing(
        "total = sum(int(open(path).read()) for path in inputs.values())",
        "first: {path: given.txt}",
    )
    kept = tmp_path.parent / f"{tmp_path.name} kept"
    kept.mkdir()
    (kept / "bytes").write_text("5")
    (toy.root / "given.txt").symlink_to(kept / "bytes")
    moved = tmp_path.parent / f"{tmp_path.name} of mine"
    shutil.copytree(toy.root, moved, symlinks=True)
    toy.root = moved
    done = toy.cli("run", "--local", "--only", "first", env={"HOME": ""})
    assert done.returncode == 0, done.stderr


ASKED = """
import os, sys
from pathlib import Path
from posttrain.backends.endpoint.cache import RequestCache, default_path
from posttrain.pipeline.hermetic.process import hold
from posttrain.pipeline.hermetic.view import StageView
here = Path.cwd()
hold(StageView("toy", here, here, writes=(here / "scratch",), reach=frozenset({"endpoint"})))
cache = RequestCache(default_path())
print(cache.get("question"))
cache.put("question", "answer")
try:
    open(".posttrain/other", "w")
except PermissionError:
    print("held")
"""


def test_a_stage_with_an_endpoint_keeps_answers_and_nothing_else_of_the_project(tmp_path):
    (tmp_path / ".dvc").mkdir()
    for known in ("None", "answer"):
        done = subprocess.run(
            [sys.executable, "-c", ASKED], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == [known, "held"], done.stderr


@pytest.mark.slow
def test_an_edit_that_keeps_size_and_time_runs_new_code(toy, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    helper = toy.root / f"{toy.helper.replace('.', '/')}.py"
    helper.write_text("def add(a, b):\n    return a + 1 * b\n")
    compileall.compile_file(helper, quiet=1)  # as any other run of Python leaves it
    kept = helper.stat()
    assert toy.cli("run", "--local", "--only", "first").returncode == 0
    result = toy.root / "data/first/result.json"
    before = json.loads(result.read_text())["sum"]
    for factor in (2, 3):
        helper.write_text(f"def add(a, b):\n    return a + {factor} * b\n")
        os.utime(helper, ns=(kept.st_atime_ns, kept.st_mtime_ns))
        assert toy.cli("run", "--local", "--only", "first").returncode == 0
        assert json.loads(result.read_text())["sum"] == factor * before


def test_a_stage_that_cannot_be_held_ends_with_a_sentence(tmp_path, capsys):
    def hold():
        raise OSError(errno.ENOSPC, "No space left on device")

    assignment = SimpleNamespace(plugins=(), stage="first", log=tmp_path / "first.log")
    final = concluded(assignment, lambda: {"kind": "done"}, hold)
    assert final["kind"] == "refused"
    assert "stage 'first': no space left on the disk of" in final["error"]


def test_variables_that_decide_how_libraries_compute_count_by_value(toy, monkeypatch):
    for name in ("NVIDIA_TF32_OVERRIDE", "NCCL_ALGO", "GLIBC_TUNABLES", "PYTHONOPTIMIZE"):
        monkeypatch.delenv(name, raising=False)
    toy.run()
    for name, value in {
        "NVIDIA_TF32_OVERRIDE": "1",
        "NCCL_ALGO": "Tree",
        "KMP_BLOCKTIME": "0",
        "MKL_DYNAMIC": "FALSE",
        "POLARS_ENGINE_AFFINITY": "streaming",
        "GLIBC_TUNABLES": "glibc.malloc.check=0",
        "PYTHONOPTIMIZE": "1",
    }.items():
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            assert toy.plan()["first"].action == "run", name
    for name in ("OMP_NUM_THREADS", "NCCL_DEBUG", "PYTHONUNBUFFERED", "KMP_INIT_AT_FORK", "TZ"):
        with monkeypatch.context() as patched:
            patched.setenv(name, "3")
            assert toy.plan()["first"].action == "cached", name


@pytest.mark.slow
def test_times_and_text_are_the_same_in_any_zone_and_language(doing):
    body = """
        import locale, os, time
        seen = time.strftime("%z", time.localtime(0)), os.environ["TZ"], locale.getencoding()
        assert seen == ("+0000", "UTC", "UTF-8"), seen
    """
    toy = doing(body)
    odd = {"TZ": "Asia/Tokyo", "LC_ALL": "POSIX", "LANG": "de_DE.ISO-8859-1"}
    done = toy.cli("run", "--local", "--only", "first", env=odd)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_declared_zone_is_the_one_that_is_seen(doing):
    toy = doing('import os\nassert os.environ["TZ"] == "Asia/Tokyo"', "environment: [TZ]")
    assert toy.cli("run", "--local", "--only", "first", env={"TZ": "Asia/Tokyo"}).returncode == 0


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("OMP_NUM_THREADS", "run.threads"),
        ("MKL_CBWR", "run.kernels"),
        ("PYTHONHASHSEED", "the framework"),
    ],
)
def test_a_variable_that_is_set_whatever_it_was_cannot_be_declared(name, setting):
    with pytest.raises(ValueError, match=f"{name} is set by {setting}, which counts; leave it out"):
        Declared(environment=(name,))
