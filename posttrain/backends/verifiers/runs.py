"""Episodes of the library that wait for what is said in them, in this process's own loop.

Between two turns of ours an episode goes on alone, with the process's chance seeded for it: what it
draws depends on no other episode.
"""

import asyncio
import copy
from collections.abc import Mapping
from threading import RLock
from typing import Any, NamedTuple, NoReturn

from posttrain.backends.verifiers.library import LibraryEnv, chance, event_loop
from posttrain.backends.verifiers.seats import SeatAgent, SeatAnswer, SeatAsk
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_hasher

_LOCK = RLock()
"""Episodes take turns with the loop and with the process's chance."""


class EpisodeEnd(NamedTuple):
    """How an episode ended."""

    rewards: Mapping[str, float]
    """Role -> weighted sum of what its rollouts were scored with."""
    failed: str = ""
    """Why it broke; such an episode has no rewards."""


class EpisodeRun:
    """An episode that is under way."""

    def __init__(
        self,
        env: LibraryEnv,
        task: Any,
        *,
        policy: str,
        named: Mapping[str, str],
        turns: int,
        seconds: float,
        seed: int,
    ) -> None:
        """Begin an episode, and go on until somebody is asked.

        Args:
            env: Where it is played.
            task: Of its taskset.
            policy: Name of the policy's agent.
            named: Role of each agent, by its name.
            turns: Most turns of the policy, behind which the episode is scored as it stands.
            seconds: Most that are waited for what comes next.
            seed: Of what is drawn until then.

        Raises:
            UserError: It asks for what there is not here.

        """
        self.turns, self.policy, self.tool_errors = turns, policy, 0
        self.asked: SeatAsk | None = None
        """Who is to speak; None where the episode is over."""
        self.end: EpisodeEnd | None = None
        self.told = sha256_hasher()
        """Of all that was asked, so that a replay can be held against it."""
        self._named, self._seconds = named, seconds
        self._rollouts: dict[str, int] = {}
        self._traces: list[tuple[str, Any]] = []
        self._refused = ""
        self._answer: asyncio.Future[SeatAnswer] | None = None
        with _LOCK:
            self._asks = asyncio.Event()
            played = self._env(env.env).run_episode(task, None)
            self._played = event_loop().create_task(played)
            self._go_on(seed)

    def answer(self, said: SeatAnswer, seed: int) -> None:
        """Say what was asked for, and go on until somebody is asked again.

        Args:
            said: By who was asked.
            seed: Of what is drawn from here on.

        Raises:
            UserError: It asks for what there is not here.

        """
        with _LOCK:
            assert self._answer is not None
            self.asked, self.tool_errors = None, 0
            self._asks.clear()
            self._answer.set_result(said)
            self._go_on(seed)

    def close(self) -> None:
        """End it as it stands, unscored."""
        with _LOCK:
            if not self._played.done():
                self._played.cancel()
                event_loop().run_until_complete(asyncio.wait({self._played}, timeout=1.0))

    async def ask(self, ask: SeatAsk) -> SeatAnswer:
        """Wait for what an agent says; see `AsksSeats.ask`."""
        self.asked = ask
        self.told.update(repr((ask.role, ask.new)).encode())
        self._answer = event_loop().create_future()
        self._asks.set()
        return await self._answer

    def refuse(self, why: str) -> NoReturn:
        """End the episode by a sentence; see `AsksSeats.refuse`."""
        remedy = "" if why.startswith("environment verifiers: ") else "; take another environment"
        self._refused = self._refused or f"{why}{remedy}"
        raise RuntimeError(why)

    def role_of(self, name: str) -> str:
        """Name a role: a further rollout of an agent is another one; see `AsksSeats.role_of`."""
        number = self._rollouts[name] = self._rollouts.get(name, 0) + 1
        if name == self.policy and number > 1:
            self.refuse(f"its agent {name}, which is the policy, has several rollouts an episode")
        if name not in self._named:
            self.refuse(
                f"environment verifiers: the agent {name} is to speak, and nobody is named for it;"
                f" write `others: [{name}]` there and in the stage"
            )
        return self._named[name] if number == 1 else f"{self._named[name]}:{number}"

    def done(self, role: str, trace: Any) -> None:
        """Keep a rollout; see `AsksSeats.done`."""
        self._traces.append((role, trace))
        self._completed.append(trace)

    def _env(self, env: Any) -> Any:
        """The environment with our agents in place of the library's."""
        from verifiers.v1 import Agents

        mine = copy.copy(env)

        def seated(_: Any, completed: list[Any], *watch: Any) -> Any:  # noqa: ARG001
            self._completed = completed
            gate = asyncio.Semaphore(1)
            return Agents(env.config, lambda name, of: SeatAgent(self, mine, name, of, gate))

        mine._episode_agents = seated
        return mine

    def _go_on(self, seed: int) -> None:
        with chance(seed):
            event_loop().run_until_complete(self._until_asked())
        if self._refused:
            self.close()
            whose = "" if self._refused.startswith("environment ") else "environment verifiers: "
            raise UserError(f"{whose}{self._refused}")
        if self._played.done():
            self.asked = None
            self.end = self._ended()
        elif self.asked is None:
            self.close()
            self.end = EpisodeEnd({}, f"it does not go on in {self._seconds:g} s")

    async def _until_asked(self) -> None:
        asks = asyncio.ensure_future(self._asks.wait())
        done = asyncio.FIRST_COMPLETED
        await asyncio.wait({self._played, asks}, timeout=self._seconds, return_when=done)
        asks.cancel()

    def _ended(self) -> EpisodeEnd:
        if (error := self._played.exception()) is not None:
            return EpisodeEnd({}, f"{type(error).__name__}: {error}")
        episode = self._played.result()
        if not episode.ok:
            errors = [*episode.errors, *(each for _, of in self._traces for each in of.errors)]
            return EpisodeEnd({}, errors[0].message if errors else "it did not come to its end")
        return EpisodeEnd({role: float(trace.reward) for role, trace in self._traces})
