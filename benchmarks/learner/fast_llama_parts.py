"""What each part of the fast pass of Llamas is worth: a training step with it and without, in turn.

    python -m benchmarks.learner.fast_llama_parts [--size 156k] [--rounds 5] [--steps 30]

A step is the log-probabilities of completions, their backward pass, clipping and AdamW, on the
shapes of RL (groups of rows that share a prompt) and of fine-tuning (rows of their own, of unequal
lengths). Seconds are the processor's, of one thread; arms take turns, and the ratio is the median
over rounds of (seconds without the part) / (seconds with it).
"""

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import median
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.learner.settings import GROUP, PROBLEMS, PROMPT_TOKENS, SFT_ROWS, SFT_TOKENS, SIZES
from posttrain.learning.models import fast_llama, logprobs
from posttrain.learning.models.fast_llama import RowLayout


def without_shared_prompts() -> AbstractContextManager[object]:
    """Every row computes its own prompt."""
    own = "posttrain.learning.models.fast_llama._owners"
    return mock.patch(own, lambda ids_BT, _starts_B: torch.arange(len(ids_BT)))


def with_padding() -> AbstractContextManager[object]:
    """Every token of every row goes through the layers, padding too."""
    return mock.patch.object(fast_llama, "lay_out", lay_out_all)


def lay_out_all(ids_BT: Tensor, wanted_BT: Tensor, _starts_B: Tensor) -> RowLayout:
    every_BT = torch.arange(ids_BT.numel()).view(ids_BT.shape)
    positions_BT = torch.arange(ids_BT.shape[1]).expand_as(ids_BT)
    wanted_W = every_BT[wanted_BT]
    flat_N = every_BT.flatten()
    return RowLayout(ids_BT.flatten(), positions_BT.flatten(), every_BT, flat_N, wanted_W, wanted_W)


def own_forward() -> AbstractContextManager[object]:
    """The pass of transformers."""
    return mock.patch.object(logprobs, "is_fast_llama", return_value=False)


def batch(kind: str, vocabulary: int, new_tokens: int):
    """Ids, where completions begin and how long rows are."""
    source = torch.Generator().manual_seed(0)
    if kind == "rl":
        prompts = torch.randint(3, vocabulary, (PROBLEMS, PROMPT_TOKENS), generator=source)
        given = prompts.repeat_interleave(GROUP, 0)
        drawn = torch.randint(3, vocabulary, (len(given), new_tokens), generator=source)
        ids = torch.cat([given, drawn], -1)
        lengths = torch.full((len(ids),), ids.shape[1])
    else:
        ids = torch.randint(3, vocabulary, (SFT_ROWS, SFT_TOKENS), generator=source)
        lengths = torch.randint(SFT_TOKENS // 2, SFT_TOKENS + 1, (SFT_ROWS,), generator=source)
    starts = torch.full((len(ids),), PROMPT_TOKENS)
    positions = torch.arange(ids.shape[1])
    wanted = (positions >= starts[:, None] - 1) & (positions < lengths[:, None] - 1)
    return ids, wanted, starts


def stepper(model: LlamaForCausalLM, kind: str, size) -> Callable[[], None]:
    ids, wanted, starts = batch(kind, size.vocabulary, size.new_tokens)
    parameters = [p for p in model.parameters() if p.requires_grad]
    options = {"betas": (0.9, 0.95), "weight_decay": 0.0}
    optimizer = torch.optim.AdamW(parameters, lr=1e-6, fused=True, **options)
    targets = ids.roll(-1, -1)[wanted]

    def step() -> None:
        if logprobs.is_fast_llama(model):
            hidden = fast_llama.fast_hidden_states(model, ids, wanted_BT=wanted, starts_B=starts)
        else:
            hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[wanted]
        loss = F.cross_entropy(model.lm_head(hidden), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()

    return step


ARMS = {
    "all of the fast pass": own_forward,
    "shared prompts, and padding left out": with_padding,
    "shared prompts": without_shared_prompts,
}


def seconds(step: Callable[[], None], steps: int) -> float:
    started = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - started) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="156k")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    torch.set_num_threads(1)
    size = SIZES[given.size]
    config = LlamaConfig(
        vocab_size=size.vocabulary, hidden_size=size.hidden, num_attention_heads=size.heads,
        intermediate_size=size.intermediate, num_hidden_layers=size.layers,
        num_key_value_heads=size.kv_heads, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).train()
    for kind in ("rl", "sft"):
        whole = stepper(model, kind, size)
        seconds(whole, 5)
        for name, off in ARMS.items():
            other = stepper(model, kind, size)
            ratios, with_it = [], []
            for _ in range(given.rounds):
                with off():
                    seconds(other, 2)
                    without = seconds(other, given.steps)
                seconds(whole, 2)
                with_it.append(seconds(whole, given.steps))
                ratios.append(without / with_it[-1])
            shown = " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
            print(
                f"{kind}\t{name}\t{median(ratios):.2f}\t({shown})\t{median(with_it) * 1e3:.2f} ms"
            )


if __name__ == "__main__":
    main()
