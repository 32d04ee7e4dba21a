"""Prompts shared out among actors on a Ray cluster, each with an engine on the policy."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from posttrain.backends.cluster.connection import connected
from posttrain.backends.cluster.worker_pool import WorkerPool
from posttrain.learning.models.context import context_length
from posttrain.learning.models.load import Policy
from posttrain.learning.models.weight_bytes import Weights, read_weights, write_weights
from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams, check_prompts
from posttrain.learning.rollouts.engines.batches import cut, in_order
from posttrain.learning.rollouts.engines.engine import Engine
from posttrain.stage.errors import UserError
from posttrain.stage.resources import RayResources

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class RolloutWorker:
    """Draws samples from its copy of a policy; a `cluster.Worker` whose tools are weights."""

    def __init__(self, engine: Engine, policy: Policy, device: str, batch_size: int) -> None:
        self._model = policy.model.to(device)
        self._open = ExitStack()
        self._engine = self._open.enter_context(
            engine.open(Policy(self._model, policy.tokenizer), batch_size=batch_size)
        )

    def equip(self, version: int, tools: Weights) -> None:
        """Take over weights.

        Args:
            version: Policy version that later samples carry.
            tools: Weights by name, as bytes.

        """
        write_weights(self._model, tools)
        self._engine.update(version)

    def do(self, piece: tuple[Sequence[Prompt], SamplingParams]) -> list[Sample]:
        """The samples of some prompts, in their order."""
        prompts, params = piece
        return self._engine.sample(prompts, params)

    def close(self) -> None:
        """Close the engine."""
        self._open.close()


class RayRolloutEngine:
    """Samples through a pool of `RolloutWorker`s; see `base.RolloutEngine` for the contract.

    Prompts are cut into the batches that the torch engine would form in one process, so what is
    drawn does not depend on the number of actors, on which of them draws, or on one that is lost;
    with the torch engine it is what one process draws, bit for bit. `update` stores the weights
    once for all actors. An actor that has not got them yet fetches them before it draws: no sample
    comes from an older policy than the one it is stamped with.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        workers: WorkerPool,
        *,
        batch_size: int,
        policy_version: int = 0,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.workers = workers
        self.batch_size = batch_size
        self.update(policy_version)

    @property
    def context_length(self) -> int:
        """Positions that the model knows."""
        return context_length(self.model.config)

    def update(self, policy_version: int) -> None:
        """Send the policy's present weights to all actors; later samples carry this version."""
        self.workers.equip(policy_version, read_weights(self.model))

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Draw the batches on the actors; see `RolloutEngine.sample`."""
        check_prompts(prompts, context_length=self.context_length)
        pieces = cut(prompts, params, batch_size=self.batch_size)
        drawn = self.workers.do([([prompts[index] for index in piece], params) for piece in pieces])
        return in_order(pieces, drawn, params)


@contextmanager
def open_actors(
    engine: Engine, policy: Policy, resources: RayResources, *, batch_size: int
) -> Iterator[RayRolloutEngine]:
    """Open actors with an engine each, for as long as the context lasts.

    Args:
        engine: What draws in an actor.
        policy: Model and tokenizer, a copy of which each actor gets.
        resources: Address of the cluster, number of actors, CPUs and GPUs of each.
        batch_size: Sequences that an actor draws together.

    Yields:
        An engine that hands batches to the actors.

    Raises:
        UserError: The actors have a GPU and the stage has none, or the other way round.

    """
    device = policy.model.device.type
    if (device == "cuda") != (resources.gpus > 0):
        remedy = "set it to 1" if device == "cuda" else "leave it out, or set run.device to cuda"
        raise UserError(
            f"resources.ray: the stage computes on {device}, but gpus is {resources.gpus:g};"
            f" {remedy}"
        )
    with connected(resources) as ray:
        workers = WorkerPool(
            ray, resources, RolloutWorker, engine, _portable(policy), device, batch_size
        )
        try:
            yield RayRolloutEngine(policy.model, policy.tokenizer, workers, batch_size=batch_size)
        finally:
            workers.close()


def _portable(policy: Policy) -> Policy:
    """The policy as it can go to a machine without this one's device."""
    if policy.model.device.type == "cpu":
        return policy
    return Policy(copy.deepcopy(policy.model).cpu(), policy.tokenizer)
