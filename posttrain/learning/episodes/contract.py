"""What an environment may give, held to it while it plays: a bug is a sentence that names it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from posttrain.learning.episodes.environments.base import (
    Ask,
    Environment,
    Said,
    Situation,
    Told,
)
from posttrain.stage.errors import UserError
from posttrain.stage.part_checks import place_of

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_ROUNDING = 1e-6
"""What a sum of floats may be beside the ends of its range."""


def begun(environment: Environment, problem: "Problem", seed: int) -> Situation:
    """Begin an episode, and refuse what no environment may give.

    Args:
        environment: What begins it.
        problem: What it is about.
        seed: As `Environment.start` takes it.

    Returns:
        Where it stands, with who speaks first.

    Raises:
        UserError: It is no beginning, see `answered`, or asks nobody.

    """
    by = "begin" if environment.JUDGES else "start"
    situation = environment.start(problem, seed)
    _check(environment, (), situation, by)
    if not situation.asks and not situation.failed:
        _refuse(environment, by, "asked nobody", "let it ask a role to speak")
    return situation


def answered(
    environment: Environment, turns: Sequence[Said], before: Sequence[Sequence[Situation]]
) -> list[Situation]:
    """Let an environment answer episodes, and refuse what no environment may give.

    Args:
        environment: What answers.
        turns: What was said in each episode.
        before: Of each, all situations so far.

    Returns:
        Where each stands now.

    Raises:
        UserError: It gives no situation for one, or one whose state is no JSON, that asks nobody
            who could be asked, asks or pays a role that it does not declare, or pays what is no
            number; of a world also: one that asks and has no
            key, or ends an episode that has earned less than 0 or more than 1. With the method, the
            file and the remedy.

    """
    found = environment.step_all(turns)
    if not isinstance(found, list | tuple) or len(found) != len(turns):
        wrong = f"gave {found!r:.60} for {len(turns)} episodes"
        _refuse(environment, "step_all", wrong, "let it give a situation for each")
    for earlier, after in zip(before, found, strict=True):
        _check(environment, earlier, after, "step")
    return list(found)


def check_posed(environment: Environment, posed: Any) -> tuple[str, Mapping[str, Any]]:
    """Refuse what cannot be a problem of a world.

    Args:
        environment: The world that posed it.
        posed: What its `pose` gave.

    Returns:
        Prompt and facts.

    Raises:
        UserError: It is no text with facts, or the facts are no JSON.

    """
    kinds = (str, Mapping)
    if not (
        isinstance(posed, tuple) and len(posed) == len(kinds) and all(map(isinstance, posed, kinds))
    ):
        _refuse(environment, "pose", f"gave {posed!r:.60}", "let it give Posed(prompt, facts)")
    prompt, facts = posed
    _check_json(environment, facts, "pose", "facts")
    return prompt, facts


def check_move(environment: Environment, said: Any) -> str:
    """Refuse what a script says that is no text.

    Args:
        environment: The world whose script spoke.
        said: What it said.

    Returns:
        The same.

    Raises:
        UserError: It is no text.

    """
    if not isinstance(said, str):
        _refuse(
            environment, "best_move", f"or `random_move` said {said!r:.40}", "let it say a text"
        )
    return said


def _check(
    environment: Environment, before: Sequence[Situation], after: Situation, by: str
) -> None:
    if not isinstance(after, Situation):
        _refuse(environment, by, f"gave {after!r:.60}", "let it give a Situation")
    _check_json(environment, after.state, by, "a state")
    _check_asks(environment, after, by)
    _check_roles(environment, after, by)
    for role, paid in after.earned.items():
        if not _is_number(paid):
            _refuse(environment, by, f"pays {role} {paid!r:.40}", "let it pay finite numbers")
    for name, counted in after.facts.items():
        if not isinstance(name, str) or not _is_number(counted):
            wrong = f"counts {name} {counted!r:.40}"
            _refuse(environment, by, wrong, "let `facts` be finite numbers by their names")
    if not isinstance(after.read, tuple) or not all(isinstance(each, str) for each in after.read):
        wrong = f"showed {after.read!r:.60}"
        _refuse(environment, by, wrong, "let `read` be a tuple of ids of rows")
    if not isinstance(after.key, str) or not isinstance(after.failed, str):
        _refuse(environment, by, "gave a `key` or a `failed` that is no text", "write texts there")
    if environment.JUDGES and not after.failed:
        _check_judging(environment, before, after, by)


def _check_json(environment: Environment, value: Any, by: str, what: str) -> None:
    if isinstance(value, Mapping) and _is_json(value):
        return
    where = next(_no_json(value, what.rpartition(" ")[2]), f"it is {value!r:.40}")
    remedy = (
        "keep a mapping by text of texts, finite numbers, true, false, null, and lists and mappings"
        " of such, so that an episode can be kept and gone on with"
    )
    _refuse(environment, by, f"gave {what} that JSON cannot hold: {where}", remedy)


def _check_asks(environment: Environment, after: Situation, by: str) -> None:
    asks = after.asks
    if not isinstance(asks, tuple) or not all(isinstance(each, Ask) for each in asks):
        _refuse(environment, by, f"asks {asks!r:.60}", "write a tuple, as in (Ask(POLICY),)")
    roles = [each.role for each in asks]
    twice = next((role for role in roles if roles.count(role) > 1), None)
    if twice is not None:
        _refuse(environment, by, f"asks {twice} twice at once", "ask each role once")
    for each in asks:
        if not all(isinstance(told, Told) and isinstance(told.text, str) for told in each.new):
            told = f"tells {each.role} {each.new!r:.60}"
            _refuse(environment, by, told, 'write messages, as in (Told("user", "no"),)')


def _check_roles(environment: Environment, after: Situation, by: str) -> None:
    """Refuse roles that no recipe could name, and pay that nobody would ever see."""
    verbs = {"asks": (each.role for each in after.asks), "pays": iter(after.earned)}
    for verb, roles in verbs.items():
        for role in roles:
            if environment.declared_role(role) is None:
                wrong = f"{verb} the role {role}, which it does not declare"
                _refuse(environment, by, wrong, "let its ROLES name it")


def _check_judging(
    environment: Environment, before: Sequence[Situation], after: Situation, by: str
) -> None:
    if after.asks and not after.key:
        wrong = "asks somebody in a situation with an empty `key`"
        _refuse(environment, by, wrong, "name it, equal situations by equal keys")
    if after.asks:
        return
    for role in dict.fromkeys(role for each in (*before, after) for role in each.earned):
        score = math.fsum(each.earned.get(role, 0.0) for each in (*before, after))
        if not -_ROUNDING <= score <= 1.0 + _ROUNDING:
            wrong = f"ended an episode in which {role} earned {score:g} in all"
            _refuse(environment, by, wrong, "let it add up to a number from 0 to 1")


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and math.isfinite(value)


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | bool) or _is_number(value)


def _no_json(value: Any, where: str) -> Iterator[str]:
    """Places in a value that JSON has not, each in words."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if not isinstance(key, str):
                yield f"{where} has the key {key!r:.40}"
            yield from _no_json(each, f"{where}[{key!r:.40}]")
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _no_json(each, f"{where}[{place}]")
    elif not _is_json(value):
        yield f"{where} is {value!r:.40}"


def _refuse(environment: Environment, method: str, wrong: str, remedy: str) -> NoReturn:
    raise UserError(
        f"environment {environment.kind} in {place_of(type(environment))}: `{method}` {wrong};"
        f" {remedy}"
    )
