"""The plainest template of several turns: a line each, and the end token behind what is said."""

from typing import TYPE_CHECKING, Literal

from posttrain.data.chat_templates.base import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TEXT = (
    "{{ bos_token }}{% for m in messages %}{{ m.content }}"
    "{% if m.role == 'assistant' %}{{ eos_token }}{% else %}{{ '\\n' }}{% endif %}{% endfor %}"
)


class TurnsTemplate(Template):
    """Write each message as its text, and end with the end token what the model says.

    What others say ends with a newline. For small models that begin from nothing and play episodes:
    no token is spent on who speaks.

    Source: own.
    """

    kind: Literal["turns"] = "turns"

    def chat_template(self, tokenizer: "PreTrainedTokenizerBase") -> str:  # noqa: ARG002
        """Return the text; see `Template.chat_template`."""
        return _TEXT
