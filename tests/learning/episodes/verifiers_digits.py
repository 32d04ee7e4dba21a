"""An environment of the library verifiers: guess a digit, told by the environment as the user."""

import asyncio
import itertools
import random

import verifiers.v1 as vf


class DigitsConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()
    waits: float = 0.0


class DigitsEnv(vf.Env[DigitsConfig]):
    async def run(self, task, agents):
        digit = random.randrange(10)
        async with agents.player.interaction(task) as held:
            segment = await held.turn()
            while not segment.terminated and segment.last_reply != str(digit):
                await asyncio.sleep(self.config.waits)
                if segment.last_reply == "twice":
                    await agents.player.run(task)
                luck = random.randrange(1000)
                more = segment.last_reply.isdigit() and int(segment.last_reply) < digit
                segment = await held.turn(f"{'more' if more else 'less'} {luck}")
        held.trace.record_reward("tries", 2.0 / held.trace.num_turns)


class Digits(vf.Taskset[vf.Task, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        for n in itertools.count():
            yield vf.Task(vf.TaskData(prompt=f"digit {n}?"))


__all__ = ["Digits", "DigitsEnv"]
