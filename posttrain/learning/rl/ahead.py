"""Rollouts that other processes make while the learner works, to the bits that it would have drawn.

Which policy draws a generation follows from its step and the staleness, and not from when anybody
is done: rollouts are begun at the step at which one process would draw them, with the weights of
then, and are taken in the order of the steps.
"""

import copy
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from posttrain.learning.models.load import Policy
from posttrain.learning.models.weight_bytes import Weights, read_weights, write_weights
from posttrain.learning.rl.gap import engine_gap
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.rl.producers.base import Producer, Production, Workbench, start_producer
from posttrain.learning.rl.rollout import Group
from posttrain.learning.rl.rollouter import Draft
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.engine import Engine
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.slots import name_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class MadeAhead(NamedTuple):
    """What became of a draft."""

    groups: list[Group]
    """Rollouts that have earned nothing yet."""
    gap: Mapping[str, float]
    """The engine against the trainer, by the weights that drew: later those are gone."""
    production: Mapping[str, Any] | None
    """What the producer remembers from now on; None where it remembers nothing."""
    seconds: float
    """By the clock."""


class Piece(NamedTuple):
    """What is to be made."""

    draft: Draft
    production: Mapping[str, Any] | None
    """What the producer remembers."""


class _Pool(Protocol):
    """Processes that have a worker each."""

    def equip(self, version: int, tools: Any) -> None: ...
    def begin(self, piece: Any) -> Any: ...
    def result(self, begun: Any) -> Any: ...
    def close(self) -> None: ...


class Ahead:
    """Makes rollouts beside the learner."""

    def __init__(self, pool: _Pool, model: "PreTrainedModel") -> None:
        self._pool, self._model = pool, model

    def begin(self, draft: Draft, production: Production, *, version: int) -> Any:
        """Have the rollouts of a draft made by the policy as it is now.

        Args:
            draft: What they are to be of.
            production: Of the run; what it remembers goes along.
            version: What the samples say of the policy.

        Returns:
            What `made` is asked with.

        """
        state = production.state_dict() or None
        self._pool.equip(version, read_weights(self._model))
        return self._pool.begin(Piece(draft, state))

    def made(self, begun: Any) -> MadeAhead:
        """Wait for what was begun; raises what was raised where it was made."""
        made: MadeAhead = self._pool.result(begun)
        return made


def remembers(production: Production) -> bool:
    """Whether what a production makes may depend on what it made before."""
    return bool(production.state_dict())


@dataclass(frozen=True)
class _Absent:
    """Stands for the rewarder, which stays with the learner: it may remember."""

    producer: str

    def __getattr__(self, name: str) -> NoReturn:
        raise UserError(
            f"rl: {self.producer} asks what rollouts earn while it makes them, and in another"
            " process than the learner's nobody can tell; set rl.ahead to 0"
        )


class ProductionWorker:
    """Makes rollouts with an engine of its own on a copy of the policy; a `PoolWorker`."""

    def __init__(
        self,
        engine: Engine,
        passes: ModelPasses,
        tokenizer: "PreTrainedTokenizerBase",
        producer: Producer,
        players: Mapping[str, Path],
        ports: Mapping[str, Path],
    ) -> None:
        self._passes = passes
        self._model = passes.trainable.model.to(passes.device)
        policy = Policy(self._model, tokenizer)
        self._open = ExitStack()
        self._engine = self._open.enter_context(open_engine(engine, policy))
        rewarder: Any = _Absent(name_of(producer))
        bench = Workbench(self._engine, rewarder, tokenizer, policy, passes.device, players, ports)
        self._production = start_producer(producer, bench)

    def equip(self, version: int, tools: Weights) -> None:
        """Take over weights.

        Args:
            version: Policy version that later samples carry.
            tools: Weights by name, as bytes.

        """
        write_weights(self._model, tools)
        self._engine.update(version)

    def do(self, piece: Piece) -> MadeAhead:
        """Make the rollouts of a draft."""
        started = time.perf_counter()
        draft, state = piece
        if state is not None:
            self._production.load_state_dict(state)
        self._production.use(draft.config.producer)
        groups = self._production.produce(draft.problems, draft.prompts, draft.at)
        self._passes.config = draft.config
        gap = engine_gap(self._passes, groups) if groups else {}
        after = self._production.state_dict() or None
        if state is None and after is not None:
            raise UserError(
                f"rl: {name_of(draft.config.producer)} began to remember while other processes drew"
                " ahead, which nobody could tell before; set rl.ahead to 0"
            )
        return MadeAhead(groups, gap, after, time.perf_counter() - started)

    def close(self) -> None:
        """Close the engine."""
        self._open.close()


@contextmanager
def drawing_ahead(
    count: int,
    engine: Engine,
    passes: ModelPasses,
    bench: Workbench,
    context: StageContext,
) -> Iterator[Ahead | None]:
    """Open processes that make rollouts, for as long as the context lasts.

    Args:
        count: How many; 0 for none.
        engine: What draws in each of them.
        passes: Of the learner; a copy of its policy goes to each.
        bench: Of the run.
        context: Of the stage; with a cluster, they are actors there.

    Yields:
        What has rollouts made there; None where there is none.

    """
    if not count:
        yield None
        return
    # A run that draws by itself loads nothing of a cluster.
    from posttrain.backends.cluster.connection import connected
    from posttrain.backends.cluster.local_pool import LocalPool
    from posttrain.backends.cluster.worker_pool import WorkerPool

    producer = passes.config.producer
    arguments = (
        engine,
        portable(passes),
        bench.tokenizer,
        producer,
        bench.players,
        bench.ports,
    )
    with ExitStack() as opened:
        pool: _Pool
        if context.ray is None:
            pool = LocalPool(count, ProductionWorker, *arguments)
        else:
            resources = context.ray.model_copy(update={"actors": count})
            ray = opened.enter_context(connected(resources))
            pool = WorkerPool(ray, resources, ProductionWorker, *arguments)
        opened.callback(pool.close)
        yield Ahead(pool, passes.trainable.model)


def portable(passes: ModelPasses) -> ModelPasses:
    """Reduce passes to the policy alone, as it can go to another process.

    Args:
        passes: Of the learner.

    Returns:
        Passes that draw and do not learn.

    """
    trainable = replace(passes.trainable, average=None, adapter=None, subnetwork=None)
    if passes.device != "cpu":
        trainable = replace(trainable, model=copy.deepcopy(trainable.model).cpu())
    return replace(passes, trainable=trainable, reference=None, critic=None)
