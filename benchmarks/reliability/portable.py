"""Do processors of several kinds come to equal bytes? All stages of the recipe, in miniature.

    python -m benchmarks.reliability.portable                       this processor and six emulated
    python -m benchmarks.reliability.portable --processors EPYC     this one and one emulated
    python -m benchmarks.reliability.portable --reference           the digest that others must meet

Each processor runs every stage of `recipe.yaml` with a few steps, in a process of its own, once
with portable kernels and once with fast ones; what the stages made is hashed. Others than this
one are emulated by `qemu-x86_64-static` (Debian's package qemu-user-static, version 7.2 or newer:
older ones have no AVX2), some hundred times slower. It emulates no AVX-512.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, cast

from posttrain.stage.hashing import sha256_of_json
from posttrain.stage.kernels import Kernels, kernel_environment

ROOT = Path(__file__).resolve().parents[2]
EMULATOR = "qemu-x86_64-static"
PROCESSORS = ("Haswell", "Broadwell", "Skylake-Client", "EPYC", "EPYC-Rome", "EPYC-Milan")
MINIATURE = (
    "synthesize.num_problems=60",
    "synthesize.num_heldout=4",
    "pretrain.steps=3",
    "pretrain.batch_tokens=512",
    "sft.steps=2",
    "sft.batch_tokens=512",
    "probe.num_problems=8",
    "probe.max_tokens=12",
    "rl.steps=2",
    # A policy this young solves nothing: what moves it is its own entropy.
    "rl.draw={train_on: all, sampler: {kind: uniform}}",
    "rl.algorithm.regularizers={undecided: {kind: entropy, coefficient: 0.1, place: loss}}",
    "rl.problems_per_step=4",
    "rl.group_size=4",
    "rl.max_tokens=12",
    "evaluate.max_tokens=12",
    "evaluate.num_samples=2",
    "evaluate.pass_at=[1]",
)


class Made(NamedTuple):
    """What one process made: a digest of all of it, and one for each artifact."""

    processor: str
    kernels: str
    bound: dict[str, str]
    digests: dict[str, str]

    @property
    def digest(self) -> str:
        return sha256_of_json(self.digests)[:16]


def main() -> None:
    options = _options()
    if options.here:
        print(json.dumps(_make_here(options.here)))
        return
    reference = _make("this processor", "portable")
    print(f"{reference.digest}  portable, {reference.bound['processor']}")
    if options.reference:
        return
    if shutil.which(EMULATOR) is None:
        raise SystemExit(f"{EMULATOR} is not installed; with --reference none is emulated")
    wanted = [(name, kernels) for kernels in ("portable", "fast") for name in options.processors]
    with ThreadPoolExecutor(options.at_once) as pool:
        made = [reference, _make("this processor", "fast")]
        for each in pool.map(lambda given: _make(*given), wanted):
            print(f"{each.digest}  {each.kernels}, {each.processor}", flush=True)
            made.append(each)
    _print_table(made)
    if len({each.digest for each in made if each.kernels == "portable"}) > 1:
        raise SystemExit("portable kernels came to different bytes")


def _print_table(made: list[Made]) -> None:
    print("\n| processor | kernels | torch, MKL | digest of all artifacts |\n|---|---|---|---|")
    for each in made:
        taken = f"{each.bound['torch']}, {each.bound['mkl']}"
        print(f"| {each.processor} | {each.kernels} | {taken} | {each.digest} |")
    for kernels in ("portable", "fast"):
        chosen = [each for each in made if each.kernels == kernels]
        differing = [
            name for name in chosen[0].digests if len({each.digests[name] for each in chosen}) > 1
        ]
        said = f"differ in {', '.join(differing)}" if differing else "come to equal bytes"
        print(f"\n{kernels}: {len(chosen)} processors {said}")


def _make(processor: str, kernels: str) -> Made:
    """Run the miniature in a process of its own, emulated unless it is on this processor."""
    command = [sys.executable, "-m", "benchmarks.reliability.portable", "--here", kernels]
    if processor != "this processor":
        command = [EMULATOR, "-cpu", processor, *command]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
    # A virtual environment is found by the name of its interpreter, which the emulator hides.
    paths = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    environment = {**os.environ, **threads, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    environment |= kernel_environment(cast("Kernels", kernels))
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{processor}, {kernels}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Made(processor, kernels, found["bound"], found["digests"])


def _make_here(kernels: Kernels) -> dict[str, object]:
    """Run every stage in this process, in a temporary folder."""
    from posttrain.provenance.circumstances import circumstances_here
    from posttrain.stage.hashing import digest_path

    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for each in run_stages(Path(folder), MINIATURE, kernels):
            digests |= {
                str(path.relative_to(folder)): digest_path(path).sha256 for path in each.outputs
            }
    return {"bound": circumstances_here(), "digests": digests}


class StageDone(NamedTuple):
    """A stage of the recipe that ran in this process, and its seconds by the processor."""

    name: str
    outputs: tuple[Path, ...]
    seconds: float


def run_stages(folder: Path, overrides: Sequence[str], kernels: Kernels) -> Iterator[StageDone]:
    """Run the stages of the default recipe, without ledger and cache, one after the other.

    Args:
        folder: Takes what they make.
        overrides: Parameters, as of `posttrain run --set`.
        kernels: That all are bound to.

    Yields:
        Each stage but the reward model, for which a young policy gives no pairs.

    """
    from posttrain.pipeline.execution.assignment import Assignment
    from posttrain.pipeline.execution.call import perform, set_up
    from posttrain.pipeline.recipe import load_recipe
    from posttrain.stage.seeds import derived_seed

    recipe = load_recipe(ROOT, overrides)
    dag = recipe.resolve(ROOT)
    for name in (name for name in dag.order() if name != "reward"):
        stage = dag.stages[name]
        outputs = {role: Path(folder, path) for role, path in stage.outputs().items()}
        for path in outputs.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(folder, "scratch", name)
        scratch.mkdir(parents=True)
        assignment = Assignment(
            stage=name,
            entry=stage.task.entry,
            config=stage.config,
            inputs={
                role: ref.path
                or Path(folder, dag.stages[str(ref.stage)].outputs()[str(ref.output)])
                for role, ref in stage.inputs.items()
                if ref.stage != "reward"
            },
            outputs=outputs,
            types={role: port.type for role, port in stage.task.outputs.items()},
            scratch=scratch,
            log=scratch / "log",
            seed=derived_seed(recipe.run.seed, name),
            threads=1,
            device="cpu",
            kernels=kernels,
        )
        set_up(assignment)
        began = time.process_time()
        perform(assignment, lambda event: None)
        yield StageDone(name, tuple(outputs.values()), time.process_time() - began)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processors", nargs="+", default=list(PROCESSORS), metavar="NAME")
    parser.add_argument("--at-once", type=int, default=2, help="emulated at the same time")
    parser.add_argument("--reference", action="store_true", help="this processor alone")
    parser.add_argument("--here", choices=("portable", "fast"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
