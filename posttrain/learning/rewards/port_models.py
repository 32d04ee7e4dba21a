"""The models that a stage's ports bring to its reward: loaded once, when they are first asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from posttrain.data.batching import length_buckets
from posttrain.learning.models.load import Policy, load_policy
from posttrain.learning.models.logprobs import hidden_states, token_logprobs
from posttrain.learning.models.pair_model import PairModel, load_pair_model
from posttrain.learning.models.reward_head import RewardModel, load_reward_model
from posttrain.learning.models.tokenizer import check_same_tokenizer
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

M = TypeVar("M")
REWARD_MODELS, REFERENCES = "reward_models", "references"
"""Ports that take many, by the names that components give."""
_BATCH_TOKENS = 16384


@dataclass
class PortModels:
    """Models by the port that brings them, such as `reward_models.helpful`."""

    paths: Mapping[str, Path] = field(default_factory=dict)
    """Folders, and tables' files, by port."""
    device: str = "cpu"
    """Where the weights go, as torch names it."""
    tokenizer: "PreTrainedTokenizerBase | None" = None
    """The policy's, whose tokens a reference is given."""
    _loaded: dict[str, Any] = field(default_factory=dict)

    def reward_model(self, name: str) -> RewardModel:
        """Return a model that scores texts, by its name among `reward_models`."""
        return self._once(
            f"{REWARD_MODELS}.{name}", lambda path: load_reward_model(path, device=self.device)
        )

    def pair_model(self, name: str) -> PairModel:
        """Return a model that compares two texts, by its name among `reward_models`."""
        return self._once(
            f"{REWARD_MODELS}.{name}", lambda path: load_pair_model(path, device=self.device)
        )

    def reference(self, name: str) -> Policy:
        """Return a policy that reads the drawn tokens, by its name among `references`."""
        return self._once(f"{REFERENCES}.{name}", self._load_reference)

    def _path(self, port: str) -> Path:
        if port not in self.paths:
            hint = nearest(port, self.paths) or "; connect it under `inputs`"
            raise UserError(f"rl: a reward component asks for the port {port}{hint}")
        return self.paths[port]

    def _once(self, port: str, load: Callable[[Path], M]) -> M:
        if port not in self._loaded:
            self._loaded[port] = load(self._path(port))
        found: M = self._loaded[port]
        return found

    def _load_reference(self, path: Path) -> Policy:
        policy = load_policy(path, device=self.device)
        policy.model.eval().requires_grad_(requires_grad=False)
        if self.tokenizer is not None:
            where = "rl: the policy and a reference of its reward"
            check_same_tokenizer(self.tokenizer, policy.tokenizer, where=where)
        return policy


def drawn_logprobs(
    policy: Policy, token_ids: Sequence[Sequence[int]], wanted: Sequence[Sequence[bool]]
) -> list[list[float]]:
    """Compute the log-probabilities of some tokens of sequences, at temperature 1.

    Args:
        policy: Whose.
        token_ids: Sequences, prompts included.
        wanted: True at the tokens that are asked for.

    Returns:
        In nats, the wanted tokens of each sequence in order.

    """

    def logprobs(ids_BT: Tensor, wanted_BT: Tensor) -> list[list[float]]:
        found_BT = token_logprobs(policy.model, ids_BT, wanted_BT=wanted_BT).logprobs_BT
        rows = zip(found_BT, wanted_BT, strict=True)
        return [row_T[mask_T].tolist() for row_T, mask_T in rows]

    return _by_length(policy, token_ids, wanted, logprobs)


def mean_states(
    policy: Policy, token_ids: Sequence[Sequence[int]], wanted: Sequence[Sequence[bool]]
) -> list[Tensor]:
    """Average the last hidden states over some tokens of sequences.

    Args:
        policy: Whose states.
        token_ids: Sequences, prompts included.
        wanted: True at the tokens to average over.

    Returns:
        A vector for each sequence, ``[D]``; zeros where no token is wanted.

    """

    def means(ids_BT: Tensor, wanted_BT: Tensor) -> list[Tensor]:
        states_BTD = hidden_states(policy.model, ids_BT).float() * wanted_BT[:, :, None]
        return list(states_BTD.sum(1) / wanted_BT.sum(-1, keepdim=True).clamp(min=1))

    return _by_length(policy, token_ids, wanted, means)


def _by_length(
    policy: Policy,
    token_ids: Sequence[Sequence[int]],
    wanted: Sequence[Sequence[bool]],
    compute: Callable[[Tensor, Tensor], list[M]],
) -> list[M]:
    """Run a pass over sequences of similar length together; results in the order given."""
    lengths = [len(ids) for ids in token_ids]
    pad, device = int(policy.tokenizer.pad_token_id), policy.model.device
    found: dict[int, M] = {}
    for part in length_buckets(range(len(lengths)), lengths, _BATCH_TOKENS):
        width = max(lengths[place] for place in part)
        ids = [[*token_ids[p], *[pad] * (width - lengths[p])] for p in part]
        masks = [[*wanted[p], *[False] * (width - lengths[p])] for p in part]
        with torch.inference_mode():
            made = compute(torch.tensor(ids, device=device), torch.tensor(masks, device=device))
        found |= zip(part, made, strict=True)
    return [found[place] for place in range(len(lengths))]
