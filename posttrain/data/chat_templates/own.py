"""The template that a model has."""

import json
import re
from typing import TYPE_CHECKING, Literal

from posttrain.data.chat_templates.base import Template
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SWITCH = re.compile(r"^\{% set enable_thinking = (true|false) %\}")
# A system prompt that a model was trained behind, where a conversation begins with none.
_SAID = re.compile(r'^\{% set trained_behind = "(?:[^"\\]|\\.)*" %\}.*?\{% endif %\}', re.DOTALL)
_PUT = (
    "{% if not messages or messages[0].role != 'system' %}"
    "{% set messages = [{'role': 'system', 'content': trained_behind}] + messages %}{% endif %}"
)


class OwnTemplate(Template):
    """Keep the chat template of the model; without one, a prompt is its text and a newline."""

    SOURCE = "Qwen3, arXiv:2505.09388, section 4.3: thinking is switched by the chat template"

    kind: Literal["own"] = "own"
    thinking: bool | None = None
    """Whether a thinking model thinks before it answers: `enable_thinking` of its template, which
    is written into the template, so that every later stage follows; null leaves it as it is."""

    def chat_template(self, tokenizer: "PreTrainedTokenizerBase") -> str | None:
        """Return what the tokenizer has, with the switch in front where one is wanted."""
        template: str | None = tokenizer.chat_template
        if self.thinking is None or not template:
            return template
        switch = f"{{% set enable_thinking = {str(self.thinking).lower()} %}}"
        return switch + _SWITCH.sub("", template)

    def give_to(self, tokenizer: "PreTrainedTokenizerBase", *, where: str) -> None:
        """Set the switch, where one is wanted; see `Template.give_to`.

        Raises:
            UserError: The template of the model has no such switch.

        """
        if self.thinking is not None and "enable_thinking" not in (tokenizer.chat_template or ""):
            raise UserError(
                f"{where}.template.thinking: the model's chat template never reads enable_thinking,"
                " so there is nothing to switch; leave thinking out"
            )
        tokenizer.chat_template = self.chat_template(tokenizer)


def with_system(template: str, text: str) -> str:
    """Let a chat template write a system prompt where a conversation begins with none.

    Every later stage follows, and so does whoever loads the model. One that was written into it
    before is replaced.

    Args:
        template: Jinja, as transformers takes it; it must write system prompts.
        text: The system prompt.

    Returns:
        The template with it.

    """
    # Jinja reads a string as Python does, but for surrogates: what is beyond ASCII stands as it is.
    spelled = json.dumps(text, ensure_ascii=False)
    return f"{{% set trained_behind = {spelled} %}}{_PUT}{_SAID.sub('', template)}"
