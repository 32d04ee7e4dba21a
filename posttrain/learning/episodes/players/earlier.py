"""A population of earlier selves: what the policy was at steps before."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from posttrain.learning.episodes.asked import Cue, Reply, Speaker
from posttrain.learning.episodes.environments.base import Environment
from posttrain.learning.episodes.players.base import PlayBench, Player, Seat
from posttrain.learning.episodes.players.checkpoint import engine_on
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.learning.episodes.drawing import Role
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine, SamplingParams


class EarlierPlayer(Player):
    """Let earlier states of the policy play, one drawn for each problem and role of a step.

    The policy as the run began is always among them. They are in the checkpoint.
    """

    SOURCE = "fictitious self-play against a pool of past policies: Heinrich et al. 2015"

    kind: Literal["earlier"] = "earlier"
    every: int = Field(default=10, ge=1)
    """Steps after which the policy, as it then is, joins the population."""
    most: int = Field(default=4, ge=2)
    """Members; the oldest but the first goes when another joins."""

    def beyond_processes(self, processes: int) -> str | None:
        """Say that it copies the whole policy; see `StageConfig.beyond_processes`."""
        if processes == 1:
            return None
        return (
            "player earlier keeps copies of the policy, which several processes share out; set"
            " resources.processes to 1, or let a checkpoint play"
        )

    def sit(self, table: PlayBench) -> Seat:
        """Make room for a copy of the policy; see `Player.sit`."""
        assert table.policy is not None
        return _Population(self, table, table.policy)


@dataclass
class _Population(Seat):
    config: EarlierPlayer
    table: PlayBench
    policy: "Policy"
    members: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Weights by the step that they were taken before."""
    _copy: "tuple[Policy, RolloutEngine] | None" = None

    def begin(self, step: int) -> None:
        """Let the present policy join, where it is time."""
        if step in self.members or step % self.config.every:
            return
        weights = self.policy.model.state_dict()
        self.members[step] = {name: each.detach().clone() for name, each in weights.items()}
        while len(self.members) > self.config.most:
            _, second, *_ = sorted(self.members)
            del self.members[second]

    def speaker(self, params: "SamplingParams") -> "_OfPopulation":
        return _OfPopulation(self, params)

    def role_of(self, member: int, params: "SamplingParams") -> "Role":
        """A copy of the policy with a member's weights."""
        from posttrain.learning.episodes.drawing import Role
        from posttrain.learning.models.load import Policy

        if self._copy is None:
            model = deepcopy(self.policy.model).eval().requires_grad_(requires_grad=False)
            copy = Policy(model, self.policy.tokenizer)
            self._copy = copy, engine_on(copy)
        policy, engine = self._copy
        policy.model.load_state_dict(self.members[member])
        engine.update(member)
        return Role(engine, policy.tokenizer, params, self.table.context, self.table.limits)

    def state_dict(self) -> dict[str, Any]:
        """The members' weights, by step."""
        return {str(step): weights for step, weights in self.members.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with these members."""
        self.members = {int(step): dict(weights) for step, weights in state.items()}


@dataclass(frozen=True)
class _OfPopulation(Speaker):
    population: _Population
    params: "SamplingParams"

    def reply(self, asked: Sequence[Cue], environment: Environment, *, seed: int) -> list[Reply]:
        """Let each member speak in the episodes of its problems; see `Speaker.reply`."""
        of = self.members_of(asked, seed)
        replies: dict[str, Reply] = {}
        for member in dict.fromkeys(of):
            those = [each for each, who in zip(asked, of, strict=True) if who == member]
            role = self.population.role_of(member, self.params)
            said = role.reply(those, environment, seed=seed)
            replies |= {each.episode: reply for each, reply in zip(those, said, strict=True)}
        return [replies[each.episode] for each in asked]

    def members_of(self, asked: Sequence[Cue], seed: int) -> list[int]:
        """Draw who plays each: all episodes of a problem meet the same member in a role."""
        members = sorted(self.population.members)
        draws = [purpose_seed(seed, "member", each.prompt.id, each.ask.role) for each in asked]
        return [Random(draw).choice(members) for draw in draws]
