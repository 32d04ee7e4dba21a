"""How a prompt and a completion become token ids: one place, used by every stage alike.

Prompt and completion are tokenized apart and joined, so that the ids which the engine continues
are exactly the ids that training masked out; no merge ever crosses the border between the two.
Text that spells a special token stays text: only a chat template may write one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posttrain.data.contexts import (
    THINKING,
    THOUGHT,
    AnyPrompt,
    Message,
    PromptContext,
    PromptInContext,
    without_thinking,
)
from posttrain.data.spelled import MARK, as_text, encode_written, pieces_of
from posttrain.data.token_cache import kept_token_ids
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BORDER = "\n"
_ASKED, _SAID = "2 + 3 =", "five"
_PLAIN = {("user",): "one user message", ("user", "assistant"): "a user message and its answer"}


def render_prompt(tokenizer: "PreTrainedTokenizerBase", prompt: AnyPrompt) -> str:
    """Render the text that the model continues.

    Args:
        tokenizer: Its chat template is used; without one every message is its text and a newline.
        prompt: What the problem asks, in its context.

    Returns:
        The text up to where the completion begins.

    Raises:
        UserError: The template fails, or drops the prompt.

    """
    return _rendered(tokenizer, prompt).replace(MARK, "")


def _rendered(tokenizer: "PreTrainedTokenizerBase", prompt: AnyPrompt) -> str:
    """The text with its marks, of which `encode_written` makes tokens."""
    asked, context = PromptInContext.of(prompt)
    messages = context.messages(asked)
    if not tokenizer.chat_template:
        if context.calls_tools:
            raise UserError(
                f"the prompt {asked[:40]!r} comes with tools, which only a chat template can write;"
                " give the model a template, or leave the tools out"
            )
        return "".join(str(each["content"]) + BORDER for each in messages)
    turns = as_text(tokenizer, messages)
    text = render_turns(tokenizer, turns, tools=context.tools, open_answer=True)
    plain = text.replace(MARK, "")
    for role, content in (("user", asked), ("system", context.system)):
        if content.strip() not in plain:
            what = "prompt" if role == "user" else "system prompt"
            raise UserError(
                f"the tokenizer's chat template drops the {what} {content[:40]!r}; "
                f"use a template that writes the {role} message, or none"
            )
    return text


def render_turns(
    tokenizer: "PreTrainedTokenizerBase",
    turns: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    open_answer: bool,
) -> str:
    """Turns as the chat template writes them; `open_answer` begins the assistant's next one."""
    from jinja2 import TemplateError

    try:
        return str(
            tokenizer.apply_chat_template(
                [dict(turn) for turn in turns],
                tools=[dict(tool) for tool in tools] or None,
                tokenize=False,
                add_generation_prompt=open_answer,
            )
        )
    # Python's own errors come out of expressions within the template.
    except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        roles = tuple(str(turn["role"]) for turn in turns)
        what = _PLAIN.get(roles, f"messages of {', '.join(roles)}")
        kind = "that needs neither a system message nor tools" if roles in _PLAIN else "for these"
        raise UserError(
            f"the tokenizer's chat template fails on {what}: {error}; "
            f"use a template {kind}, or none"
        ) from None


def encode_prompts(
    tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[AnyPrompt]
) -> list[list[int]]:
    """Encode the rendered prompts, with the tokenizer's own opening token.

    Args:
        tokenizer: Tokenizer, and chat template if it has one.
        prompts: What the problems ask, in their contexts.

    Returns:
        Token ids of each prompt.

    Raises:
        UserError: A prompt has no tokens, or the template fails or drops it.

    """
    if not prompts:
        return []
    texts = [_rendered(tokenizer, prompt) for prompt in prompts]
    # A chat template writes its own special tokens; a second opening one would be template drift.
    templated = bool(tokenizer.chat_template)
    rows = _token_ids(
        tokenizer, texts, add_special_tokens=not templated, split_special_tokens=not templated
    )
    for place, text in enumerate(texts):
        if MARK in text:
            rows[place] = encode_written(tokenizer, text)
    if not templated:
        # What the tokenizer closes a text with of its own accord; a template means what it writes.
        eos = tokenizer.eos_token_id
        rows = [row[:-1] if row and row[-1] == eos else row for row in rows]
    _refuse_empty(rows, texts, "prompt")
    return rows


