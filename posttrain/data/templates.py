"""How a prompt and a completion become token ids: one place, used by every stage alike.

Prompt and completion are tokenized apart and joined, so that the ids which the engine continues
are exactly the ids that training masked out; no merge ever crosses the border between the two.
Text that spells a special token stays text: only a chat template may write one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BORDER = "\n"


def render_prompt(tokenizer: "PreTrainedTokenizerBase", prompt: str) -> str:
    """Render the text that the model continues.

    Args:
        tokenizer: Its chat template is used; without one the text is the prompt and a newline.
        prompt: What the problem asks.

    Returns:
        The text up to where the completion begins.

    Raises:
        UserError: The template fails, or drops the prompt.

    """
    if not tokenizer.chat_template:
        return prompt + BORDER
    text = render_turns(tokenizer, [{"role": "user", "content": prompt}], open_answer=True)
    if prompt.strip() not in text:
        raise UserError(
            f"the tokenizer's chat template drops the prompt {prompt[:40]!r}; "
            "use a template that writes the user message, or none"
        )
    return text


def render_turns(
    tokenizer: "PreTrainedTokenizerBase", turns: Sequence[Mapping[str, str]], *, open_answer: bool
) -> str:
    """Turns as the chat template writes them; `open_answer` begins the assistant's next one."""
    from jinja2 import TemplateError

    try:
        return str(
            tokenizer.apply_chat_template(
                list(turns), tokenize=False, add_generation_prompt=open_answer
            )
        )
    # Python's own errors come out of expressions within the template.
    except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        what = "one user message" if len(turns) == 1 else "a user message and its answer"
        raise UserError(
            f"the tokenizer's chat template fails on {what}: {error}; "
            "use a template that needs neither a system message nor tools, or none"
        ) from None


def encode_prompts(tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[str]) -> list[list[int]]:
    """Encode the rendered prompts, with the tokenizer's own opening token.

    Args:
        tokenizer: Tokenizer, and chat template if it has one.
        prompts: What the problems ask.

    Returns:
        Token ids of each prompt.

    Raises:
        UserError: A prompt has no tokens, or the template fails or drops it.

    """
    if not prompts:
        return []
    texts = [render_prompt(tokenizer, prompt) for prompt in prompts]
    # A chat template writes its own special tokens; a second opening one would be template drift.
    templated = bool(tokenizer.chat_template)
    rows = _token_ids(
        tokenizer, texts, add_special_tokens=not templated, split_special_tokens=not templated
    )
    eos = tokenizer.eos_token_id
    rows = [row[:-1] if row and row[-1] == eos else row for row in rows]
    _refuse_empty(rows, texts, "prompt")
    return rows


def encode_completions(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], *, allow_empty: bool = False
) -> list[list[int]]:
    """Encode completions, each closed by the end-of-sequence token.

    Args:
        tokenizer: Tokenizer.
        texts: What follows the prompts.
        allow_empty: Accept an empty text: a policy may have said it, but it teaches nothing.

    Returns:
        Token ids of each completion.

    Raises:
        UserError: A text has no tokens and may not be empty.

    """
    if not texts:
        return []
    rows = _token_ids(tokenizer, texts, add_special_tokens=False, split_special_tokens=True)
    if not allow_empty:
        _refuse_empty(rows, texts, "completion")
    return [[*row, tokenizer.eos_token_id] for row in rows]


def _token_ids(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], **options: bool
) -> list[list[int]]:
    encoded = tokenizer(list(texts), return_attention_mask=False, **options)
    return [list(row) for row in encoded["input_ids"]]


def _refuse_empty(rows: list[list[int]], texts: Sequence[str], what: str) -> None:
    for row, text in zip(rows, texts, strict=True):
        if not row:
            raise UserError(
                f"the {what} {text[:40]!r} has no tokens; drop empty texts in the curate stage"
            )
