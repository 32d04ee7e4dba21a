"""Asking the policy about a problem anew: its text put into a template, and as tokens."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rl.producers.base import Workbench
    from posttrain.learning.rollouts.engines.base import Prompt


def asked_anew(template: str, **parts: str) -> str:
    """Write what is asked, where what is put in may have places of its own.

    >>> asked_anew("{problem} not {solution}", problem="{solution} + 1 =", solution="3")
    '{solution} + 1 = not 3'

    Args:
        template: With places such as {problem}.
        **parts: What stands at each place, by its name.

    Returns:
        The text of a prompt.

    """
    places = {f"{{{name}}}": text for name, text in parts.items()}
    return re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], template)


def refuse_unasked(name: str, template: str, places: Sequence[str]) -> None:
    """Refuse a template that lacks a place.

    Args:
        name: What the template is called.
        template: The text.
        places: That it must have, such as {problem}.

    Raises:
        ValueError: What would stand there is not asked about.

    """
    for place in places:
        if place not in template:
            raise ValueError(f"{name} has no {place}, so it would not be asked; write it in")


def prompts_about(
    problem: "Problem", texts: Sequence[str], name: str, work: "Workbench"
) -> "list[Prompt]":
    """Encode what is asked about a problem, in the problem's context.

    Args:
        problem: What it is about.
        texts: The prompts' texts.
        name: What they are asked for, which tells their draws from others.
        work: With the tokenizer, and the engine that will answer.

    Returns:
        A prompt for each text behind which there is room for an answer.

    """
    from posttrain.data.contexts import in_context
    from posttrain.data.templates import encode_prompts
    from posttrain.learning.rollouts.engines.base import Prompt
    from posttrain.learning.rollouts.limits import leaves_room

    encoded = encode_prompts(work.tokenizer, in_context(texts, [problem.context] * len(texts)))
    prompts = (
        Prompt(f"{problem.id}/{name}-{number}", tuple(ids)) for number, ids in enumerate(encoded)
    )
    return [each for each in prompts if leaves_room(each, work.engine.context_length)]
