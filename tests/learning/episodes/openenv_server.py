"""A server of OpenEnv, the package's own, at a port: guess a digit."""

import sys

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    message: str


class Heard(Observation):
    text: str


class Digit(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, add=0, **kwargs):
        self.digit = (seed + add) % 10
        return Heard(text="a digit?")

    def step(self, action, timeout_s=None, **kwargs):
        guess = int(action.message)
        if guess == self.digit:
            return Heard(text="right", reward=2.0, done=True)
        return Heard(text="more" if guess < self.digit else "less", reward=0.25)

    @property
    def state(self):
        return State()


app = create_fastapi_app(Digit, Guess, Heard, max_concurrent_envs=2)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
