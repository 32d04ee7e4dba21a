"""A template that the recipe writes out, and a system prompt that is put into one."""

import json
import re
from typing import TYPE_CHECKING, Literal

from pydantic import field_validator

from posttrain.data.chat_templates.base import Template, complaint_about

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SAID = re.compile(r'^\{% set trained_behind = "(?:[^"\\]|\\.)*" %\}.*?\{% endif %\}', re.DOTALL)
_PUT = (
    "{% if not messages or messages[0].role != 'system' %}"
    "{% set messages = [{'role': 'system', 'content': trained_behind}] + messages %}{% endif %}"
)


class JinjaTemplate(Template):
    """Take the Jinja text that stands in the recipe, in the form of transformers."""

    SOURCE = "transformers, 'Chat templates'"

    kind: Literal["jinja"] = "jinja"
    text: str
    """Jinja over `messages`, `add_generation_prompt`, `bos_token` and `eos_token`."""

    @field_validator("text")
    @classmethod
    def _renders(cls, text: str) -> str:
        if complaint := complaint_about(text):
            raise ValueError(f"this template {complaint}")
        return text

    def chat_template(self, tokenizer: "PreTrainedTokenizerBase") -> str:  # noqa: ARG002
        """Return the text."""
        return self.text


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
