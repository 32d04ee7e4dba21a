"""More than one process, and a cluster, cost nothing where a recipe asks for neither."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OURS = ("ray", "posttrain.backends.cluster", "posttrain.learning.models.distributed")
TORCHS = tuple(f"torch.distributed.{part}" for part in ("fsdp", "elastic", "launcher", "run"))
STAGES = """
import tasks.curate.stage, tasks.evaluate.stage, tasks.import_model.stage, tasks.preference.stage
import tasks.pretrain.stage, tasks.probe.stage, tasks.reward.stage, tasks.rl.stage, tasks.sft.stage
from posttrain.learning.rollouts.scoring import verifying
from posttrain.data.filters.parallel import IN_PROCESS, parallel_over
with parallel_over(None) as parallel, verifying(None): assert parallel is IN_PROCESS
"""


def modules_after(program, folder):
    """Names of the modules that a process of its own has at its end."""
    told = "import atexit, json, sys\natexit.register(lambda: print(json.dumps([*sys.modules])))\n"
    done = subprocess.run(
        [sys.executable, "-c", told + program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def among(modules, names):
    return {m for m in modules if any(m == name or m.startswith(f"{name}.") for name in names)}


def command(*arguments):
    return (
        f"sys.argv = ['posttrain', *{arguments}]\n"
        "import runpy\n"
        "runpy.run_module('posttrain', run_name='__main__')"
    )


@pytest.mark.slow
def test_the_plan_of_the_default_recipe_imports_none_of_it(toy):
    (toy.root / "default").mkdir()
    shutil.copy(ROOT / "recipe.yaml", toy.root / "default")
    modules = modules_after(command("plan", "default"), toy.root)
    assert "posttrain.learning.rl.config" in modules
    assert among(modules, (*OURS, *TORCHS)) == set()


@pytest.mark.slow
def test_a_run_imports_none_of_it(toy):
    modules = modules_after(command("run", "--local"), toy.root)
    assert (toy.root / "data/third/result.json").is_file()
    assert among(modules, (*OURS, *TORCHS)) == set()


@pytest.mark.slow
def test_stages_import_no_more_of_it_than_transformers_does():
    """It imports sharding by itself, whoever asks for a model."""
    noted = "import transformers.models.llama.modeling_llama\nplain = set(sys.modules)\n"
    left = f"for name in plain & {{n for n in sys.modules if n.startswith({TORCHS})}}:"
    modules = modules_after(f"{noted}{STAGES}\n{left} del sys.modules[name]\n", ROOT)
    assert "posttrain.learning.rl.learner" in modules
    assert among(modules, (*OURS, *TORCHS)) == set()
