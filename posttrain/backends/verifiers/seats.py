"""Agents of the library whose turns are asked for here, in place of a program behind a server.

`SeatTalk` does what `verifiers.v1.rollout.Rollout` does around a harness: task setup, stops,
limits, rewrites of requests, tools, finalize and scoring. What it has not is a box: a task that
asks for one is refused.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from posttrain.backends.mcp.session import Tool
from posttrain.backends.verifiers.library import opening, text_of
from posttrain.backends.verifiers.tools import ToolsInProcess, written_arguments
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    import asyncio


class SeatAsk(NamedTuple):
    """An agent is to speak."""

    role: str
    new: tuple[tuple[str, str], ...]
    """Author and text of what it has not read; `user`, or `tool:NAME`."""
    tools: Mapping[str, Tool]
    """What it may call."""


class SeatAnswer(NamedTuple):
    """What was said for an agent."""

    text: str
    cut: bool = False
    called: str = ""
    """Tool that the turn ends with a call of."""
    arguments: Mapping[str, Any] = {}
    wrong: str = ""
    """Why that is no call of one."""


class AsksSeats(Protocol):
    """An episode, as its agents see it."""

    turns: int
    """Most turns of the policy."""
    policy: str
    """Its agent's name."""
    tool_errors: int

    async def ask(self, ask: SeatAsk) -> SeatAnswer:
        """Wait for what an agent says."""

    def refuse(self, why: str) -> NoReturn:
        """End the episode by a sentence to the user, which the library must not swallow."""

    def role_of(self, name: str) -> str:
        """Name the role of an agent's next rollout."""

    def done(self, role: str, trace: Any) -> None:
        """Take note of a rollout that is over."""


class SeatAgent:
    """An agent of the library, for one episode; see `verifiers.v1.Agent`."""

    def __init__(self, episode: AsksSeats, env: Any, name: str, config: Any, gate: Any) -> None:
        """Sit down.

        Args:
            episode: That asks for its turns.
            env: Of the library, whose shared toolsets it has.
            name: Of its seat.
            config: Its `AgentConfig`.
            gate: Semaphore of the episode: one agent speaks at a time.

        """
        self.episode, self.env, self.name, self.config = episode, env, name, config
        self.trainable = True
        self._gate: asyncio.Semaphore = gate

    async def run(self, task: Any, **borrowed: Any) -> Any:
        """Play a task in one go; see `verifiers.v1.Agent.run`."""
        async with self._gate:
            talk = self._talk(task, borrowed)
            if await talk.open():
                await talk.step()
                if talk.ok:
                    talk.trace.stop("agent_completed")
            trace = await talk.close()
        self.episode.done(talk.role, trace)
        return trace

    @asynccontextmanager
    async def interaction(self, task: Any, **borrowed: Any) -> AsyncIterator[Any]:
        """Play a task turn by turn; see `verifiers.v1.Agent.interaction`."""
        from verifiers.v1 import Interaction

        talk = self._talk(task, borrowed)
        held: Any = Interaction(talk, gate=self._gate)
        try:
            async with self._gate:
                opened = await talk.open()
            if not opened and talk.failure is not None:
                raise talk.failure
            yield held
        except Exception as error:
            if talk.failure is None:
                talk.fail(error)
            raise
        finally:
            trace = await held.close()
            self.episode.done(talk.role, trace)

    def provision(self, task: Any = None) -> NoReturn:  # noqa: ARG002 - of the library
        """Refuse a box."""
        self.episode.refuse("its environment asks for a box to run programs in")

    def _talk(self, task: Any, borrowed: Mapping[str, Any]) -> "SeatTalk":
        if borrowed.get("runtime") is not None or borrowed.get("tools"):
            self.episode.refuse("its environment lends an agent a box or tools")
        talk = SeatTalk(self, task)
        if (watch := borrowed.get("on_trace")) is not None:
            watch(talk.trace)
        return talk


