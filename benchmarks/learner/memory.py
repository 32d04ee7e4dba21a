"""Peak memory of token log-probabilities, forward and backward, beside the naive way.

    python benchmarks/learner/memory.py [--vocabulary 150000] [--tokens 1024] [--json PATH]

Every measurement is a child process of its own: the model is made, the kernel's high-water mark is
reset, one forward and backward pass runs, and the mark above what was there before is reported.
Naive is `model(ids).logits`, `log_softmax`, `gather`; both ways must give one loss and gradient.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

ROWS, HIDDEN = 2, 128
KINDS = ("naive", "chunked")


def main() -> None:
    """Measure every case, or one of them where this is the child."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vocabulary", type=int, default=150_000)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("memory.json"))
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.case:
        kind, entropy = chosen.case
        found = measure(chosen.vocabulary, chosen.tokens, kind, entropy == "entropy")
        print(json.dumps(found))
        return
    cases = []
    for entropy in ("plain", "entropy"):
        for kind in KINDS:
            command = [sys.executable, __file__, "--case", kind, entropy]
            command += ["--vocabulary", str(chosen.vocabulary), "--tokens", str(chosen.tokens)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            cases.append(json.loads(done.stdout.splitlines()[-1]))
    report = {"vocabulary": chosen.vocabulary, "tokens": chosen.tokens, "cases": cases}
    chosen.json.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(table(report))


def measure(
    vocabulary: int, tokens: int, kind: str, entropy: bool
) -> dict[str, float | str | bool]:
    """Peak bytes of one forward and backward pass above what stood before it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=HIDDEN,
            intermediate_size=HIDDEN,
            num_hidden_layers=1,
            num_attention_heads=2,
            tie_word_embeddings=True,
        )
    )
    ids = torch.randint(vocabulary, (ROWS, tokens // ROWS))
    before = reset_peak()
    loss, bonus = (naive if kind == "naive" else chunked)(model, ids, entropy)
    loss.backward()
    peak = status("VmHWM") - before
    gradient = model.get_input_embeddings().weight.grad
    return {
        "kind": kind,
        "entropy": entropy,
        "peak_mib": round(peak / 2**20, 1),
        "loss": float(loss),
        "mean_entropy": bonus,
        "gradient_norm": float(gradient.norm()),
    }


def naive(model: torch.nn.Module, ids: Tensor, entropy: bool) -> tuple[Tensor, float]:
    """All logits at once."""
    logprobs = model(input_ids=ids, use_cache=False).logits[:, :-1].float().log_softmax(-1)
    taken = logprobs.gather(-1, ids[:, 1:, None])[..., 0]
    bonus = 0.0
    if entropy:
        with torch.no_grad():
            bonus = float(-(logprobs.exp() * logprobs).sum(-1).mean())
    return -taken.mean(), bonus


def chunked(model: torch.nn.Module, ids: Tensor, entropy: bool) -> tuple[Tensor, float]:
    """As every stage does it."""
    from posttrain.learning.models.logprobs import wanted_logprobs

    wanted = torch.ones_like(ids, dtype=torch.bool)
    wanted[:, 0] = False
    taken, bonus = wanted_logprobs(model, ids, wanted_BT=wanted, with_entropy=entropy)
    return -taken.mean(), 0.0 if bonus is None else float(bonus.mean())


def reset_peak() -> int:
    """Set the high-water mark of this process to what it holds now; returns that, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(name: str) -> int:
    """A field of /proc/self/status in bytes."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found.group(1)) * 1024


def table(report: dict) -> str:
    """The cases side by side, and whether both ways computed the same."""
    by_case = {(case["kind"], case["entropy"]): case for case in report["cases"]}
    lines = [
        f"V = {report['vocabulary']}, {report['tokens']} tokens, forward and backward, float32",
        "",
        "| | naive, MiB | chunked, MiB | chunked / naive |",
        "|---|---|---|---|",
    ]
    for entropy in (False, True):
        one, other = (by_case[(kind, entropy)] for kind in KINDS)
        for name in ("loss", "mean_entropy", "gradient_norm"):
            assert abs(one[name] - other[name]) <= 1e-4 * max(1.0, abs(one[name])), name
        label = "with entropy" if entropy else "log-probabilities"
        share = other["peak_mib"] / one["peak_mib"]
        lines.append(f"| {label} | {one['peak_mib']} | {other['peak_mib']} | {share:.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
