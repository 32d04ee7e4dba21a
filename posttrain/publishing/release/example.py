"""One stored greedy completion: what a served release must answer too."""

from pathlib import Path
from typing import Any

_NEW_TOKENS = 32


def greedy_example(policy: Path, problems: Path) -> dict[str, Any]:
    """The greedy completion of the first problem, by plain transformers from the saved folder."""
    import polars as pl

    prompt = str(pl.read_parquet(problems, columns=["prompt"], n_rows=1)["prompt"][0])
    return {"prompt": prompt, **complete(policy, prompt)}


def complete(policy: Path, prompt: str) -> dict[str, Any]:
    """Ids and texts of a prompt, in the chat template if there is one, and of its completion."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy)
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval()
    messages = [{"role": "user", "content": prompt}]
    text = prompt
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        made = model.generate(
            input_ids=torch.tensor([prompt_ids]),
            attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
            max_new_tokens=_NEW_TOKENS,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id,
        )
    completion_ids = made[0, len(prompt_ids) :].tolist()
    return {
        "chat": bool(tokenizer.chat_template),
        "prompt_ids": prompt_ids,
        "completion_ids": completion_ids,
        "completion": tokenizer.decode(completion_ids, skip_special_tokens=True),
    }
