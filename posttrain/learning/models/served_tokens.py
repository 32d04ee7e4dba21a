"""Hold a served model's tokenizer against a policy's, by what the server writes for ids."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PART_OF_A_CHARACTER = "\ufffd"


def refuse_other_texts(
    tokenizer: "PreTrainedTokenizerBase", texts: Mapping[int, str], *, where: str
) -> None:
    """Refuse a server whose tokenizer writes other texts for some ids.

    Spaces around a text do not count, as decoders differ in those of a single token, nor do tokens
    that are a part of a character.

    Args:
        tokenizer: The policy's.
        texts: What the server writes, by id.
        where: The server, for the message.

    Raises:
        UserError: It says nothing, or a text differs.

    """
    if not texts:
        raise UserError(
            f"{where} does not say which texts its token ids stand for, so nothing shows that its"
            " tokenizer is the policy's; serve the teacher with vLLM"
        )
    for token, served in texts.items():
        own = str(tokenizer.decode([token]))
        if _PART_OF_A_CHARACTER in own + served:
            continue
        if own.strip() != served.strip():
            raise UserError(
                f"{where} writes token {token} as {served!r} and the policy's tokenizer as {own!r};"
                " a teacher is asked by token ids, so take one with the policy's tokenizer"
            )