def encode_completions(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], *, allow_empty: bool = False
) -> list[list[int]]:
    """Encode completions, each closed by the token that ends a turn.

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
    end = end_of_turn(tokenizer)
    return [[*row, end] for row in rows]


def end_of_turn(tokenizer: "PreTrainedTokenizerBase") -> int:
    """Find the token that ends what the assistant says.

    Args:
        tokenizer: Its chat template may write another one than the tokenizer's own end token, such
            as `<|im_end|>` where that is `<|endoftext|>`.

    Returns:
        Id of the first special token that the template writes behind an answer; the tokenizer's end
        token where it writes none, or there is no template.

    """
    ends: int = tokenizer.eos_token_id
    if not tokenizer.chat_template:
        return ends
    turns = [{"role": "user", "content": _ASKED}, {"role": "assistant", "content": _SAID}]
    try:
        written = render_turns(tokenizer, turns, open_answer=False)
    except UserError:
        # Only what is learned needs a template that writes answers; `check_answers` refuses others.
        return ends
    _, said, behind = written.rpartition(_SAID)
    special = {
        str(token): n for n, token in tokenizer.added_tokens_decoder.items() if token.special
    }
    found = {behind.find(token): n for token, n in special.items() if token in behind}
    return found[min(found)] if said and found else ends


def fitting_answers(
    tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[AnyPrompt], texts: Sequence[str]
) -> list[str]:
    """Fit answers to what the template itself writes: of thinking before them, of calls in them.

    Args:
        tokenizer: Its chat template may open the thinking for the model, or say that there is none.
        prompts: What is asked, in its context.
        texts: What follows.

    Returns:
        The answers: with the calls of tools that they end with, without the tag that the prompt's
        text ends with already, without any thinking where that text ends with the closing tag, and
        with the blank that the template writes before them.

    Raises:
        UserError: The template does not write the calls.

    """
    template = str(tokenizer.chat_template or "")
    thinks = THINKING in template or THOUGHT in template
    blank = _blank_before_answers(tokenizer)
    fitted = []
    for prompt, text in zip(prompts, texts, strict=True):
        asked, context = PromptInContext.of(prompt)
        opened = render_prompt(tokenizer, prompt).rstrip() if thinks and prompt else ""
        if context.answer_calls:
            text = _with_calls(tokenizer, asked, context, text)
        if opened.endswith(THOUGHT):
            text = without_thinking(text)
        elif opened.endswith(THINKING) and text.startswith(THINKING):
            text = text.removeprefix(THINKING).lstrip()
        fitted.append(blank + text if prompt and text and not text[0].isspace() else text)
    return fitted


def _blank_before_answers(tokenizer: "PreTrainedTokenizerBase") -> str:
    """The blank that a template writes before an answer, as Mistral's does behind `[/INST]`."""
    if not tokenizer.chat_template:
        return ""
    asked = {"role": "user", "content": _ASKED}
    try:
        opened = render_turns(tokenizer, [asked], open_answer=True)
        said = {"role": "assistant", "content": _SAID}
        whole = render_turns(tokenizer, [asked, said], open_answer=False)
    except UserError:
        # As in `end_of_turn`.
        return ""
    blank = whole.removeprefix(opened).partition(_SAID)[0]
    return blank if whole.startswith(opened) and blank.isspace() else ""


def _with_calls(
    tokenizer: "PreTrainedTokenizerBase", asked: str, context: PromptContext, text: str
) -> str:
    """The answer and its calls, as the template spells them, without the token that ends it."""
    before = render_prompt(tokenizer, PromptInContext(asked, context))
    words = without_thinking(text)
    answer = {"role": "assistant", "content": words, "tool_calls": context.answer_calls}
    whole = render_turns(
        tokenizer, [*context.messages(asked), answer], tools=context.tools, open_answer=False
    )
    if not whole.startswith(before):
        # A thought that the template opens, or closes at once, for the answer to come.
        before = before.rpartition(THINKING)[0]
    written = whole.removeprefix(before)
    names = [str(call.get("function", call).get("name", "")) for call in context.answer_calls]
    missing = next((name for name in names if name not in written), None)
    if missing is not None or not whole.startswith(before):
        raise UserError(
            f"the tokenizer's chat template drops the call of {missing or names[0]!r};"
            " use a template that writes calls of tools, or leave such answers out"
        )
    end = str(tokenizer.convert_ids_to_tokens(end_of_turn(tokenizer)))
    # Some write an empty thought into the last turn; what was thought is the answer's own.
    said = text.removesuffix(words) + without_thinking(written)
    return said.rstrip().removesuffix(end).rstrip()


