"""What a template is: a part that gives a model's tokenizer its chat template."""

from typing import TYPE_CHECKING

from posttrain.stage.errors import UserError
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Template(Part):
    """Writes a prompt, and the answer to it, as the text that a model reads."""

    def chat_template(self, tokenizer: "PreTrainedTokenizerBase") -> str | None:
        """Write the template down.

        Args:
            tokenizer: Of the model, for the spelling of its special tokens.

        Returns:
            A Jinja text over `messages` and `add_generation_prompt`; it must write every message.
            None for the prompt and a newline.

        """
        raise NotImplementedError

    def give_to(self, tokenizer: "PreTrainedTokenizerBase", *, where: str) -> None:
        """Let a tokenizer render by this template from now on; it is saved with the model.

        Args:
            tokenizer: Of the model that the stage trains or imports.
            where: Name of the stage, for errors.

        Raises:
            UserError: The model has learned another template.

        """
        wanted = self.chat_template(tokenizer)
        if tokenizer.chat_template and tokenizer.chat_template != wanted:
            raise UserError(
                f"{where}: the model has a chat template, which differs from that of"
                f" template '{self.kind}'; leave template out, or start from a model without one"
            )
        tokenizer.chat_template = wanted
