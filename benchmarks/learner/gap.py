"""How far the engine's log-probabilities lie from the trainer's, by how both of them compute.

    python -m benchmarks.learner.gap [--size 100m] [--out benchmarks/learner/gap.json]
    .venv-engines/bin/python -m benchmarks.learner.gap --engine vllm

A random Qwen2 draws short rows, and the trainer says what it makes of the drawn tokens, in float32,
under bfloat16 autocast, or with weights that are bfloat16 themselves. The rows are drawn by one of
the engines; the file keeps those of the other, which another environment has. A random
model is nearly uniform, which hides what rounding does to logits: with `sharp` above 1 the final
norm is multiplied by it, so that the entropy is that of a model that has learned something.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.learner.settings import PAD, SIZES, SPECIAL, save
from benchmarks.sampling.machine import described
from posttrain.data.rows import TokenRow, TokenTable
from posttrain.learning.maths.ratios import log_ratio
from posttrain.learning.models.load import Policy, load_policy
from posttrain.learning.models.logprobs import token_statistics
from posttrain.learning.rl.gap import token_gap
from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.kinds.vllm import VllmEngine
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine

PROMPTS, GROUP, PROMPT_TOKENS = 8, 4, 12
GSPO_RANGE = (-3e-4, 4e-4)
CASES = {
    "torch": {
        "fp32": ("fp32", "fp32"),
        "learner.precision bf16": ("fp32", "bf16"),
        "both under autocast": ("bf16", "bf16"),
        "bf16 weights, head rounded": ("narrow", "narrow"),
        "bf16 weights, head in fp32": ("narrow, wide head", "narrow, wide head"),
        "fp32, trainer's weights 2% off": ("fp32", "moved"),
    },
    "vllm": {
        "vLLM fp32, trainer fp32": ("float32", "fp32"),
        "vLLM fp32, learner.precision bf16": ("float32", "bf16"),
        "vLLM bf16, trainer fp32": ("bfloat16", "fp32"),
        "vLLM bf16, learner.precision bf16": ("bfloat16", "bf16"),
        "vLLM bf16, trainer bf16 weights": ("bfloat16", "narrow"),
    },
}
"""By engine: how it computes, and how the trainer does; torch's last is what the alarm is for."""


