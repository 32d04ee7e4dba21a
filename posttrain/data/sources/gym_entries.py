"""What a generator of the reasoning-gym library draws, and what it says of its options."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from posttrain.stage.errors import UserError, first_line, nearest

# Distinct prompts run out at the easy end: after this many draws a level gives what it has.
_DRAWS_PER_PROBLEM = 3

# A small model needs no instructions for an answer format that its traces show it.
_PROMPTS: Mapping[str, Callable[[str], str]] = {
    "countdown": lambda question: question.split("\n")[0],
    "number_sorting": lambda question: question.split("\n")[0],
    "leg_counting": lambda question: question.split("\n")[-1],
}


def refuse_options(name: str, levels: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a generator that the library does not know, and options that it refuses.

    Args:
        name: Of the generator.
        levels: Its options at each level, at least one.

    Raises:
        UserError: With what the library says is wrong.

    """
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        raise UserError(f"reasoning-gym has no generator '{name}'{nearest(name, DATASETS)}")
    own = next((each for each in ("size", "seed") if each in levels[0]), None)
    if own is not None:
        raise UserError(f"options of '{name}': the stage sets its {own}; leave it out")
    _, options_of = DATASETS[name]
    for options in levels:
        with _sentence_of_options(name):
            # Two generators of the library check nothing, and have no method for it.
            getattr(options_of(**options), "validate", lambda: None)()


def fresh_entries(
    name: str, options: Mapping[str, Any], wanted: int, *, seed: int, seen: set[str]
) -> Iterator[Mapping[str, Any]]:
    """Draw entries whose prompts nobody has seen.

    Args:
        name: Of the generator.
        options: Its options.
        wanted: How many.
        seed: Of the draw.
        seen: Prompts that are not wanted; those of the entries are added.

    Yields:
        Entries as the library makes them; fewer where its prompts run out.

    Raises:
        UserError: The library refuses the options.

    """
    import reasoning_gym

    size = max(1, wanted * _DRAWS_PER_PROBLEM)
    with _sentence_of_options(name):
        drawn = reasoning_gym.create_dataset(name, size=size, seed=seed, **options)
    found = 0
    for index in range(size):
        if found == wanted:
            return
        entry = drawn[index]
        prompt = prompt_of(name, entry["question"])
        if prompt not in seen:
            seen.add(prompt)
            found += 1
            yield entry


def prompt_of(name: str, question: str) -> str:
    r"""Shorten the question of a generator where its traces show the form of the answer.

    >>> prompt_of("leg_counting", "Count the legs.\n2 sheep?"), prompt_of("chain_sum", "1 + 2 = ")
    ('2 sheep?', '1 + 2 =')

    Args:
        name: Of the generator.
        question: As the library writes it.

    Returns:
        The prompt.

    """
    shorten = _PROMPTS.get(name)
    return (shorten(question.strip()) if shorten else question).strip()


@contextmanager
def _sentence_of_options(name: str) -> Iterator[None]:
    """Say what the library finds wrong with the options of a generator."""
    try:
        yield
    except (TypeError, AssertionError, ValueError) as error:
        said = first_line(error).removeprefix(f"{type(error).__name__}: ")
        said = re.sub(r"^\w+\.__init__\(\) got", "the generator got", said)
        raise UserError(f"options of '{name}': {said}") from None