class SeatTalk:
    """One agent's rollout of a task; see `verifiers.v1.rollout.Rollout`."""

    def __init__(self, agent: SeatAgent, task: Any) -> None:
        """Begin a trace.

        Args:
            agent: Whose rollout it is.
            task: Of the library.

        """
        from verifiers.v1 import AgentInfo, Trace, TraceTask
        from verifiers.v1.state import state_cls

        self.agent, self.task = agent, task
        self.role = agent.episode.role_of(agent.name)
        told = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        info = AgentInfo(config=agent.config, name=agent.name, trainable=agent.trainable)
        self.trace = Trace(task=told, state=state_cls(type(task))(), agent=info)
        self.failure: Exception | None = None
        self.closed = False
        self._box = _NoBox(agent.episode)
        self._session = _session(self.trace, task, self._most_turns())
        self._tools = ToolsInProcess(self.trace)
        self._messages: list[Any] = []
        self._read = 0

    @property
    def ok(self) -> bool:
        """Whether it can go on; see `Rollout.ok`."""
        return self.failure is None and self.trace.stop_condition is None

    def fail(self, error: Exception) -> None:
        """Keep why it broke; see `Rollout.fail`."""
        self.failure = error
        self.trace.record_error(error)

    async def open(self) -> bool:
        """Set the task up, with its tools; see `Rollout.open`."""
        from verifiers.v1.utils.decorators import invoke

        task, episode = self.task, self.agent.episode
        if task.NEEDS_CONTAINER or task.data.image is not None or task.data.skills:
            episode.refuse("its tasks want a container of their own")
        if self._session.response_interceptors:
            episode.refuse("it rewrites what a model said, and a policy learns what it said itself")
        try:
            await invoke(task.setup, {"trace": self.trace, "runtime": self._box})
            shared = self.agent.env.taskset
            if isinstance(task, type(shared).task_type()):
                await self._tools.open(shared.toolsets(shared.config), None)
            await self._tools.open(task.toolsets(task.config), task.data)
        except UserError as error:
            episode.refuse(str(error))
        except Exception as error:  # noqa: BLE001 - as `Rollout.open` keeps whatever it is
            self.fail(error)
            return False
        if task.data.system_prompt is not None:
            from verifiers.v1 import SystemMessage

            self._messages.append(SystemMessage(content=task.data.system_prompt))
        return True

    async def step(
        self, messages: Sequence[Any] | None = None, *, on_input: Callable[[], None] | None = None
    ) -> bool:
        """Let the agent speak until it calls no tool; see `Rollout.step`.

        Args:
            messages: What its user says; None for the task's own prompt.
            on_input: Called once the agent has read it.

        Returns:
            Whether it spoke, and can go on.

        """
        from verifiers.v1 import UserMessage

        before = self.trace.num_turns
        prompt = self.task.data.prompt if messages is None else messages
        self._messages += [UserMessage(content=prompt)] if isinstance(prompt, str) else prompt or []
        if on_input is not None:
            on_input()
        try:
            while await self._turn():
                pass
        except UserError as error:
            self.agent.episode.refuse(str(error))
        except Exception as error:  # noqa: BLE001 - as `Rollout.step` keeps whatever it is
            self.fail(error)
            return False
        return self.ok and self.trace.num_turns > before

    async def steer(self, message: str, **_: Any) -> NoReturn:  # noqa: ARG002 - of the library
        """Refuse what is said while an agent speaks."""
        self.agent.episode.refuse("it speaks to an agent within a turn")

    async def close(self) -> Any:
        """Finish and score; see `Rollout.close`."""
        from verifiers.v1.utils.decorators import invoke

        if self.closed:
            return self.trace
        self.closed = True
        try:
            await self._tools.close()
            if self.failure is None:
                there = {"trace": self.trace, "runtime": self._box}
                await invoke(self.task.finalize, there)
                await self.task.score(self.trace, self._box)
        except Exception as error:  # noqa: BLE001 - as `Rollout.close` keeps whatever it is
            self.fail(error)
        self.trace.is_completed = True
        self.trace.ok = self.failure is None
        return self.trace

    async def abort(self) -> None:
        """Free what it holds, unscored; see `Rollout.abort`."""
        self.closed = True
        await self._tools.close()

    async def _turn(self) -> bool:
        """Ask for one turn, and call what it calls; whether another one follows."""
        from verifiers.v1 import ModelCall, Request, ToolMessage, graph

        trace, session, offered = self.trace, self._session, self._tools.described
        if await session.refused() is not None:
            return False
        asked = Request(messages=list(self._messages), tools=offered or None)
        asked, rewritten, stopped = await session.rewrite_request(asked)
        trace.request_rewrites.extend(rewritten)
        self._messages = list(asked.messages)
        turn = graph.prepare_turn(trace, self._messages, offered)
        if stopped is not None:
            turn.commit_prompt()
            trace.stop(stopped)
            return False
        said = await self.agent.episode.ask(self._asked())
        response = _response(said, f"call-{trace.num_turns}")
        response, _, stopped = await session.rewrite_response(response)
        node = turn.commit(response)
        trace.calls.append(ModelCall(node=node, finish_reason=response.finish_reason))
        session.consume_prepared(turn.tail)
        stopped = stopped or await session.gate_tool_calls(node)
        self._messages.append(response.message)
        self._read = len(self._messages)
        if stopped is not None:
            trace.stop(stopped)
        if stopped is not None or not said.called:
            return False
        text, wrong = said.wrong, True
        if not text:
            text, wrong = await self._tools.call(said.called, said.arguments)
        self.agent.episode.tool_errors += wrong
        (call,) = response.message.tool_calls
        self._messages.append(ToolMessage(tool_call_id=call.id, content=text, name=call.name))
        return True

    def _asked(self) -> SeatAsk:
        """What the agent has not read yet."""
        new = self._messages[self._read :]
        if not self._read:
            return SeatAsk(self.role, (("user", opening(new)),), self._tools.offered)
        told = [(_author(message), text_of(message.content)) for message in new]
        return SeatAsk(self.role, tuple(told), self._tools.offered)

    def _most_turns(self) -> int | None:
        config, episode = self.agent.config, self.agent.episode
        tokens = (config.max_input_tokens, config.max_output_tokens, config.max_total_tokens)
        if any(most is not None for most in tokens):
            episode.refuse("its agent has limits in tokens; set those of the stage")
        given: int | None = config.max_turns
        if self.agent.name != episode.policy:
            return given
        return episode.turns if given is None else min(given, episode.turns)


