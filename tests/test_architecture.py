"""The rules of the tree: who may import whom, how heavy imports are, how large parts may grow."""

import ast
import functools
import json
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from posttrain.cli.main import VERBS
from posttrain.pipeline.stage_keys import INTERFACE
from posttrain.stage.descriptions import descriptions
from tests.forked import posttrain

ROOT = Path(__file__).parents[1]
PACKAGES = ("posttrain", "tasks", "flows")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
STAGES = sorted(path.parent.name for path in (ROOT / "tasks").glob("*/stage.py"))

MAX_FILE, P90_FILE, MEDIAN_FILE = 400, 300, 120
MAX_FUNCTION, P90_FUNCTION, MEDIAN_FUNCTION = 80, 40, 12
# A training loop reads top to bottom; cutting it up to please a counter would hide its order.
LOOPS = {"posttrain/learning/rl/loop.py": 150, "posttrain/learning/training/supervised.py": 150}
# A file that only lists symbols for others is no file that someone has to read.
SMALLEST = 5


def run(*command):
    """Run a command at the root of the tree."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def percentile(values, share):
    """The value below which `share` of the values lie."""
    return sorted(values)[round(share * (len(values) - 1))]


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


@functools.cache
def nodes(path):
    """Every node of a file's syntax tree; several rules look at all of them."""
    return list(ast.walk(parsed(path)))


def functions(path):
    """Name and length in lines of every function of a file."""
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


LOADED = """
import importlib, json, os, sys
def tell(group):
    for name, modules in wanted[group].items():
        if os.fork() == 0:
            for module in modules:
                importlib.import_module(module)
            print(json.dumps([name, sorted(sys.modules)]), flush=True)
            os._exit(0)
        assert os.wait()[1] == 0, name
wanted = json.load(sys.stdin)
tell("fresh")
import torch
tell("torch")
# Others' packages, which take seconds: once for all.
import datasets, polars, pydantic, transformers.generation, transformers.modeling_utils
tell("all")
"""


