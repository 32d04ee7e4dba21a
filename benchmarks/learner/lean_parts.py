"""What each part of the lean pass is worth: a training step with it and without, in turn.

    python -m benchmarks.learner.lean_parts [--size 156k] [--rounds 5] [--steps 30]

A step is the log-probabilities of completions, their backward pass, clipping and AdamW, on the
shapes of RL (groups of rows that share a prompt) and of fine-tuning (rows of their own, of unequal
lengths). Seconds are the processor's, of one thread; arms take turns, and the ratio is the median
over rounds of (seconds without the part) / (seconds with it).
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from unittest import mock

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.learner.settings import GROUP, PROBLEMS, PROMPT_TOKENS, SFT_ROWS, SFT_TOKENS, SIZES
from posttrain.learning.models import logprobs
from posttrain.learning.models.lean import layers, states
from posttrain.learning.models.lean.layout import lay_out


def plain_normed(x_NC, eps, norm_C):
    return x_NC * torch.rsqrt(x_NC.square().mean(-1, keepdim=True) + eps) * norm_C


def plain_projected(x_NC, rotation_N, turned, eps, norm_C, weight_FC, bias_F):
    result_NF = F.linear(plain_normed(x_NC, eps, norm_C), weight_FC, bias_F)
    pairs = layers._pairs(result_NF[:, :turned].contiguous(), turned, rotation_N)
    rotated = torch.view_as_real(pairs * rotation_N).flatten(1)
    return torch.cat([rotated, result_NF[:, turned:]], -1)


def plain_finish(x_NC, attended_NF, eps, *weights):
    out_CF, norm_C, gate_IC, up_IC, down_CI = weights
    x_NC = torch.addmm(x_NC, attended_NF, out_CF.t())
    normed_NC = plain_normed(x_NC, eps, norm_C)
    open_NI = F.silu(F.linear(normed_NC, gate_IC)) * F.linear(normed_NC, up_IC)
    return torch.addmm(x_NC, open_NI, down_CI.t())


@contextmanager
def written_gradients_off() -> Iterator[None]:
    with (
        mock.patch.object(layers, "_normed", plain_normed),
        mock.patch.object(layers, "_projected", plain_projected),
        mock.patch.object(layers, "_finish", plain_finish),
    ):
        yield


@contextmanager
def shared_prompts_off() -> Iterator[None]:
    def alone(ids_BT, wanted_BT, starts_B):
        with mock.patch("posttrain.learning.models.lean.layout._owners", no_owners):
            return lay_out(ids_BT, wanted_BT, starts_B)

    def no_owners(ids_BT, _starts_B):
        return torch.arange(len(ids_BT)), False

    with mock.patch.object(states, "lay_out", alone):
        yield


@contextmanager
def lean_off() -> Iterator[None]:
    with mock.patch.object(logprobs, "is_lean", return_value=False):
        yield


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
        if logprobs.is_lean(model):
            hidden = states.lean_hidden_states(model, ids, wanted_BT=wanted, starts_B=starts)
        else:
            hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[wanted]
        loss = F.cross_entropy(model.lm_head(hidden), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()

    return step


ARMS = {
    "all of the lean pass": lean_off,
    "written-out gradients": written_gradients_off,
    "shared prompts": shared_prompts_off,
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
