"""What a checkpoint costs the steps around it, written while they wait and in the background.

    python -m benchmarks.learner.checkpoint_cost [--before CHECKOUT] [--json PATH]

Each arm is a process of one thread with the same Llama of 50 million parameters and AdamW's states.
A turn is six steps with a checkpoint after the first, and ends when that is on disk; the arm
`none` saves nothing. Arms take turns, five times in changing order. What a checkpoint costs is the
turn's time above that of `none`; `call` is how long `save` itself holds the step. `--before` adds
an arm of another checkout of posttrain, such as one of an earlier version.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.sampling.machine import described

TURNS, STEPS, TOKENS = 5, 6, 192
ARMS = ("none", "waiting", "background")


def main() -> None:
    """Let the arms take turns, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--before", type=Path, help="another checkout of posttrain")
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.arm:
        take_turns(chosen.arm)
        return
    here = Path.cwd()
    arms = {arm: start(arm, here) for arm in ARMS}
    if chosen.before:
        arms["before"] = start("before", chosen.before.resolve())
    facts = {arm: json.loads(child.stdout.readline()) for arm, child in arms.items()}
    turns: list[dict[str, dict[str, float]]] = []
    for number in range(TURNS):
        order = list(arms)[number % len(arms) :] + list(arms)[: number % len(arms)]
        turns.append({arm: turn(arms[arm]) for arm in order})
    for child in arms.values():
        child.stdin.close()
        child.wait()
    report = {"machine": described(1), "facts": facts["background"], "turns": turns}
    report["summary"] = summary(turns)
    chosen.json.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(json.dumps(report["summary"], indent=1))


def start(arm: str, root: Path) -> "subprocess.Popen[str]":
    """Start an arm with the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, __file__, "--arm", arm],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def turn(child: "subprocess.Popen[str]") -> dict[str, float]:
    """Let an arm take its steps; its seconds."""
    child.stdin.write("go\n")
    child.stdin.flush()
    found: dict[str, float] = json.loads(child.stdout.readline())
    return found


def summary(turns: list[dict[str, dict[str, float]]]) -> dict[str, object]:
    """Medians over the turns; ratios are of what one turn's arms cost."""
    found: dict[str, object] = {}
    arms = [arm for arm in turns[0] if arm != "none"]
    cost = {a: [t[a]["seconds"] - t["none"]["seconds"] for t in turns] for a in arms}
    call = {a: [t[a]["call"] for t in turns] for a in arms}
    for arm in arms:
        found[arm] = {
            "cost_seconds": statistics.median(cost[arm]),
            "call_seconds": statistics.median(call[arm]),
        }
    for base in (a for a in arms if a != "background"):
        pairs = {"cost": cost, "call": call}
        found[f"background / {base}"] = {
            name: statistics.median(
                new / old for new, old in zip(each["background"], each[base], strict=True)
            )
            for name, each in pairs.items()
        }
    found["step_seconds"] = statistics.median(t["none"]["seconds"] / STEPS for t in turns)
    return found


def take_turns(arm: str) -> None:
    """Be an arm: a turn for every line of the input."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from posttrain.learning.models.build_optim import build_optimizer
    from posttrain.learning.models.checkpoint import Checkpointer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16_000,
        hidden_size=640,
        intermediate_size=1_728,
        num_hidden_layers=8,
        num_attention_heads=10,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    optimizer = build_optimizer(model)
    tokens_BT = torch.randint(3, 16_000, (2, TOKENS // 2))

    def step() -> None:
        model(input_ids=tokens_BT, labels=tokens_BT).loss.backward()
        optimizer.step(learning_rate=1e-5, max_grad_norm=1.0)

    with tempfile.TemporaryDirectory() as folder:
        checkpointer = _checkpointer(Checkpointer, arm, Path(folder))
        step()
        facts = {"parameters": sum(p.numel() for p in model.parameters()), "tokens": TOKENS}
        print(json.dumps(facts), flush=True)
        for number, _ in enumerate(sys.stdin, 1):
            started, call = time.perf_counter(), 0.0
            for place in range(STEPS):
                step()
                if place == 0 and arm != "none":
                    saving = time.perf_counter()
                    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    checkpointer.save(number, states)
                    call = time.perf_counter() - saving
            if arm in ("waiting", "background"):
                checkpointer.wait()
            seconds = time.perf_counter() - started
            print(json.dumps({"seconds": seconds, "call": call}), flush=True)


def _checkpointer(kind: type, arm: str, folder: Path) -> object:
    """One that writes as the arm does; an earlier version had no choice."""
    if arm == "before":
        return kind(folder, every=1)
    from posttrain.learning.models.checkpoints_config import CheckpointsConfig

    config = CheckpointsConfig(in_background=arm == "background")
    return kind(folder, every=1, config=config)


if __name__ == "__main__":
    main()
