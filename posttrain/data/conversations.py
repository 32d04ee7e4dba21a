"""A conversation of others' clients, as a prompt in its context."""

from collections.abc import Sequence

from posttrain.data.contexts import PromptContext, PromptInContext
from posttrain.stage.errors import UserError

_SYSTEM = ("system", "developer")


def prompt_of_conversation(said: Sequence[tuple[str, str]]) -> PromptInContext:
    """Turn messages into what stages encode, so that no token differs from theirs.

    >>> prompt_of_conversation([("system", "Be brief."), ("user", "2 + 3 =")]).context.system
    'Be brief.'

    Args:
        said: Role and text of each message: `system` or `developer` first, if at all, then `user`
            and `assistant`, the user last.

    Returns:
        The last message, in the context of those before it.

    Raises:
        UserError: The system speaks elsewhere than first, the last word is not the user's, or
            there is another role.

    """
    messages = list(said)
    system = messages.pop(0)[1] if messages and messages[0][0] in _SYSTEM else ""
    odd = next((role for role, _ in messages if role not in ("user", "assistant")), None)
    if odd in _SYSTEM:
        raise UserError(f"messages: a {odd} message stands behind others; put it first")
    if odd is not None:
        raise UserError(f"messages: a message of role {odd} is not taken; leave it out")
    if not messages or messages[-1][0] != "user":
        raise UserError("messages: the last one must be the user's, whom the policy answers")
    *before, (_, asked) = messages
    turns = [{"role": role, "content": text} for role, text in before]
    context = PromptContext.parse({"system": system, "turns": turns}, where="messages")
    return PromptInContext(asked, context)
