"""A template writes a prompt as the text that a model continues. In the recipe:

sft:
  template: {kind: question, mark: "?"}
"""

from typing import TYPE_CHECKING, Literal

from posttrain.data.chat_templates.base import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Question(Template):
    """Set a mark before each prompt; answers stand on a line of their own."""

    kind: Literal["question"] = "question"
    mark: str = "Q"

    def chat_template(self, tokenizer: "PreTrainedTokenizerBase") -> str:
        """Write it for transformers, which gives `messages`."""
        return (
            f"{tokenizer.bos_token}{self.mark} "
            "{% for each in messages %}{{ each['content'] }}\n{% endfor %}"
        )


PARTS = {"template": {"question": Question}}