def main() -> None:
    """Measure every case of an engine, and write figures and table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", choices=CASES, default="torch")
    parser.add_argument("--size", choices=SIZES, default="100m")
    parser.add_argument("--sharp", type=float, nargs="+", default=[1.0, 6.0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("gap.json"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    cases = [
        found for sharp in chosen.sharp for found in measured(chosen.engine, chosen.size, sharp)
    ]
    before = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    engines = before["engines"] if before.get("size") == chosen.size else {}
    engines[chosen.engine] = {"machine": described(1), "cases": cases}
    report = {"size": chosen.size, "engines": engines}
    chosen.out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(table([case for each in engines.values() for case in each["cases"]]))


def measured(engine: str, name: str, sharp: float) -> list[dict[str, Any]]:
    """Draw and hold, case by case, from one model."""
    size = SIZES[name]
    words = [*SPECIAL, *(f"w{i}" for i in range(size.vocabulary - len(SPECIAL)))]
    found = []
    with TemporaryDirectory() as folder:
        save(Path(folder), size, words, never_ends=True)
        for case, (drawing, learning) in CASES[engine].items():
            policy = load_policy(Path(folder))
            policy.model.get_parameter("model.norm.weight").data.mul_(sharp)
            generator = torch.Generator().manual_seed(1)
            rows = torch.randint(len(SPECIAL), 64, (PROMPTS, PROMPT_TOKENS), generator=generator)
            prompts = [Prompt(str(place), tuple(ids)) for place, ids in enumerate(rows.tolist())]
            params = SamplingParams(max_tokens=size.new_tokens, num_samples=GROUP, seed=0)
            samples = DRAWN_BY[engine](policy, drawing, prompts, params)
            figures = held(policy, prompts, samples, learning)
            found.append({"case": case, "sharp": sharp} | figures)
    return found


def drawn_by_torch(
    policy: Policy, drawing: str, prompts: Sequence[Prompt], params: SamplingParams
) -> list[Sample]:
    """Samples of the torch engine, in the precision of a case."""
    narrowed(policy, drawing)
    with computing(drawing):
        return TorchRolloutEngine(policy.model, policy.tokenizer).sample(prompts, params)


def drawn_by_vllm(
    policy: Policy, drawing: str, prompts: Sequence[Prompt], params: SamplingParams
) -> list[Sample]:
    """Samples of vLLM, whose copy of the weights is of the number format of a case."""
    settings = VllmEngine(dtype=drawing, max_num_seqs=PROMPTS * GROUP, kv_cache_gib=0.5)
    with open_engine(settings, policy) as engine:
        return engine.sample(prompts, params)


DRAWN_BY = {"torch": drawn_by_torch, "vllm": drawn_by_vllm}


def held(
    policy: Policy, prompts: Sequence[Prompt], samples: Sequence[Sample], learning: str
) -> dict[str, float]:
    """Figures of one case: the engine against the trainer, and the trainer against itself."""
    narrowed(policy, learning)
    if learning == "moved":
        moved(policy)
    pad = int(policy.tokenizer.convert_tokens_to_ids(PAD))
    together = trained(policy, prompts, samples, learning, pad, rows=len(samples))
    by_two = trained(policy, prompts, samples, learning, pad, rows=2, wider=7)
    drawn = torch.tensor([sample.logprobs for sample in samples])
    mask = torch.ones_like(drawn, dtype=torch.bool)
    return {
        "entropy": float(-drawn.mean()),
        **{key: float(value) for key, value in token_gap(together, drawn, mask).items()},
        "beyond_gspo": beyond(together, drawn),
        "other_batch": float((together - by_two).abs().mean()),
        "other_batch_beyond_gspo": beyond(together, by_two),
    }


def trained(
    policy: Policy,
    prompts: Sequence[Prompt],
    samples: Sequence[Sample],
    learning: str,
    pad: int,
    *,
    rows: int,
    wider: int = 0,
) -> Tensor:
    """The trainer's log-probabilities of the drawn tokens, so many rows at a time.

    With `wider` a row that is longer by so many tokens goes along, and the others are padded.
    """
    starts = {prompt.id: prompt.token_ids for prompt in prompts}
    whole = [
        TokenRow((*starts[sample.prompt_id], *sample.token_ids), start=PROMPT_TOKENS)
        for sample in samples
    ]
    longest = TokenRow((*whole[0].ids, *whole[0].ids[:wider]), start=PROMPT_TOKENS)
    lines = TokenTable([*whole, longest], pad=pad)
    parts = []
    for begin in range(0, len(whole), rows):
        places = [*range(begin, min(begin + rows, len(whole))), *([len(whole)] if wider else [])]
        batch = lines.batch(places)
        with torch.no_grad(), computing(learning):
            found = token_statistics(policy.model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        width = len(whole[0].ids)
        kept = len(places) - bool(wider)
        parts.append(found.logprobs_BT[:kept, PROMPT_TOKENS:width])
    return torch.cat(parts)


def moved(policy: Policy) -> None:
    """Multiply weights by 1 with a deviation of 0.02, as of an engine that has old ones."""
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1 + 0.02 * torch.randn_like(parameter))


def beyond(one: Tensor, other: Tensor) -> float:
    """Share of answers whose ratio alone would be clipped in GSPO's range."""
    mask = torch.ones_like(one, dtype=torch.bool)
    ratio = log_ratio(one, other, mask_BT=mask, level="sequence_mean")[:, 0].expm1()
    return float(((ratio < GSPO_RANGE[0]) | (ratio > GSPO_RANGE[1])).double().mean())


def computing(how: str) -> AbstractContextManager[Any]:
    """The precision of forward passes."""
    return torch.autocast("cpu", dtype=torch.bfloat16) if how == "bf16" else nullcontext()


class WideHead(nn.Module):
    """An output head whose products are float32, of states and weights that are bfloat16."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.float(), requires_grad=False)
        self.bias = None

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits."""
        return hidden.float() @ self.weight.T


def narrowed(policy: Policy, how: str) -> None:
    """Hold weights in bfloat16 where a case says so."""
    if not how.startswith("narrow"):
        return
    policy.model.bfloat16()
    if how.endswith("wide head"):
        policy.model.lm_head = WideHead(policy.model.get_input_embeddings().weight.data)


def table(cases: Sequence[Mapping[str, Any]]) -> str:
    """The figures as a table of Markdown."""
    lines = [
        "| entropy | case | mean | max | k3 | answers beyond GSPO's range | trainer, other batch:"
        " mean | beyond |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in sorted(cases, key=lambda case: case["sharp"]):
        lines.append(
            f"| {case['entropy']:.1f} | {case['case']} | {case['logprob_gap']:.2g} |"
            f" {case['logprob_gap_max']:.2g} | {case['logprob_gap_k3']:.2g} |"
            f" {case['beyond_gspo']:.0%} | {case['other_batch']:.2g} |"
            f" {case['other_batch_beyond_gspo']:.0%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
