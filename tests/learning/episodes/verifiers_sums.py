"""A taskset of the library verifiers: sums, with tools that count, and a stop."""

import random

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: int


class Counted(vf.State):
    calls: int = 0


class Desk(vf.Toolset[vf.ToolsetConfig, Counted]):
    @vf.tool
    def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        self.state.calls += 1
        return str(a + b)

    @vf.tool
    def fails(self) -> str:
        raise ValueError("not today")


class SumConfig(vf.TaskConfig):
    tools: bool = False
    box: bool = False


class SumTask(vf.Task[SumData, Counted, SumConfig]):
    @classmethod
    def toolsets(cls, config):
        return [Desk(vf.ToolsetConfig())] if config.tools else []

    async def setup(self, trace, runtime):
        trace.info["luck"] = random.random()
        if self.config.box:
            await runtime.run(["true"], {})

    @vf.stop
    async def gives_up(self, trace: vf.Trace) -> bool:
        return "no idea" in trace.last_reply

    @vf.reward(weight=0.75)
    async def right(self, trace) -> float:
        if "crash" in trace.last_reply:
            raise RuntimeError("the scorer broke")
        return float(trace.last_reply == str(self.data.answer))

    @vf.reward(weight=0.25)
    async def short(self, trace) -> float:
        return float(len(trace.last_reply) < 4)

    @vf.reward(weight=0.125)
    async def counted(self, trace) -> float:
        return float(trace.state.calls)


class SumsConfig(vf.TasksetConfig):
    number: int = 5
    task: SumConfig = SumConfig()


class Sums(vf.Taskset[SumTask, SumsConfig]):
    def load(self):
        for n in range(self.config.number):
            data = SumData(prompt=f"{n} + 1?", system_prompt="Add.", answer=n + 1)
            yield SumTask(data, self.config.task)


__all__ = ["Sums"]
