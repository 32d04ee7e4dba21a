"""One question posed over and over, under other numbers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from posttrain.data.schemas import Problem
    from posttrain.data.sources.base import SourceRequest

_PLACE = "{number}"


def refuse_one_problem(prompt: str) -> None:
    """Refuse a prompt that does not say its number.

    Args:
        prompt: What is asked.

    Raises:
        ValueError: All problems would be one.

    """
    if _PLACE not in prompt:
        raise ValueError("prompt needs {number}, or all problems would be one")


def posed_by_number(
    prompt: str, request: "SourceRequest", posed: "Callable[[str], Problem]"
) -> "tuple[list[Problem], list[Problem]]":
    """Pose a question under the numbers from 0 on, held-out problems first.

    Args:
        prompt: What is asked; {number} tells problems apart, and says nothing.
        request: How many are wanted, and which prompts are on a side already.
        posed: Makes the problem of a prompt.

    Returns:
        Problems to train on, and held-out ones.

    """
    prompts = (
        prompt.replace(_PLACE, str(number))
        for number in range(request.num_heldout + request.num_problems)
    )
    made = [posed(each) for each in prompts if each not in request.sides]
    return made[request.num_heldout :], made[: request.num_heldout]
