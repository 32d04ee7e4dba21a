"""A system prompt that a model was trained behind, written into its chat template."""

import json
import re

_SAID = re.compile(r'^\{% set trained_behind = "(?:[^"\\]|\\.)*" %\}.*?\{% endif %\}', re.DOTALL)
_PUT = (
    "{% if not messages or messages[0].role != 'system' %}"
    "{% set messages = [{'role': 'system', 'content': trained_behind}] + messages %}{% endif %}"
)


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
