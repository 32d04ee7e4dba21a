"""What is loaded of the library verifiers: an environment with its tasks, once a process.

The interface is that of verifiers 0.4.0 (`verifiers.v1`): a taskset yields tasks, which score what
was said, and an environment says how agents play one.
"""

import asyncio
import itertools
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from posttrain.stage.errors import UserError, nearest
from posttrain.stage.extras import extra_line


@dataclass(frozen=True)
class LibraryEnv:
    """An environment of the library with its taskset."""

    env: Any
    """A `verifiers.v1.Env`; its `start` has run."""
    name: str
    _read: list[Any] = field(default_factory=list)

    @cached_property
    def seats(self) -> Mapping[str, Any]:
        """Its agents' configs, by name."""
        from verifiers.v1.configs.agent import agent_config_fields

        return dict(agent_config_fields(self.env.config))

    def seat(self, name: str) -> str:
        """Say which agent is the policy.

        Args:
            name: As the settings name it; empty for the only one.

        Raises:
            UserError: There is none of that name, or it must be named.

        """
        if not name and len(self.seats) == 1:
            return next(iter(self.seats))
        if name not in self.seats:
            raise UserError(
                f"environment verifiers: {self.name} has the agents {', '.join(self.seats)}"
                f"{nearest(name, self.seats) or '; let `seat` name that of the policy'}"
            )
        return name

    def num_tasks(self, most: int | None) -> int:
        """Count the tasks, or the first so many of a taskset without an end."""
        if most is None and not self.env.taskset.bounded:
            raise UserError(
                f"environment verifiers: the taskset {self.name} has no end; let `tasks` say how"
                " many of its first tasks are posed"
            )
        self._upto(most or 1)
        number = len(self._read) if most is None else min(most, len(self._read))
        if not number:
            raise UserError(f"environment verifiers: the taskset {self.name} has no tasks")
        return number

    def task(self, index: int, key: str = "") -> Any:
        """Return a task.

        Args:
            index: Its place in the taskset.
            key: That it must have, by the library; empty for any.

        Raises:
            UserError: There is none, or another one by now.

        """
        self._upto(index + 1)
        if index >= len(self._read) or (key and self._read[index].key != key):
            raise UserError(
                f"environment verifiers: task {index} of {self.name} is not the one that was posed;"
                " make the problems anew, with the taskset as it is now"
            )
        return self._read[index]

    def _upto(self, most: int) -> None:
        """Read a taskset that ends as a whole, and of another one twice as far as before."""
        ends = self.env.taskset.bounded
        if len(self._read) >= (1 if ends else most):
            return
        with chance(0):
            upto = None if ends else max(most, 2 * len(self._read))
            self._read[:] = itertools.islice(self.env.taskset, upto)


_loaded: dict[str, LibraryEnv] = {}


def library_env(config: Mapping[str, Any]) -> LibraryEnv:
    """Load an environment, once a process.

    Args:
        config: Of the library's `EnvConfig`: `taskset` with its `id`, `id`, and agents by name.

    Raises:
        UserError: The library is not installed, or refuses it.

    """
    written = json.dumps(config, sort_keys=True)
    if written not in _loaded:
        try:
            import verifiers.v1 as library
        except ImportError:
            raise UserError(
                "the environment 'verifiers' needs the library verifiers, which is not installed;"
                f" run: {extra_line('verifiers')}"
            ) from None
        name = config["taskset"]["id"]
        try:
            with chance(0):
                env = library.load_environment(library.resolve_env_config(json.loads(written)))
                event_loop().run_until_complete(env.start())
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise UserError(
                f"environment verifiers: {name} cannot be loaded: {error}; install the package of"
                " the taskset, name its module, and correct its settings"
            ) from None
        _loaded[written] = LibraryEnv(env, name)
    return _loaded[written]


_loops: dict[int, asyncio.AbstractEventLoop] = {}


def event_loop() -> asyncio.AbstractEventLoop:
    """Return the loop in which all episodes of this process are played."""
    if os.getpid() not in _loops:
        _loops.clear()
        _loops[os.getpid()] = asyncio.new_event_loop()
    return _loops[os.getpid()]


@contextmanager
def chance(seed: int) -> Iterator[None]:
    """Let what runs inside draw from a seed, as if nobody else drew from the process's chance."""
    import numpy as np

    outer, outer_numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(outer)
        np.random.set_state(outer_numpy)


def text_of(content: Any) -> str:
    """Read a message's content.

    Args:
        content: Text, or the library's parts of content.

    Raises:
        UserError: There is an image in it.

    """
    if content is None or isinstance(content, str):
        return content or ""
    if not all(part.type == "text" for part in content):
        raise UserError("environment verifiers: a message has an image; policies here read text")
    return "\n".join(part.text for part in content)


def opening(messages: Sequence[Any]) -> str:
    """Join what stands before an agent's first turn: system prompt and prompt, as the library does.

    Args:
        messages: Of the library.

    Raises:
        UserError: Turns of an assistant are among them.

    """
    if any(message.role not in ("system", "user") for message in messages):
        raise UserError(
            "environment verifiers: a task begins with turns of an assistant; write them into its"
            " prompt as text"
        )
    return "\n\n".join(text_of(message.content) for message in messages)
