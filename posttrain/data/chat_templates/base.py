"""What a template is: a part that gives a model's tokenizer its chat template."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from posttrain.stage.errors import UserError
from posttrain.stage.slots import Part, name_of

if TYPE_CHECKING:
    from jinja2 import Environment
    from transformers import PreTrainedTokenizerBase


_CONVERSATION = (
    {"role": "user", "content": "2 + 3 ="},
    {"role": "assistant", "content": "five"},
)


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
            UserError: The model has learned another template, or this one renders no conversation.

        """
        wanted = self.chat_template(tokenizer)
        own = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
        if wanted and wanted != tokenizer.chat_template and (wrong := complaint_about(wanted, own)):
            raise UserError(f"{where}.template: {name_of(self)} gave a template that {wrong}")
        if tokenizer.chat_template and tokenizer.chat_template != wanted:
            raise UserError(
                f"{where}: the model has a chat template, which differs from that of"
                f" template '{self.kind}'; leave template out, or start from a model without one"
            )
        tokenizer.chat_template = wanted


def complaint_about(text: str, special_tokens: Mapping[str, str] | None = None) -> str | None:
    """Find out why a template cannot write a conversation, by writing a tiny one.

    Args:
        text: Jinja, as transformers takes it.
        special_tokens: Spelling of `bos_token` and the like; made up where there is no tokenizer.

    Returns:
        What it does wrong, with the remedy; None where it writes both messages.

    """
    from jinja2 import TemplateError, TemplateSyntaxError

    given = special_tokens or {"bos_token": "<bos>", "eos_token": "<eos>"}
    try:
        template = _environment().from_string(text)
        for turns in (_CONVERSATION[:1], _CONVERSATION):
            written = template.render(
                messages=list(turns), add_generation_prompt=len(turns) == 1, **given
            )
            for turn in turns:
                if turn["content"] not in written:
                    return f"drops the message of the {turn['role']}; let it write every message"
    except TemplateSyntaxError as error:
        return f"is no Jinja in line {error.lineno}: {error.message}; correct that line"
    # Python's own errors come out of expressions within the template.
    except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        return (
            f"fails on a user message and its answer: {error}; let it do with these two,"
            " without a system message or tools"
        )
    return None


def _environment() -> "Environment":
    """Jinja as transformers sets it up, whose own function is slow to import."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """The tag around what the assistant writes; it changes nothing of the text."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja wants it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            """Take what is inside of the tag."""
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.globals.update(raise_exception=refuse, strftime_now=str)
    return environment
