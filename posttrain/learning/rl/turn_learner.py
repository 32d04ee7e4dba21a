"""Values of turns that are learned from stored episodes, step by step, beside the policy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from posttrain.data.batching import length_buckets
from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.algorithms.advantages.learned import LearnedAdvantage
from posttrain.learning.algorithms.turn_values.base import TurnValues
from posttrain.learning.models.load import Policy
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.familiar import LogprobsOf, Recalled, familiar
from posttrain.learning.rl.rollout import (
    Group,
    Rollout,
    as_one,
    from_values,
    places_of_wholes,
    plain,
)
from posttrain.learning.rl.store import stored_groups
from posttrain.learning.rl.turn_critic import TurnBatch, TurnCritic, turn_batch
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed, shuffler

EpisodeRows = list[Rollout]
"""What a role did in an episode: one segment, or several."""
BEFORE = -1
"""The policy version of what was drawn before the run."""


@dataclass
class EpisodeStore:
    """Episodes in the order in which they were drawn, the oldest gone where there are too many."""

    episodes: list[EpisodeRows] = field(default_factory=list)

    def add(self, episodes: Sequence[EpisodeRows], *, capacity: int) -> None:
        """Keep more of them.

        Args:
            episodes: What is added, in its order.
            capacity: The most that are kept.

        """
        self.episodes = [*self.episodes, *episodes][-capacity:]

    def state_dict(self) -> dict[str, Any]:
        """Plain values; each episode apart."""
        return {"episodes": [plain([rows]) for rows in self.episodes]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.episodes = [[from_values(row) for row in rows] for rows in state["episodes"]]


@dataclass
class TurnLearner:
    """The store, the critic that learns from it, and what the policy is told of both.

    All that is random in a step follows from the seed and the step, so a step that is run again is
    the same step.
    """

    critic: TurnCritic
    pad: int
    device: str
    seed: int
    store: EpisodeStore = field(default_factory=EpisodeStore)
    measured: dict[str, float] = field(default_factory=dict)
    """Of the present step, by the names of the metrics."""
    _seen: list[float] = field(default_factory=list)
    _num_fresh: int = 0
    """Stored episodes, the last ones, that were drawn for the present step."""

    def begin(self, groups: Sequence[Group]) -> None:
        """Store what was drawn before the run, by whomever; a capacity counts from the first step.

        Args:
            groups: Of the table, in their order.

        """
        self.store.episodes = [
            [row._replace(versions=(BEFORE,) * len(row.versions)) for row in rows]
            for rows in usable(groups)
        ]

    def learn(self, groups: Sequence[Group], config: RlConfig, *, step: int) -> None:
        """Store what was drawn for a step, and teach the critic.

        Args:
            groups: Those that the learner was given; what could not be judged is not stored.
            config: Of the step.
            step: Counted from 0.

        """
        values = values_of(config)
        fresh = usable(groups)
        self.store.add(fresh, capacity=values.capacity)
        stored = self.store.episodes
        self._num_fresh = min(len(fresh), len(stored))
        self.measured, self._seen = {"turn_values_stored": float(len(stored))}, []
        if not stored:
            return
        draw = shuffler(self.seed, "turn_values", step)
        totals = {"turn_values_loss": 0.0, "turn_values_grad_norm": 0.0}
        for _ in range(values.updates):
            chosen = draw.choices(stored, k=values.episodes)
            if values.FRESH and fresh:
                chosen += draw.choices(fresh, k=values.episodes)
            loss, norm = self._update(chosen, values, config, step=step)
            totals["turn_values_loss"] += loss / values.updates
            totals["turn_values_grad_norm"] += norm / values.updates
        self.measured |= totals

    def advantages(self, wholes: Sequence[Rollout], config: RlConfig) -> list[tuple[float, ...]]:
        """Say how much better each turn was than its situation, by the critic as it is now.

        Args:
            wholes: What roles did in episodes, their segments joined.
            config: Of the step.

        Returns:
            A number for each drawn token of each whole, that of its turn.

        """
        values = values_of(config)
        found: dict[int, tuple[float, ...]] = {}
        for places, batch in self.batches(wholes, 0, config):
            with torch.no_grad():
                advantages_BK = values.advantages(*self.critic.read(batch), batch.turns)
            self._note(advantages_BK[batch.turns.taken_BK].tolist())
            for place, row_K in zip(places, advantages_BK.tolist(), strict=True):
                counts = wholes[place].drawn_by_turn
                found[place] = tuple(
                    value for value, count in zip(row_K, counts, strict=False) for _ in range(count)
                )
        return [found[place] for place in range(len(wholes))]

    def teaches_present(self, config: RlConfig, *, step: int) -> bool:
        """Say whether the policy learns from what it drew for a step.

        Args:
            config: Of the step.
            step: Counted from 0.

        Returns:
            False where stored episodes alone teach it, and while the critic learns alone.

        """
        values = values_of(config)
        return values.teach != "stored" and step >= values.warmup

    def recall(self, config: RlConfig, logprobs_of: LogprobsOf, *, step: int) -> list[Recalled]:
        """Choose the stored episodes that the policy learns from in a step.

        Args:
            config: Of the step.
            logprobs_of: Asks the present policy, where the values choose by what it says.
            step: Counted from 0.

        Returns:
            The episodes, each in a group of its own; none where the policy learns from what it just
            drew alone.

        """
        values = values_of(config)
        chosen: list[Recalled] = []
        if values.teach != "present" and step >= values.warmup and self.store.episodes:
            draw = shuffler(self.seed, "recalled", step)
            if values.familiar is None:
                pool = self._kept(values, config)
                chosen = [Recalled.whole(rows) for rows in draw.choices(pool, k=values.recalled)]
            else:
                chosen = familiar(
                    self.store.episodes[: len(self.store.episodes) - self._num_fresh],
                    bounds=values.familiar,
                    most=values.recalled,
                    draw=draw,
                    logprobs_of=logprobs_of,
                )
        self.measured["turn_values_recalled"] = float(len(chosen))
        self.measured["turn_values_recalled_turns"] = float(sum(each.num_turns for each in chosen))
        # Their groups' numbers are those of other steps.
        return [
            Recalled([row._replace(group=-1 - place) for row in each.rows], each.taught)
            for place, each in enumerate(chosen)
        ]

    def batches(
        self, wholes: Sequence[Rollout], num_stored: int, config: RlConfig
    ) -> list[tuple[list[int], TurnBatch]]:
        """Lay episodes of similar length out together.

        Args:
            wholes: What roles did in episodes, their segments joined.
            num_stored: How many of them are there as stored ones; those behind them are fresh.
            config: Of the step.

        Returns:
            Batches, each with the places of its episodes.

        """
        lengths = [len(whole.token_ids) for whole in wholes]
        cut = length_buckets(range(len(wholes)), lengths, config.updates.micro_batch_tokens)
        return [
            (
                places,
                turn_batch(
                    [wholes[place] for place in places],
                    fresh=[place >= num_stored for place in places],
                    pad=self.pad,
                    device=self.device,
                ),
            )
            for places in cut
        ]

    def state_dict(self) -> dict[str, Any]:
        """The critic's, and all that is stored."""
        return {"critic": self.critic.state_dict(), "store": self.store.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.critic.load_state_dict(state["critic"])
        self.store.load_state_dict(state["store"])

    def _note(self, advantages: Sequence[float]) -> None:
        """Measure the turns that the policy learns from."""
        self._seen += advantages
        positive = sum(each > 0 for each in self._seen)
        self.measured["turn_advantage"] = math.fsum(self._seen) / max(1, len(self._seen))
        self.measured["turn_advantage_positive"] = positive / max(1, len(self._seen))

    def _update(
        self, chosen: Sequence[EpisodeRows], values: TurnValues, config: RlConfig, *, step: int
    ) -> tuple[float, float]:
        """One update of the critic: the mean loss of a turn, and the norm of its gradient."""
        wholes = [as_one(rows) for rows in chosen]
        num_turns = sum(len(each.drawn_by_turn) for each in wholes)
        total = 0.0
        for _, batch in self.batches(wholes, values.episodes, config):
            read, target = self.critic.read(batch)
            loss_BK = values.loss(read, target, batch.turns)
            loss = torch.where(batch.turns.taken_BK, loss_BK, 0.0).sum() / num_turns
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        optimization = config.optimization
        norm = self.critic.optimizer.clip(optimization.max_grad_norm)
        per_step = config.updates_per_step
        factor = optimization.factor(step * per_step, num_steps=config.steps * per_step)
        self.critic.optimizer.move(factor * config.critic.learning_rate)
        if values.follows is not None:
            self.critic.follow(values.follows)
        return total, norm

    def _kept(self, values: TurnValues, config: RlConfig) -> list[EpisodeRows]:
        """The stored episodes that stand high enough."""
        stored = self.store.episodes
        if values.kept >= 1.0:
            return stored
        wholes = [as_one(rows) for rows in stored]
        standing: dict[int, float] = {}
        for places, batch in self.batches(wholes, 0, config):
            with torch.no_grad():
                read, _ = self.critic.read(batch)
                found_B = values.standing(read, batch.turns)
            standing |= dict(zip(places, found_B.tolist(), strict=True))
        ranked = torch.tensor([standing[place] for place in range(len(stored))])
        least = float(torch.quantile(ranked, 1 - values.kept))
        return [rows for place, rows in enumerate(stored) if standing[place] >= least]


def build_turn_learner(
    policy: Policy, config: RlConfig, context: StageContext, episodes: Path | None
) -> TurnLearner | None:
    """Put together what learns from stored episodes, where the algorithm asks for it.

    Args:
        policy: The policy as it begins, which the critic is a copy of.
        config: The stage's config.
        context: Device and seed.
        episodes: ROLLOUTS that are stored before any is drawn; None for none.

    Returns:
        The learner; None where the advantage is not learned.

    Raises:
        UserError: The rollouts are of another tokenizer.

    """
    if "turn_values" not in config.algorithm.needs:
        return None
    learner = TurnLearner(
        critic=TurnCritic(
            policy.model,
            seed=purpose_seed(context.seed, "turn_critic"),
            follows=values_of(config).follows is not None,
        ),
        pad=int(policy.tokenizer.pad_token_id),
        device=context.device,
        seed=context.seed,
    )
    if episodes is not None:
        steps = stored_groups(read_table(episodes, ROLLOUTS))
        groups = [group for _, of_step in steps for group in of_step]
        known = policy.model.get_input_embeddings().weight.shape[0]
        if any(max(row.token_ids) >= known for group in groups for row in group):
            raise UserError(
                "rl.inputs.episodes: there are tokens that this policy has not, so another"
                " tokenizer wrote them; connect rollouts of a policy with the same tokenizer"
            )
        learner.begin(groups)
    return learner


def values_of(config: RlConfig) -> TurnValues:
    """The values that an algorithm asks for, which must be one that does."""
    advantage = config.algorithm.advantage
    assert isinstance(advantage, LearnedAdvantage)
    return advantage.values


def usable(groups: Sequence[Group]) -> list[EpisodeRows]:
    """What roles did in episodes, where something was drawn and could be judged."""
    found = [[group[at] for at in places] for group in groups for places in places_of_wholes(group)]
    return [rows for rows in found if rows[-1].judged and any(row.num_drawn for row in rows)]
