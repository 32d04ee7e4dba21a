"""A critic of turns: what was said in each is worth, and the situation in which it was said."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from posttrain.learning.algorithms.turn_values.base import EpisodeTurns, TurnReadings
from posttrain.learning.models.held_weights import plain_copy
from posttrain.learning.models.logprobs import hidden_states
from posttrain.learning.models.narrow import widen_weights
from posttrain.learning.models.optim import Optimizer
from posttrain.learning.rl.rollout import Rollout

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TurnBatch(NamedTuple):
    """Episodes as padded tensors; entry `[b, k]` belongs to the k-th turn with drawn tokens."""

    input_ids_BT: Tensor
    before_BK: Tensor
    """Place of the token before the first one that was drawn in a turn."""
    last_BK: Tensor
    """Place of the last one that was."""
    turns: EpisodeTurns


class TurnCritic:
    """Heads on its own copy of the starting policy, and a second such critic that follows it.

    One pass reads all turns of an episode: what a turn is worth where its last token was drawn, its
    situation at the token before its first. The heads of one reading begin apart from each other.
    """

    def __init__(self, policy: "PreTrainedModel", *, seed: int, follows: bool) -> None:
        self.critic = _Reader(policy, seed=seed)
        self.target = copy.deepcopy(self.critic) if follows else None
        parameters = self.critic.trained()
        adamw = torch.optim.AdamW(parameters, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
        self.optimizer = Optimizer(parameters, {"turn_critic": adamw})

    def read(self, batch: TurnBatch) -> tuple[TurnReadings, TurnReadings]:
        """Read all turns, with gradient where the caller has it.

        Args:
            batch: The episodes.

        Returns:
            What the critic says, and without gradient what targets are read from: the critic that
            follows, or the same where there is none.

        """
        own = self.critic(batch)
        if self.target is None:
            return own, TurnReadings(*(each.detach() for each in own))
        with torch.no_grad():
            return own, self.target(batch)

    def follow(self, rate: float) -> None:
        """Move the critic that follows a part of the way."""
        if self.target is None:
            return
        pairs = zip(self.target.trained(), self.critic.trained(), strict=True)
        with torch.no_grad():
            for behind, ahead in pairs:
                behind.lerp_(ahead, rate)

    def state_dict(self) -> dict[str, Any]:
        """Both critics and the optimizer."""
        behind = {} if self.target is None else self.target.weights()
        return {
            "critic": self.critic.weights(),
            "target": behind,
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.critic.take(state["critic"])
        if self.target is not None:
            self.target.take(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])


class _Reader(nn.Module):
    """A trunk and its heads."""

    def __init__(self, policy: "PreTrainedModel", *, seed: int) -> None:
        super().__init__()
        self.trunk = plain_copy(policy).eval()
        widen_weights(self.trunk)
        like: Any = self.trunk.get_input_embeddings().weight
        drawn = torch.Generator().manual_seed(seed)
        self.said = nn.ModuleList([_head(like, drawn), _head(like, drawn)])
        self.begun = nn.ModuleList([_head(like, drawn), _head(like, drawn)])
        self.posed = _head(like, drawn)

    def forward(self, batch: TurnBatch) -> TurnReadings:
        hidden_BTD = hidden_states(self.trunk, batch.input_ids_BT)
        begun_BKD, said_BKD = _at(hidden_BTD, batch.before_BK), _at(hidden_BTD, batch.last_BK)
        posed_B: Tensor = self.posed(begun_BKD[:, 0])[..., 0].float()
        return TurnReadings(
            said_BKH=torch.cat([head(said_BKD) for head in self.said], dim=-1).float(),
            begun_BKH=torch.cat([head(begun_BKD) for head in self.begun], dim=-1).float(),
            posed_B=posed_B,
        )

    def trained(self) -> list[nn.Parameter]:
        """What learns; an output head of the trunk is never asked."""
        trunk = [p for p in self.trunk.base_model.parameters() if p.requires_grad]
        heads = (self.said, self.begun, self.posed)
        return [*(p for head in heads for p in head.parameters()), *trunk]

    def weights(self) -> dict[str, Any]:
        """All that `take` needs."""
        return {
            "said": dict(self.said.state_dict()),
            "begun": dict(self.begun.state_dict()),
            "posed": dict(self.posed.state_dict()),
            "trunk": dict(self.trunk.base_model.state_dict()),
        }

    def take(self, weights: Mapping[str, Any]) -> None:
        """Go on from these weights."""
        self.said.load_state_dict(weights["said"])
        self.begun.load_state_dict(weights["begun"])
        self.posed.load_state_dict(weights["posed"])
        self.trunk.base_model.load_state_dict(weights["trunk"])


def turn_batch(
    episodes: Sequence[Rollout], *, fresh: Sequence[bool], pad: int, device: str
) -> TurnBatch:
    """Lay episodes out by their turns.

    Args:
        episodes: What a role did in each; its segments are joined.
        fresh: Which of them are there as the present policy's.
        pad: Id of the padding token.
        device: Where the tensors go.

    Returns:
        The batch. A turn in which nothing was drawn is none.

    """
    spans = [_turn_ends(episode) for episode in episodes]
    rewards = [rewards_by_turn(episode) for episode in episodes]
    width = max(1, *map(len, spans))
    longest = max(len(episode.token_ids) for episode in episodes)

    def padded(rows: Sequence[Sequence[float]], width: int, fill: float = 0) -> Tensor:
        return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], device=device)

    return TurnBatch(
        input_ids_BT=padded([episode.token_ids for episode in episodes], longest, pad),
        before_BK=padded([[begin - 1 for begin, _ in row] for row in spans], width).long(),
        last_BK=padded([[end - 1 for _, end in row] for row in spans], width).long(),
        turns=EpisodeTurns(
            rewards_BK=padded(rewards, width).float(),
            taken_BK=padded([[1] * len(row) for row in spans], width).bool(),
            fresh_B=torch.tensor(list(fresh), device=device),
        ),
    )


def rewards_by_turn(episode: Rollout) -> list[float]:
    """Lay what an episode earned on its turns: what their tokens were paid, the rest on the last.

    Args:
        episode: With its reward; one that could not be judged earned nothing.

    Returns:
        A number for each turn in which something was drawn.

    """
    counts = episode.drawn_by_turn
    if not counts:
        return []
    paid, found, place = episode.token_rewards, [], 0
    for count in counts:
        found.append(math.fsum(paid[place : place + count]))
        place += count
    found[-1] += (episode.reward or 0.0) - math.fsum(paid)
    return found


def _turn_ends(episode: Rollout) -> list[tuple[int, int]]:
    """Where the drawn tokens of each turn begin, and where they end."""
    found: dict[int, tuple[int, int]] = {}
    for span in episode.spans:
        if span.drawn and span.end > span.begin:
            begin, _ = found.get(span.turn, (span.begin, 0))
            found[span.turn] = (begin, span.end)
    return list(found.values())


def _at(hidden_BTD: Tensor, place_BK: Tensor) -> Tensor:
    index_BKD = place_BK[..., None].expand(-1, -1, hidden_BTD.shape[-1])
    return hidden_BTD.gather(1, index_BKD)


def _head(like: Tensor, drawn: torch.Generator) -> nn.Sequential:
    """Two layers, drawn from a generator of their own: no other stream of the run is touched."""
    width = like.shape[1]
    # On "meta" nothing is drawn.
    layers = (nn.Linear(width, size, device="meta") for size in (width, 1))
    inner, outer = (layer.to_empty(device="cpu") for layer in layers)
    bound = 1 / math.sqrt(width)
    with torch.no_grad():
        for layer in (inner, outer):
            layer.weight.uniform_(-bound, bound, generator=drawn)
            layer.bias.zero_()
    return nn.Sequential(inner, nn.ReLU(), outer).to(like.device, like.dtype)
