"""The slot of the producers: what a part of it implements."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from posttrain.stage.errors import UserError
from posttrain.stage.slots import Part, name_of
from posttrain.stage.started import started

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from posttrain.data.schemas import Problem
    from posttrain.learning.curriculum.base import ProblemSampler
    from posttrain.learning.episodes.environments.base import Environment
    from posttrain.learning.episodes.players.base import PlayBench
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rewards.port_tables import PortTables
    from posttrain.learning.rl.rewarder import Rewarder
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rollouts.engines.base import Prompt, RolloutEngine, SamplingParams


@dataclass(frozen=True)
class Workbench:
    """What a producer works with for the whole run."""

    engine: "RolloutEngine"
    """Draws tokens from the present policy."""
    rewarder: "Rewarder"
    """Rewards answers, and remembers what its combination has to."""
    tokenizer: "PreTrainedTokenizerBase"
    """The policy's own."""
    policy: "Policy | None" = None
    """The policy itself, for players that need its weights; None where they are in several
    processes."""
    device: str = "cpu"
    """Where further models go, as torch names it."""
    players: Mapping[str, "Path"] = field(default_factory=dict)
    """Checkpoints that are connected to the port `players`, by name."""
    ports: Mapping[str, "Path"] = field(default_factory=dict)
    """What is connected to the stage, by port."""

    @cached_property
    def tables(self) -> "PortTables":
        """Tables that the stage's ports bring, such as `traces`."""
        from posttrain.learning.rewards.port_tables import PortTables

        return PortTables(self.ports)

    def table(self) -> "PlayBench":
        """Return what the players of episodes sit down with."""
        from posttrain.learning.episodes.players.base import PlayBench

        return PlayBench(self.engine, self.tokenizer, self.policy, self.device, self.players)


@dataclass(frozen=True)
class SamplingRound:
    """One round of sampling within a step."""

    step: int
    """0-based step that the rollouts will be learned from in."""
    params: "SamplingParams"
    """How to sample; `num_samples` is the size of a group, and the seed is this round's own."""
    first_group: int
    """Number of the first group that the round makes; groups are numbered through the step."""
    version: int
    """Steps that the policy which draws has learned from: below `step` where it draws ahead."""


class Production:
    """A started producer; `state_dict` holds what it changes from round to round."""

    @property
    def at_work_on(self) -> Collection[str]:
        """Ids of the problems whose rollouts are not done, and are gone on with in the next round.

        Nothing else is begun about them until then.
        """
        return ()

    @property
    def held_back(self) -> Collection[str]:
        """Ids of those of them of which the last round gave no group: all, unless it gives parts.

        A part is a rollout that is `unfinished`.
        """
        return self.at_work_on

    def use(self, producer: "Producer") -> None:
        """Go by the numbers of a step from now on; one without schedules need not.

        Args:
            producer: What was started, with its schedules applied.

        """

    @abstractmethod
    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Make the rollouts of one round.

        What is drawn may depend on the round, the policy and this producer's state alone, so that
        a resumed run draws the same.

        Args:
            problems: Different problems, ``[P]``.
            prompts: Their prompts as tokens, in the same order.
            at: Step, seed, size of a group, and the other settings of the round.

        Returns:
            One group of rollouts per problem, in the order of the problems. They have earned
            nothing yet: that is the rollouter's to ask for. One that carries rollouts over gives
            those groups that are not held back, first those of the problems that it was at work on.

        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as tensors and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class Producer(Part):
    """How the rollouts of a problem come about."""

    GIVES: ClassVar[frozenset[str]] = frozenset()
    """What rollouts have beside their tokens that an algorithm may need: `states`."""
    FOLLOWS: ClassVar[bool] = False
    """True where its numbers may be schedules: what it starts learns those of each step by
    `Production.use`, and it derives from `Schedulable` too."""

    UNMASKED: ClassVar[bool] = False
    """True where rollouts are rows with masks in them, of engines that unmask."""

    REPEATS: ClassVar[bool] = False
    """True where it can make several groups of one problem in a round, told apart by their
    prompts' ids."""

    @property
    def carried(self) -> int:
        """Most steps over which a rollout is carried that is not done; 0 where none is."""
        return 0

    def longest(self, max_tokens: int) -> int:
        """Return the most tokens that a rollout may draw.

        Args:
            max_tokens: Most tokens of one answer of the engine.

        """
        return max_tokens

    @property
    def players_asked(self) -> Mapping[str, str]:
        """The ports, such as `players.start`, that it asks for checkpoints -> who asks."""
        return {}

    @property
    def ports(self) -> Sequence[str]:
        """The ports whose tables it asks, such as `traces`."""
        return ()

    @property
    def rewords(self) -> str:
        """Say what of it writes prompts anew, and loses what stood before them; else empty."""
        return ""

    def played_in(self) -> "Environment | None":
        """Name what answers the policy; None where that is not known beforehand."""
        return None

    def start(self, bench: Workbench) -> Production:
        """Begin a run with an engine, a rewarder and the policy's tokenizer."""
        raise NotImplementedError


def start_producer(
    producer: Producer, bench: Workbench, *, sampler: "ProblemSampler | None" = None
) -> Production:
    """Start a producer, and check what it starts.

    Args:
        producer: The part.
        bench: What it works with.
        sampler: What chooses its problems; None where that was looked at before.

    Returns:
        What makes the rollouts.

    Raises:
        UserError: The sampler draws a problem several times in a step, and it cannot make that.

    """
    if sampler is not None and sampler.REPEATS and not producer.REPEATS:
        raise UserError(
            f"rl: {name_of(sampler)} draws a problem several times in a step, and"
            f" {name_of(producer)} makes one group of each; set rl.producer to plain"
        )
    return started(producer, producer.start(bench), Production, where="rl")


def refuse_produced(producer: Producer, made: "Sequence[Group]", *, due: Collection[str]) -> None:
    """Refuse other than a group of rollouts for each problem.

    Args:
        producer: Who made them.
        made: The groups.
        due: Ids of the problems that it was asked for, but of those that it is still at work on;
            one as often as groups of it were asked for.

    Raises:
        UserError: There are more or fewer groups, an empty one, or one of another problem.

    """
    of = {group[0].problem_id for group in made if group}
    if len(made) != len(due) or of != set(due):
        raise UserError(
            f"rl: {name_of(producer)}: `produce` was asked for {len(due)} problems and gave"
            f" {len(made)} groups; let it give a group of rollouts for each"
        )