class _NoBox:
    """In place of a runtime: whatever is asked of it is refused."""

    def __init__(self, episode: AsksSeats) -> None:
        self.__dict__["_episode"] = episode

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        episode: AsksSeats = self.__dict__["_episode"]
        episode.refuse("its task runs programs in a box")


def _session(trace: Any, task: Any, most_turns: int | None) -> Any:
    """The library's own stops, limits and rewrites of a rollout."""
    from verifiers.v1 import Request, Response, Trace
    from verifiers.v1.session import RolloutLimits, RolloutSession, hook_boundary
    from verifiers.v1.utils.decorators import discover_decorated

    rewrites = discover_decorated(task, "intercept")
    rewrites_of = [(hook_boundary(each, allow_trace=False), each) for each in rewrites]
    stops_of = [(hook_boundary(each, allow_trace=True), each) for each in task.hooks("stop")]
    return RolloutSession(
        ctx=None,
        trace=trace,
        limits=RolloutLimits(max_turns=most_turns),
        trace_stops=[each for kind, each in stops_of if kind is Trace],
        request_stops=[each for kind, each in stops_of if kind is Request],
        response_stops=[each for kind, each in stops_of if kind is Response],
        request_interceptors=[each for kind, each in rewrites_of if kind is Request],
        response_interceptors=[each for kind, each in rewrites_of if kind is Response],
    )


def _response(said: SeatAnswer, name: str) -> Any:
    from verifiers.v1 import AssistantMessage, Response, ToolCall

    calls = None
    if said.called:
        arguments = written_arguments(said.arguments)
        calls = [ToolCall(id=name, name=said.called, arguments=arguments)]
    reason = "length" if said.cut else "tool_calls" if calls else "stop"
    message = AssistantMessage(content=said.text, tool_calls=calls)
    return Response(id=name, created=0, model="policy", message=message, finish_reason=reason)


def _author(message: Any) -> str:
    return f"tool:{message.name}" if message.role == "tool" else "user"