def opening_tokens(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return what the tokenizer opens a text with that follows nothing; none where it does not."""
    (ids,) = _token_ids(tokenizer, [""], add_special_tokens=True)
    return ids[:1] if ids[:1] == [tokenizer.bos_token_id] else []


def answered_spans(
    tokenizer: "PreTrainedTokenizerBase", prompt: AnyPrompt
) -> list[tuple[int, int]]:
    """Find what the assistant said before the prompt, among the tokens of `encode_prompts`.

    Args:
        tokenizer: One that knows which characters a token is of.
        prompt: With the conversation so far in its context; shots are no part of it.

    Returns:
        First token and the one behind the last of each answer, with the token that ends it where
        the template writes that right behind.

    Raises:
        UserError: The template writes an earlier answer otherwise than it was given.

    """
    asked, context = PromptInContext.of(prompt)
    answers = list(context.answers())
    if not answers:
        return []
    if not tokenizer.is_fast:
        raise UserError("turns assistant needs a fast tokenizer; set turns to last")
    messages, marked = context.messages(asked), _rendered(tokenizer, prompt)
    text = marked.replace(MARK, "")
    templated = bool(tokenizer.chat_template)
    if MARK in marked:
        offsets = [each for _, piece in pieces_of(tokenizer, marked) for each in piece]
    else:
        options = {"add_special_tokens": not templated, "split_special_tokens": not templated}
        offsets = tokenizer(text, return_offsets_mapping=True, **options)["offset_mapping"]
    spans = []
    for index in answers:
        begin, end = _written_at(tokenizer, messages[: index + 1], context, text)
        inside = [i for i, (a, b) in enumerate(offsets) if begin <= a < b <= end]
        if not inside or offsets[inside[-1]][1] < end:
            content = str(messages[index]["content"])
            raise UserError(
                f"the tokenizer joins the end of the earlier answer {content[:40]!r} with what"
                " stands behind it, so its tokens cannot be learned; set turns to last"
            )
        spans.append((inside[0], inside[-1] + 1))
    return spans


def _written_at(
    tokenizer: "PreTrainedTokenizerBase",
    messages: Sequence[Message],
    context: PromptContext,
    text: str,
) -> tuple[int, int]:
    """Where the last of these messages stands in the whole text, with the token that ends it."""
    *earlier, answer = messages
    content = str(answer["content"])
    if not tokenizer.chat_template:
        before = "".join(str(each["content"]) + BORDER for each in earlier)
        written, ends = before + content, ""
    else:
        before = render_turns(tokenizer, earlier, tools=context.tools, open_answer=True)
        if not text.startswith(before):
            # A thought that the template opens, or closes at once, is not written of earlier turns.
            before = before.rpartition(THINKING)[0]
        ends = str(tokenizer.convert_ids_to_tokens(end_of_turn(tokenizer)))
        written = before + content
        if answer.get("tool_calls"):
            # How a call is spelled is the template's own affair, so all that it writes is learned.
            written = render_turns(tokenizer, messages, tools=context.tools, open_answer=False)
            written, ends = written.rstrip(), ""
            if not text.startswith(written) and written.startswith(before):
                # Some write an empty thought, but only into the turn that is the last so far.
                written = before + without_thinking(written[len(before) :])
    if len(written) == len(before) or not text.startswith(written):
        raise UserError(
            f"the tokenizer's chat template writes the earlier answer {content[:40]!r} otherwise"
            " than it was given, so its tokens cannot be learned; set turns to last"
        )
    end = len(written)
    return len(before), end + len(ends) if text.startswith(ends, end) else end


def _token_ids(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], **options: bool
) -> list[list[int]]:
    def tokenize() -> list[list[int]]:
        encoded = tokenizer(list(texts), return_attention_mask=False, **options)
        return [list(row) for row in encoded["input_ids"]]

    return kept_token_ids(tokenizer, texts, options, tokenize)


def _refuse_empty(rows: list[list[int]], texts: Sequence[str], what: str) -> None:
    for row, text in zip(rows, texts, strict=True):
        if not row:
            raise UserError(
                f"the {what} {text[:40]!r} has no tokens; drop empty texts in the curate stage"
            )
