"""The same guesser, which says masked tokens as well as next ones: methods with masks begin here.

Without what a method sets of masks it answers token by token, so that a stage with it and one
without begin from one policy.
"""

from pathlib import Path

from posttrain.operations.tiny_guesser import tiny_problems

_CANVAS = 8
_TAUGHT = ("#### 1", "#### 2", "2")


def save_mask_guessers(folder: Path) -> tuple[Path, Path]:
    """Save a policy that learned of a teacher who is often wrong, and another one.

    Args:
        folder: Where to.

    Returns:
        Checkpoints of both.

    """
    import torch

    from posttrain.data.rows import TokenTable, encode_rows
    from posttrain.learning.models.build import build_llama
    from posttrain.learning.models.load import save_policy
    from posttrain.learning.models.logprobs import wanted_logprobs
    from posttrain.learning.models.mask_policy import remember_masks
    from posttrain.learning.models.mask_predictor import as_mask_predictor
    from posttrain.learning.models.tokenizer import train_tokenizer
    from posttrain.learning.training.denoising import filled_rows, masked_loss

    problems = tiny_problems()
    prompts = [problem.prompt for problem in problems for _ in _TAUGHT]
    texts = [text for _ in problems for text in _TAUGHT]
    tokenizer = train_tokenizer([*prompts, *texts], vocab_size=300)
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    model = build_llama(tokenizer, hidden=32, layers=1, heads=2, seed=0)
    remember_masks(model, mask=tokenizer.mask_token_id, canvas=_CANVAS)
    base, in_order = model.base_model, type(model.base_model)
    rows = encode_rows(tokenizer, prompts, texts)
    filled = filled_rows(rows, canvas=_CANVAS, end=tokenizer.eos_token_id)
    plain, masked = (
        TokenTable(each, pad=tokenizer.pad_token_id).batch(range(len(rows)))
        for each in (rows, filled)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    earlier, now = (folder / "earlier", 100), (folder / "guesser", 60)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for path, steps in (earlier, now):
            for _ in range(steps):
                as_mask_predictor(model)
                loss, _ = masked_loss(model, masked, masked.num_units)
                torch.autograd.backward([loss])
                base.__class__ = in_order
                logprobs, _ = wanted_logprobs(model, plain.input_ids_BT, wanted_BT=plain.wanted_BT)
                torch.autograd.backward([-logprobs.mean()])
                optimizer.step()
                optimizer.zero_grad()
            save_policy(model, tokenizer, path)
    return now[0], earlier[0]
