"""Each engine as a function of (prompts, samples of each, greedy) that returns token ids."""

import copy
from collections.abc import Callable, Sequence

import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine

Drawn = list[list[int]]
Contestant = Callable[[Sequence[Prompt], int, bool], Drawn]


def with_wide_heads(policy: Policy) -> Policy:
    config = copy.deepcopy(policy.model.config)
    config.head_dim = 32
    config.num_attention_heads = config.hidden_size // 32
    config.num_key_value_heads = config.num_attention_heads
    model = type(policy.model)(config).eval()
    model.load_state_dict(policy.model.state_dict())
    return Policy(model, policy.tokenizer)


def torch_engine(policy: Policy, max_tokens: int) -> Contestant:
    return _of(TorchRolloutEngine(policy.model, policy.tokenizer, batch_size=1024), max_tokens)


def vllm_engine(policy: Policy, max_tokens: int) -> Contestant:
    from posttrain.learning.rollouts.engines.kinds.vllm import VllmEngine
    from posttrain.learning.rollouts.engines.vllm_engine import VllmRolloutEngine

    settings = VllmEngine(max_num_seqs=1024, kv_cache_gib=1.0)
    return _of(VllmRolloutEngine(policy.model, policy.tokenizer, settings), max_tokens)


def generate(policy: Policy, max_tokens: int) -> Contestant:
    """The fastest way to call it: one padded batch, inference mode, its own key-value cache."""
    model, tokenizer = policy.model.eval(), policy.tokenizer

    def run(prompts: Sequence[Prompt], group: int, greedy: bool) -> Drawn:
        longest = max(len(prompt.token_ids) for prompt in prompts)
        padding = [longest - len(prompt.token_ids) for prompt in prompts]
        ids = [[0] * pad + list(p.token_ids) for pad, p in zip(padding, prompts, strict=True)]
        mask = [[0] * pad + [1] * (longest - pad) for pad in padding]
        how = {"do_sample": not greedy}
        if not greedy:
            how |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "num_return_sequences": group}
        with torch.inference_mode():
            made = model.generate(
                input_ids=torch.tensor(ids, device=model.device),
                attention_mask=torch.tensor(mask, device=model.device),
                max_new_tokens=max_tokens,
                pad_token_id=tokenizer.pad_token_id,
                **how,
            )
        return [_until(row, tokenizer.eos_token_id) for row in made[:, longest:].tolist()]

    return run


def _of(engine: TorchRolloutEngine, max_tokens: int) -> Contestant:
    def run(prompts: Sequence[Prompt], group: int, greedy: bool) -> Drawn:
        temperature = 0.0 if greedy else 1.0
        params = SamplingParams(max_tokens, temperature=temperature, num_samples=group)
        return [list(sample.token_ids) for sample in engine.sample(prompts, params)]

    return run


def _until(row: list[int], end: int) -> list[int]:
    return row[: row.index(end) + 1] if end in row else row
