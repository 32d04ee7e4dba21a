"""A server elsewhere that holds the policy."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.backends.endpoint.config import Endpoint
from posttrain.learning.rollouts.engines.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine


class ServerEngine(Engine):
    """An OpenAI-compatible server that serves the stage's policy and returns token ids.

    For stages whose policy stands still: what is served cannot take over new weights, and a run
    that asks it to is refused. Nothing can check that the weights there are the stage's.

    Source: own client; OpenAI's completions.
    """

    kind: Literal["server"] = "server"
    endpoint: Endpoint
    """Where the policy answers."""
    context_length: int | None = Field(default=None, ge=1)
    """Tokens that it can attend to; null asks the server."""
    processed_logprobs: bool = False
    """The server was started with `--logprobs-mode processed_logprobs`."""

    def remarks(self) -> tuple[str, ...]:
        """Say that what is served is taken on trust; see `StageConfig.remarks`."""
        return (
            f"engine server: nothing checks that model {self.endpoint.model} at"
            f" {self.endpoint.base_url} has the weights of the stage's policy, and what it draws"
            " counts as this policy's; serve the very folder that the stage is given",
        )

    @contextmanager
    def open(self, policy: "Policy", *, batch_size: int) -> "Iterator[RolloutEngine]":
        """Connect; of the policy only the tokenizer is used; see `Engine.open`."""
        from posttrain.backends.endpoint.client import open_client
        from posttrain.learning.rollouts.engines.server import ServerRolloutEngine

        yield ServerRolloutEngine(
            open_client(self.endpoint),
            policy.tokenizer,
            context_length=self.context_length,
            processed_logprobs=self.processed_logprobs,
        )
