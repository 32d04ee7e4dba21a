"""The README's promise, kept in a fresh clone: two commands, and what the default recipe shows."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
core = pytest.mark.core

HERE = Path(sys.prefix)

# Every stage for a moment: what is tested with these is not what is learned.
SHORT = (
    "synthesize.num_problems=400",
    "synthesize.num_heldout=16",
    "pretrain.steps=500",
    "sft.steps=8",
    "probe.num_problems=200",
    "rl.steps=30",
    "rl.problems_per_step=8",
    "rl.checkpoint_every=5",
    "evaluate.num_samples=2",
    "evaluate.pass_at=[1,2]",
)


@dataclass
class Clone:
    """A clone of this repository, and an environment that runs the clone's own code."""

    root: Path
    venv: Path

    def command(self, *arguments, check=True, **options):
        """Run a program of the environment in the clone, on two cores."""
        env = {**os.environ, "PATH": f"{self.venv / 'bin'}:{os.environ['PATH']}"}
        env.pop("PYTHONPATH", None)
        done = subprocess.run(
            arguments,
            cwd=self.root,
            check=False,
            text=True,
            capture_output=True,
            env=env,
            **options,
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    def posttrain(self, *arguments, check=True):
        """`posttrain ...` on the clone's own code."""
        return self.command("python", "-m", "posttrain", *arguments, check=check)

    def run_short(self, *arguments, seed=0):
        """The shortened recipe."""
        sets = [word for item in (*SHORT, f"run.seed={seed}") for word in ("--set", item)]
        return self.posttrain("run", *sets, *arguments)

    def report(self):
        """The evaluation report by policy."""
        report = json.loads((self.root / "data/evaluate/report.json").read_text())
        return {policy["name"]: policy for policy in report["policies"]}

    def digests(self):
        """Digest of every artifact of the last run, by path."""
        lock = self.root / "dvc.lock"
        lines = lock.read_text().splitlines()
        paths = [line.split("path:")[1].strip() for line in lines if "path: data/" in line]
        hashes = [line.split("md5:")[1].strip() for line in lines if "    md5:" in line]
        assert paths
        return lines, hashes


def fresh_clone(folder, venv=None):
    """Clone the committed tree; nothing else of this checkout comes along."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    return Clone(folder, venv or folder / ".venv")


@pytest.fixture(scope="session")
def main_job(tmp_path_factory):
    """`make run` in a fresh clone with nothing installed."""
    clone = fresh_clone(tmp_path_factory.mktemp("fresh") / "clone")
    done = clone.command("make", "run", preexec_fn=on_two_cores)
    clone.output = done.stdout + done.stderr
    return clone


def on_two_cores():
    """Let a process and its children use two of this machine's cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


@pytest.fixture
def clone(tmp_path):
    """A fresh clone that runs in the environment of these tests."""
    return fresh_clone(tmp_path / "clone", HERE)


@pytest.fixture
def other_clone(tmp_path):
    """A second one."""
    return fresh_clone(tmp_path / "other", HERE)


def at(policy, k):
    return next(item for item in policy["pass_at"] if item["k"] == k)


def check_learning(report):
    """SFT beats base, RL beats SFT by 15 points with disjoint intervals, best-of-8 by 5."""
    base, sft, rl = (at(report[name], 1) for name in ("base", "sft", "rl"))
    assert sft["value"] > base["value"]
    assert rl["value"] >= sft["value"] + 0.15
    assert rl["low"] > sft["high"]
    best_of_8 = next(item for item in report["sft"]["best_of"] if item["k"] == 8)
    assert best_of_8["value"] >= sft["value"] + 0.05


@core
def test_the_default_recipe_learns(main_job):
    check_learning(main_job.report())
    assert "pass@1" in main_job.output


@core
def test_the_report_page_is_whole_and_needs_no_network(main_job):
    page = (main_job.root / "report.html").read_text()
    assert "<html" in page
    assert 'src="http' not in page
    assert 'href="http' not in page.split("<body")[0]


@core
def test_a_second_run_does_nothing_and_imports_nothing_heavy(main_job):
    again = main_job.command("python", "-X", "importtime", "-m", "posttrain", "run")
    assert "Everything is up to date" in again.stderr
    imported = {line.split("|")[-1].strip() for line in again.stderr.splitlines()}
    assert "posttrain.cli.summary" in imported
    assert not imported & {"prefect", "mlflow", "torch", "transformers", "dvc.repo"}


@core
def test_a_changed_learning_rate_concerns_rl_and_evaluate_alone(main_job):
    plan = main_job.posttrain("plan", "--set", "rl.optimization.learning_rate=0.00012").stdout
    actions = {line.split()[0]: line for line in plan.splitlines() if line.strip()}
    assert " run " in actions["rl"]
    assert " maybe " in actions["evaluate"]
    for stage in ("synthesize", "curate", "pretrain", "sft", "probe", "reward"):
        assert "up to date" in actions[stage]


@core
def test_stock_dvc_agrees_and_restores(main_job):
    status = main_job.command("dvc", "status").stdout
    assert "Data and pipelines are up to date" in status
    repro = main_job.command("dvc", "repro").stdout
    assert "Running stage" not in repro
    before = (main_job.root / "data/rl/policy/model.safetensors").read_bytes()
    for stage in (main_job.root / "data").iterdir():
        if stage.is_dir():
            shutil.rmtree(stage)
    main_job.command("dvc", "checkout")
    assert (main_job.root / "data/rl/policy/model.safetensors").read_bytes() == before
    assert "Everything is up to date" in main_job.posttrain("run").stderr


@core
def test_the_released_policy_loads_with_plain_transformers(main_job):
    code = (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "model = AutoModelForCausalLM.from_pretrained('data/rl/policy')\n"
        "tokenizer = AutoTokenizer.from_pretrained('data/rl/policy')\n"
        "assert model.config.vocab_size >= len(tokenizer) > 10\n"
    )
    main_job.command("python", "-c", code)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_other_seeds_learn_as_much(clone, seed):
    clone.posttrain("run", "--set", f"run.seed={seed}")
    check_learning(clone.report())


def test_two_clean_clones_make_identical_artifacts(clone, other_clone):
    clone.run_short()
    other_clone.run_short("--local")
    assert clone.digests() == other_clone.digests()


def test_kill_9_during_rl_then_run_again_ends_with_the_same_digests(clone, other_clone):
    other_clone.run_short("--local")
    sets = [word for item in (*SHORT, "run.seed=0") for word in ("--set", item)]
    command = [clone.venv / "bin/python", "-m", "posttrain", "run", "--local", *sets]
    process = subprocess.Popen(command, cwd=clone.root, stderr=subprocess.DEVNULL)
    scratch = clone.root / ".posttrain/scratch"
    # A finished one: a draft that the kill tears is rightly not resumed from.
    while not list(scratch.glob("*-rl-*/checkpoints/step-*")):
        assert process.poll() is None, "the run ended before rl wrote a checkpoint"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    clone.run_short("--local")
    logs = "".join(path.read_text() for path in clone.root.glob(".posttrain/runs/*/rl.log"))
    assert "resuming after step" in logs
    assert clone.digests() == other_clone.digests()


def test_its_release_rebuilds_to_equal_digests(clone, tmp_path):
    """The recipe with three evaluations for its gates, a release, and that made again elsewhere."""
    project, keys, again = clone.root, tmp_path / "keys", tmp_path / "again"
    env = {**os.environ, "POSTTRAIN_TRACKING": "off", "POSTTRAIN_KEYS": str(keys)}
    env.pop("PYTHONPATH", None)

    def call(*arguments):
        done = subprocess.run(
            arguments, cwd=project, env=env, check=False, text=True, capture_output=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def posttrain(*arguments):
        return call(sys.executable, "-m", "posttrain", *arguments)

    posttrain("run", "--local")
    for seed in (1, 2):
        posttrain("run", "--only", "evaluate", "--local", "--set", f"run.seed={seed}")
    posttrain("run", "--local")
    call("git", "config", "user.name", "test")
    call("git", "config", "user.email", "test@example.org")
    # A run may leave generated files that say more than the committed ones.
    call("git", "commit", "-q", "-a", "--allow-empty", "-m", "run")
    posttrain("release", "keys", "init")
    posttrain("release", "create", "default@v1.0.0")
    posttrain("release", "verify", "default@v1.0.0", "--packages")
    said = posttrain("release", "rebuild", "default@v1.0.0", "--into", str(again))
    assert "Rebuilt at level L0" in said
    for package in ("posttrain", "tasks", "flows"):
        assert (again / package / "__init__.py").is_file()
    report = json.loads((again / "rebuild.json").read_text())
    compared = {each["stage"] for each in report["comparisons"] if each["how"] == "digest"}
    assert compared == {
        *("synthesize", "curate", "pretrain", "sft", "probe", "reward", "rl", "evaluate")
    }
    assert all(each["agrees"] and each["binding"] for each in report["comparisons"])


def test_gsm8k_passes_through_synthesize_and_curate(clone):
    source = ROOT.parent / "shared/data/gsm8k"
    if not source.is_dir():
        pytest.skip("the GSM8K files are not beside the checkout")
    recipe = clone.root / "recipes/gsm8k-rows"
    recipe.mkdir(parents=True)
    columns = "{prompt: question, answer: answer, solution: answer}"
    lines = [
        "flow: flows.post_training",
        "synthesize:",
        "  sources:",
        f"    - {{kind: jsonl, name: gsm8k, path: {source / 'train.jsonl'}, columns: {columns},",
        "       verifier: numeric}",
        "  heldout_fraction: 0.1",
    ]
    (recipe / "recipe.yaml").write_text("\n".join(lines) + "\n")
    for stage in ("synthesize", "curate"):
        clone.posttrain("run", str(recipe), "--only", stage, "--local")
    report = json.loads((recipe / "data/curate/report.json").read_text())
    assert report
