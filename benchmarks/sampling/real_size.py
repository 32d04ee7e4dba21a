"""Tokens a second at 50 million parameters: the torch engine, `generate`, and vLLM where it is.

    OMP_NUM_THREADS=1 .venv-engines/bin/python -m benchmarks.sampling.real_size --out real_size.json

The 50m size of `benchmarks.learner.settings`: a random Qwen2 whose answers never end before their
limit, groups of eight after prompts of 64 tokens, in float32. Contestants take turns as in
`benchmarks.sampling.throughput`; `generate` is what TRL draws with where it has no vLLM. The table
has the time of the processor, as one thread needs it whatever else the machine does.
"""

import argparse
import json
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console

from benchmarks.learner.settings import SIZES, SPECIAL, save
from benchmarks.sampling.contestants import generate, torch_engine, vllm_engine
from benchmarks.sampling.machine import described
from benchmarks.sampling.throughput import measure, table
from posttrain.learning.models.load import load_policy
from posttrain.learning.rollouts.engines.base import Prompt

GROUP = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="50m")
    parser.add_argument("--problems", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    size = SIZES[chosen.size]
    words = [*SPECIAL, *(f"w{i}" for i in range(size.vocabulary - len(SPECIAL)))]
    with TemporaryDirectory() as folder:
        save(Path(folder), size, words, never_ends=True)
        policy = load_policy(Path(folder))
    generator = torch.Generator().manual_seed(1)
    shape = (max(chosen.problems), size.prompt)
    rows = torch.randint(len(SPECIAL), size.vocabulary, shape, generator=generator).tolist()
    prompts = [Prompt(str(place), tuple(ids)) for place, ids in enumerate(rows)]
    contestants = {
        "torch": torch_engine(policy, size.new_tokens),
        "generate": generate(policy, size.new_tokens),
    }
    if find_spec("vllm"):
        contestants["vllm"] = vllm_engine(policy, size.new_tokens)
    report = {"machine": described(1), "size": chosen.size, "results": []}
    for problems in chosen.problems:
        found = measure(contestants, prompts[:problems], GROUP, chosen.repeats, exact=False)
        report["results"].append(found)
        Console().print(table(found, "processor_seconds"))
        if chosen.out:
            chosen.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
