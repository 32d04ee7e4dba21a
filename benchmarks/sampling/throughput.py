"""Tokens a second: this package's torch engine, transformers' generate, and vLLM where it is.

    python -m benchmarks.sampling.throughput --policy data/sft/policy --out throughput.json

The contestants take turns within each repeat, so that a busy machine slows them all; medians and
the fastest are reported. All decode the same prompts greedily with one sample each, and must give
the same tokens; then groups of eight are drawn at temperature 1, as reinforcement learning does,
where every engine draws its own and tokens a second are compared. Prompts are made ready before the
clock starts; what an engine does to give token ids back counts.

vLLM takes part with `--wide-heads`, in the environment of `make test-engines`: the default model's
heads are 16 wide, and its CPU build knows none below 32. The same weights, read as half as many
heads of twice the width, cost the same and say other things.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.sampling.contestants import (
    Drawn,
    generate,
    torch_engine,
    vllm_engine,
    with_wide_heads,
)
from benchmarks.sampling.machine import described
from posttrain.learning.models.load import load_policy
from posttrain.learning.rollouts.engines.base import Prompt
from posttrain.learning.rollouts.scoring import make_prompts, read_problems

Contestant = Callable[[Sequence[Prompt], int, bool], Drawn]
GROUP = 8


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[options.dtype]
    policy = load_policy(options.policy, device=options.device, dtype=dtype)
    if options.wide_heads:
        policy = with_wide_heads(policy)
    problems = read_problems(options.problems)
    prompts = make_prompts(policy.tokenizer, problems)
    # The table is ordered by source and length.
    random.Random(0).shuffle(prompts)
    contestants = {
        "torch": torch_engine(policy, options.max_tokens),
        "generate": generate(policy, options.max_tokens),
    }
    if find_spec("vllm") and options.wide_heads:
        contestants["vllm"] = vllm_engine(policy, options.max_tokens)
    results = []
    for batch in options.batches:
        for group in (1, GROUP):
            if batch >= group and batch // group <= len(prompts):
                chosen = prompts[: batch // group]
                exact = dtype is torch.float32
                results.append(measure(contestants, chosen, group, options.repeats, exact=exact))
                Console().print(table(results[-1]))
    if options.out:
        report = {"machine": described(options.threads), "policy": str(options.policy)}
        report |= {"device": options.device, "dtype": options.dtype}
        report |= {"wide_heads": options.wide_heads, "repeats": options.repeats, "results": results}
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def measure(
    contestants: dict[str, Contestant],
    prompts: Sequence[Prompt],
    group: int,
    repeats: int,
    *,
    exact: bool,
) -> dict[str, object]:
    """One warm-up, which checks the answers, then `repeats` rounds of all in turn.

    In bfloat16 greedy tokens differ where two are as good as equally likely, and what is drawn
    differs with the engine's random numbers: how many completions are the torch engine's is part of
    the result.
    """
    first = {name: run(prompts, group, group == 1) for name, run in contestants.items()}
    for name, drawn in first.items():
        assert all(drawn), f"{name}: an empty completion"
        if group == 1 and exact:
            assert drawn == first["torch"], f"{name} and torch differ"
    same = {
        name: sum(map(list.__eq__, drawn, first["torch"])) / len(drawn)
        for name, drawn in first.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    processor: dict[str, list[float]] = {name: [] for name in contestants}
    tokens: dict[str, int] = {}
    for _ in range(repeats):
        for name, run in contestants.items():
            started, used = time.perf_counter(), time.process_time()
            drawn = run(prompts, group, group == 1)
            seconds[name].append(time.perf_counter() - started)
            processor[name].append(time.process_time() - used)
            tokens[name] = sum(map(len, drawn))
            repeats_itself = tokens[name] == sum(map(len, first[name]))
            assert repeats_itself or name == "generate", f"{name}: another number of tokens"
    result = {"prompts": len(prompts), "group": group, "tokens": tokens, "seconds": seconds}
    return result | {"processor_seconds": processor, "same_completions": same}


def table(result: dict, clock: str = "seconds") -> Table:
    """Medians by one of the result's clocks, `seconds` or `processor_seconds`."""
    rows = result["prompts"] * result["group"]
    kind = "greedy, one each" if result["group"] == 1 else f"drawn, {result['group']} each"
    table = Table(title=f"{rows} rows: {kind}", title_justify="left")
    for column in ("", "tokens", "median s", "fastest s", "tokens/s", "torch is faster by"):
        table.add_column(column, justify="right" if column else "left")
    ours = result[clock]["torch"]
    for name, seconds in result[clock].items():
        tokens = result["tokens"][name]
        # Per token, as draws differ; pair by pair, as the machine's load does.
        per_token = result["tokens"]["torch"] / tokens
        pairs = [per_token * theirs / mine for theirs, mine in zip(seconds, ours, strict=True)]
        table.add_row(
            name,
            str(tokens),
            f"{statistics.median(seconds):.3f}",
            f"{min(seconds):.3f}",
            f"{tokens / statistics.median(seconds):,.0f}",
            f"{statistics.median(pairs):.2f}",
        )
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, default=Path("data/sft/policy"))
    parser.add_argument("--problems", type=Path, default=Path("data/synthesize/problems.parquet"))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 256, 1024])
    parser.add_argument("--max-tokens", type=int, default=72)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument(
        "--wide-heads",
        action="store_true",
        help="read the policy's weights as heads of 32, the narrowest of vLLM's CPU build",
    )
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