@pytest.fixture(scope="module")
def loaded():
    """Names of all modules that a process has after some imports, by what was imported."""
    library = []
    for path in sorted((ROOT / "posttrain").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "migrations" not in parts and parts[-1] != "__main__":
            library.append(".".join(parts).removesuffix(".__init__"))
    maths = [path.stem for path in (ROOT / "posttrain/learning/maths").glob("[!_]*.py")]
    stages = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
    wanted = {
        "fresh": {
            "declarations": [f"tasks.{name}" for name in STAGES],
        },
        "torch": {"maths": [f"posttrain.learning.maths.{name}" for name in maths]},
        "all": {"library": library} | {stage: [f"tasks.{stage}.stage"] for stage in stages},
    }
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        input=json.dumps(wanted),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = (json.loads(line) for line in done.stdout.splitlines())
    return {name: set(modules) for name, modules in told}


def test_imports_go_one_way():
    done = run(sys.executable, "-m", "importlinter.cli", "lint-imports")
    done = (
        done
        if "Contracts" in done.stdout
        else run(str(Path(sys.executable).parent / "lint-imports"))
    )
    assert done.returncode == 0, done.stdout


def _floors():
    """The floor of every room of the library, from the contract on imports."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(
        each["layers"] for each in contracts["contracts"] if each.get("containers") == ["posttrain"]
    )
    rooms = [[f"posttrain.{room}" for room in re.split(r"\W+", layer)] for layer in layers]
    ordered = [["flows"], ["tasks"], *rooms]
    return {name: -floor for floor, names in enumerate(ordered) for name in names}


def _floor(module, floors):
    above = [module.rsplit(".", n)[0] for n in range(module.count(".") + 1)]
    return next((floors[name] for name in above if name in floors), 0)


TABLES_OF_NAMES = ("moved", "profile_values", "recipe_rewrites")


def test_no_room_names_a_module_above_it_in_a_string():
    # What the linter of imports cannot see: modules that are imported, started or read by name.
    # A flow is what a recipe names, and the tables of what old results and old recipes name, and
    # of what a profile sets for which task, list modules that are never imported.
    floors = _floors()
    known = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in MODULES}
    known |= {name.removesuffix(".__init__") for name in known}
    found = []
    for path in MODULES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module in [f"posttrain.pipeline.{table}" for table in TABLES_OF_NAMES]:
            continue
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = node.value.partition(":")[0]
                if (
                    named in known
                    and "." in named
                    and not named.startswith("flows.")
                    and _floor(named, floors) > _floor(module, floors)
                ):
                    found.append((module, named))
    assert found == []


def test_style_holds():
    done = run(sys.executable, "-m", "ruff", "check", ".")
    assert done.returncode == 0, done.stdout
    formatted = run(sys.executable, "-m", "ruff", "format", "--check", ".")
    assert formatted.returncode == 0, formatted.stdout


@pytest.mark.slow
@pytest.mark.core
def test_types_hold():
    done = run(sys.executable, "-m", "mypy")
    assert done.returncode == 0, done.stdout


def test_files_stay_small_enough_to_read():
    lengths = {path: path.read_text().count("\n") for path in MODULES}
    lengths = {path: length for path, length in lengths.items() if length > SMALLEST}
    too_long = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_FILE}
    assert too_long == {}
    assert percentile(lengths.values(), 0.9) <= P90_FILE
    assert statistics.median(lengths.values()) <= MEDIAN_FILE


def test_functions_stay_short():
    lengths = []
    for path in MODULES:
        limit = LOOPS.get(str(path.relative_to(ROOT)), MAX_FUNCTION)
        for name, length in functions(path):
            assert length <= limit, f"{path}:{name} has {length} lines"
            lengths.append(length)
    assert percentile(lengths, 0.9) <= P90_FUNCTION
    assert statistics.median(lengths) <= MEDIAN_FUNCTION


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "misc", "core", "base_classes"])
def test_no_room_is_called_a_drawer(name):
    found = [path.relative_to(ROOT) for path in ROOT.glob(f"**/{name}*")]
    ours = [path for path in found if not any(part.startswith(".") for part in path.parts)]
    assert [path for path in ours if path.suffix in ("", ".py")] == []


HELPED = """
import sys
from posttrain.cli.main import VERBS
for section in VERBS.values():
    for verb in section.values():
        verb.load()
print(*sys.modules)
"""


def test_help_imports_nothing_heavy():
    heavy = {
        "torch",
        "mlflow",
        "prefect",
        "dvc",
        "transformers",
        "polars",
        "datasets",
        "sqlalchemy",
        "numpy",
        "pydantic",
        "ruamel",
        "multiprocessing",
        "posttrain.pipeline",
        "posttrain.operations",
        "posttrain.views",
    }
    command = [sys.executable, "-c", HELPED]
    imported = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    modules = set(imported.stdout.split())
    assert "posttrain.cli.plan" in modules
    assert not heavy & modules


@pytest.mark.slow
@pytest.mark.core
def test_task_declarations_are_cheap(loaded):
    heavy = {"torch", "transformers", "polars", "datasets", "prefect", "mlflow", "dvc"}
    assert {f"tasks.{name}" for name in STAGES} <= loaded["declarations"]
    assert not heavy & loaded["declarations"]


@pytest.mark.slow
@pytest.mark.core
def test_maths_needs_torch_alone(loaded):
    heavy = {"transformers", "polars", "datasets", "prefect", "mlflow", "dvc", "pydantic"}
    assert not heavy & loaded["maths"]
    ours = {name for name in loaded["maths"] if name.startswith("posttrain.")}
    ours -= {"posttrain.learning"}
    assert ours
    assert all(name.startswith("posttrain.learning.maths") for name in ours)


@pytest.mark.slow
@pytest.mark.core
def test_the_library_imports_without_orchestrators(loaded):
    assert {"posttrain.cli.main", "posttrain.pipeline.execution.prefect"} <= loaded["library"]
    assert not {"vllm", "prefect", "mlflow", "dvc"} & loaded["library"]


def test_only_the_adapter_imports_dvc():
    users = {
        str(path.relative_to(ROOT).parent)
        for path in MODULES
        for node in nodes(path)
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] in ("dvc", "dvc_data")
        )
        or (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "dvc" for a in node.names))
    }
    assert users <= {"posttrain/provenance/dvc"}


def test_one_module_hashes_and_spells_json_for_it():
    # benchmarks and examples are ours as well; a test computes what it expects by itself.
    ours = [*MODULES, *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    texts = {path: path.read_text() for path in ours}
    hashing = {
        str(path.relative_to(ROOT))
        for path, text in texts.items()
        if re.search(r"^\s*(import|from) hashlib", text, re.M)
    }
    assert hashing == {"posttrain/stage/hashing.py"}
    spelled = {
        str(path.relative_to(ROOT)): functions
        for path, text in texts.items()
        # Whatever the module calls itself, the function stands there by its name.
        if "json.dumps" in text and (functions := digests_of_dumped_json(parsed(path)))
    }
    # Checksums of bytes that lie beside them: whoever reads those hashes what was written.
    assert spelled == {
        "posttrain/provenance/code/store.py": ["save"],
        "posttrain/backends/endpoint/cache.py": ["put"],
    }


def digests_of_dumped_json(tree):
    """Names of the functions in which what `json.dumps` gives is hashed, at once or by a name."""

    def dumps(node):
        calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
        return any(ast.unparse(call.func) == "json.dumps" for call in calls)

    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        dumped = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and dumps(node.value):
                dumped |= {ast.unparse(target) for target in node.targets}
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            hashes = re.search(r"sha256|md5|\.update$|digest|eight_bytes", ast.unparse(call.func))
            names = {each.id for each in ast.walk(call) if isinstance(each, ast.Name)}
            if hashes and (dumps(call) or names & dumped):
                found.append(function.name)
                break
    return found


@pytest.mark.parametrize(
    "body",
    [
        "return sha256_of(json.dumps(x))",
        "text = json.dumps(x, sort_keys=True).encode()\n    return Part(hashing.sha256_of(text))",
        "return sha256_of_parts(json.dumps(each).encode() for each in x)",
    ],
)
def test_a_spelling_of_its_own_that_is_hashed_is_found(body):
    assert digests_of_dumped_json(ast.parse(f"def f(x):\n    {body}\n")) == ["f"]
    assert (
        digests_of_dumped_json(ast.parse(f"def f(x):\n    {body}\n".replace("dumps", "loads")))
        == []
    )


def test_one_module_derives_seeds():
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in MODULES}
    seeding = {name for name, text in texts.items() if "eight_bytes_of" in text}
    assert seeding == {"posttrain/stage/hashing.py", "posttrain/stage/seeds.py"}


def test_every_task_has_the_same_shape():
    for name in STAGES:
        present = {path.name for path in (ROOT / "tasks" / name).glob("*.py")}
        assert {"__init__.py", "config.py", "stage.py"} <= present
    configs = [path.parent.name for path in (ROOT / "tasks").glob("*/config.py")]
    assert sorted(configs) == STAGES


def test_configs_are_small_and_every_field_is_explained():
    for name in STAGES:
        task = __import__(f"tasks.{name}", fromlist=["TASK"]).TASK
        assert task.package == f"tasks.{name}"
        assert len(task.config.model_fields) <= 21, name
        for field in task.config.model_fields:
            assert field in descriptions(task.config), f"tasks.{name}: {field} has no doc string"


def test_flows_are_not_named_like_a_dependency():
    names = {path.stem for path in (ROOT / "flows").glob("[!_]*.py")}
    assert not names & {"datasets", "tasks", "flows", "prefect", "torch", "posttrain", "mlflow"}


def test_data_holds_no_python_and_tests_no_packages():
    assert list((ROOT / "data").rglob("*.py")) == []
    # A plug-in's kind of artifact comes with a task of its own, which is a package.
    packages = (ROOT / "tests").rglob("__init__.py")
    assert [each for each in packages if "plugins" not in each.parts] == []


def test_every_verb_exists_and_explains_itself():
    for section in VERBS.values():
        for name, verb in section.items():
            assert verb.load().help, name


def only_listed(modules):
    """Registries, the parts that only a registry imports, what only those import, and its folders.

    A stage depends on those that it names.
    """
    trees = {
        name: ast.parse(ROOT.joinpath(*name.split(".")).with_suffix(".py").read_text())
        for name in modules
        if ROOT.joinpath(*name.split(".")).with_suffix(".py").is_file()
    }
    importers = {
        name: {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        for name, tree in trees.items()
    }
    left_out, found = set(), {name for name in importers if name.endswith(".registry")}
    while found:
        left_out |= found
        used = set().union(*(importers[name] for name in importers if name not in left_out))
        reached = set().union(*(importers.get(name, set()) for name in left_out))
        found = (reached & importers.keys()) - used - left_out
    kept = importers.keys() - left_out
    folders = {name.rpartition(".")[0] for name in left_out}
    return left_out | {name for name in folders if not any(k.startswith(f"{name}.") for k in kept)}


@pytest.mark.slow
@pytest.mark.core
def test_deps_cover_all_that_a_stage_imports(loaded):
    stages = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
    # Told apart by the key's own design: what they hand over is in the key by value.
    outside = {module for name in INTERFACE for module in (name, name.rpartition(".")[0])}
    below = tuple(f"{name}." for name in INTERFACE)
    for stage in stages:
        ours = {
            name
            for name in loaded[stage] - outside
            if name.split(".")[0] in PACKAGES and not name.startswith(below)
        }
        ours -= only_listed(ours)
        files = {ROOT.joinpath(*name.split(".")) for name in ours}
        wanted = {
            str(
                (base / "__init__.py" if base.is_dir() else base.with_suffix(".py")).relative_to(
                    ROOT
                )
            )
            for base in files
        }
        assert wanted <= set(stages[stage]["deps"]), stage


def test_generated_files_are_up_to_date():
    # Of a recipe that was never run here there are none: stock dvc would miss its artifacts.
    recipes = [ROOT, *sorted(path.parent for path in ROOT.glob("recipes/*/dvc.yaml"))]
    for recipe in recipes:
        done = posttrain("compile", "--check", recipe, cwd=ROOT)
        assert done.returncode == 0, done.stderr
