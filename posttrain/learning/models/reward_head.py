"""What turns a language model into a reward model: a scalar head, or its own likelihood.

Both are trained by the same pairwise loss and saved as models that plain transformers loads; the
parameterization and its scale stand beside the weights in ``reward.json``.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from posttrain.data.batching import length_buckets
from posttrain.data.contexts import AnyPrompt
from posttrain.data.rows import TokenBatch, TokenTable, encode_rows, position_ids
from posttrain.data.templates import end_of_turn
from posttrain.learning.models.architectures import refuse_headless
from posttrain.learning.models.held_weights import hold_as_stored
from posttrain.learning.models.load import load_tokenizer, load_weights, save_policy
from posttrain.learning.models.logprobs import batch_logprobs, hidden_states, states_at
from posttrain.learning.models.unread import is_unread
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Parameterization = Literal["likelihood", "head"]
_FILE = "reward.json"

_KIND = "parameterisation"
"""Key in ``reward.json``, as the reward models that exist have it."""


@dataclass(frozen=True)
class RewardModel:
    """A model that scores completions, its tokenizer, and how a score is read off it."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    parameterization: Parameterization = "head"
    scale: float = 1.0
    own_tokenizer: bool = False
    """It came from elsewhere and reads text alone, whatever the policies' tokenizer."""

    def rewards(self, batch: TokenBatch) -> Tensor:
        """Reward of every row of a batch whose wanted tokens are the completion's: ``[B]``."""
        return self.scale * REWARDS[self.parameterization](self.model, batch)

    def score(
        self, prompts: Sequence[AnyPrompt], texts: Sequence[str], *, batch_tokens: int = 16384
    ) -> list[float]:
        """Compute the reward of each completion; higher is better, only differences mean something.

        Args:
            prompts: One per completion.
            texts: The completions.
            batch_tokens: Most tokens that go through the model at once, padding included.

        Returns:
            One number per completion, in their order.

        """
        if not texts:
            return []
        rows = encode_rows(self.tokenizer, prompts, texts, allow_empty=True)
        table = TokenTable(rows, pad=int(self.tokenizer.pad_token_id))
        lengths = [len(row.ids) for row in rows]
        rewards = [0.0] * len(rows)
        with torch.inference_mode():
            for part in length_buckets(range(len(rows)), lengths, batch_tokens):
                values_B = self.rewards(table.batch(part).to(self.model.device))
                for index, value in zip(part, values_B.tolist(), strict=True):
                    rewards[index] = value
        return rewards


def head_rewards(model: "PreTrainedModel", batch: TokenBatch) -> Tensor:
    """Take the head's value at each row's last token.

    transformers pools at the last id that differs from the model's pad id; so do we, also where a
    tokenizer uses one id for padding and for the end, as that of a model from elsewhere may. What
    fills the batch up beyond a row is never looked at, whatever id that is.

    Args:
        model: A sequence classifier with one label.
        batch: Rows of tokens, padded or packed.

    Returns:
        Rewards ``[B]``.

    """
    if batch.packing is not None:
        packed_BTD = hidden_states(model, batch.input_ids_BT, position_ids_BT=position_ids(batch))
        return _head_values(model, packed_BTD[0, batch.packing.last_B])
    positions_T = torch.arange(batch.input_ids_BT.shape[1], device=batch.input_ids_BT.device)
    ends_B1 = (batch.wanted_BT * positions_T).amax(-1, keepdim=True)
    read_BT = (positions_T <= ends_B1) & (batch.input_ids_BT != model.config.pad_token_id)
    last_B = (read_BT * positions_T).argmax(-1)
    hidden_BD = states_at(
        model,
        batch.input_ids_BT,
        wanted_BT=positions_T == last_B[:, None],
        starts_B=batch.wanted_BT.int().argmax(-1),
    )
    return _head_values(model, hidden_BD)


def _head_values(model: "PreTrainedModel", hidden_BD: Tensor) -> Tensor:
    # Under autocast the head would round the rewards, of which only differences matter.
    with torch.autocast(hidden_BD.device.type, enabled=False):
        rewards_B: Tensor = model.score(hidden_BD.to(model.score.weight.dtype))[:, 0].float()
    return rewards_B


def likelihood_rewards(model: "PreTrainedModel", batch: TokenBatch) -> Tensor:
    """Take the mean log-probability of each row's completion tokens as its reward.

    Every token's prediction takes part, so a small model learns to tell a wrong step from a right
    one out of few pairs; the mean makes long and short completions comparable (as in SimPO,
    arXiv 2405.14734).

    Args:
        model: A causal language model.
        batch: Rows of tokens, padded or packed.

    Returns:
        Rewards ``[B]``, in nats per token.

    """
    logprobs_BT, wanted_BT = batch_logprobs(model, batch)
    return logprobs_BT.sum(-1) / wanted_BT.sum(-1)


REWARDS: dict[Parameterization, Callable[["PreTrainedModel", TokenBatch], Tensor]] = {
    "likelihood": likelihood_rewards,
    "head": head_rewards,
}


def start_reward_model(
    policy_path: Path,
    *,
    parameterization: Parameterization,
    scale: float = 1.0,
    device: str = "cpu",
    as_stored: bool = False,
    processes: int = 1,
) -> RewardModel:
    """Put an untrained reward model on a policy's weights.

    Args:
        policy_path: Checkpoint of the policy.
        parameterization: `head` for a scalar head, which starts at zero, so that the first
            Bradley-Terry loss is exactly ln 2; `likelihood` for the policy's own likelihood.
        scale: Factor on a likelihood's rewards.
        device: Where the weights go.
        as_stored: True where the policy's weights will be frozen: those that are stored in half
            precision stay so, and only compute in float32. Else all are float32.
        processes: How many share the model; of several each reads its own rows later on.

    Returns:
        The reward model.

    Raises:
        UserError: The weights cannot be loaded, or the architecture has no scalar head.

    """
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    dtype = None if as_stored else torch.float32
    causal = load_weights(
        AutoModelForCausalLM, policy_path, device=device, dtype=dtype, processes=processes
    )
    tokenizer = load_tokenizer(policy_path)
    if parameterization == "likelihood":
        if as_stored:
            hold_as_stored(causal)
        return RewardModel(causal, tokenizer, parameterization, scale)
    config = causal.config
    config.num_labels = 1
    _pad_apart(tokenizer)
    config.pad_token_id = tokenizer.pad_token_id
    # The classifier has no output embedding to tie to, and warns about the flag.
    config.tie_word_embeddings = False
    refuse_headless(config.model_type, where="reward")
    model = _with_trunk(causal, AutoModelForSequenceClassification)
    torch.nn.init.zeros_(model.score.weight)
    if as_stored:
        hold_as_stored(model)
    elif not is_unread(model):
        model = model.to(dtype=torch.float32)
    if not is_unread(model):
        model = model.to(device=device)
    return RewardModel(model.eval(), tokenizer, parameterization, scale)


def _with_trunk(causal: "PreTrainedModel", kind: Any) -> "PreTrainedModel":
    """Make a classifier around the trunk of a causal model, read yet or not: it is there once."""
    with torch.device("meta"):
        model: PreTrainedModel = kind.from_config(causal.config)
    setattr(model, model.base_model_prefix, causal.base_model)
    model.score.to_empty(device="cpu" if is_unread(causal) else causal.device)
    return model


def _pad_apart(tokenizer: "PreTrainedTokenizerBase") -> None:
    """Pad with another token than the one that closes a row.

    Else a classifier of transformers would pool one token before the end in a padded row, and our
    packed rows at the end.
    """
    end = end_of_turn(tokenizer)
    if tokenizer.pad_token_id != end:
        return
    special = [tokenizer.unk_token_id, tokenizer.bos_token_id, *tokenizer.all_special_ids]
    # Any token would do: a row ends with its end token, and what is within it is not looked at.
    others = (each for each in (*special, 0, 1) if each not in (None, end, tokenizer.eos_token_id))
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(next(others))


def load_reward_model(
    path: Path, *, device: str = "cpu", dtype: torch.dtype | None = torch.float32
) -> RewardModel:
    """Load what `save_reward_model` wrote, or any classifier with one label.

    Args:
        path: The folder.
        device: Where the weights go, as torch names it.
        dtype: Of the weights; None keeps that of the files.

    Returns:
        Model and tokenizer, with the parameterization and scale that ``reward.json`` states.

    Raises:
        UserError: The parameterization is unknown, there is more than one label, or the weights
            cannot be loaded.

    """
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    described = path / _FILE
    facts = json.loads(described.read_text()) if described.is_file() else {}
    kind = facts.get(_KIND, "head")
    if kind not in REWARDS:
        raise UserError(f"{described}: unknown parameterization '{kind}'{nearest(kind, REWARDS)}")
    auto = AutoModelForCausalLM if kind == "likelihood" else AutoModelForSequenceClassification
    model = load_weights(auto, path, device=device, dtype=dtype)
    if kind == "head" and model.config.num_labels != 1:
        raise UserError(
            f"{path}: a reward model has one label, and this classifier has "
            f"{model.config.num_labels}; take one that was trained to score"
        )
    tokenizer = load_tokenizer(path)
    if getattr(model.config, "pad_token_id", None) is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    # Padding must be what the head looks past.
    tokenizer.pad_token_id = model.config.pad_token_id
    own = bool(facts.get("own_tokenizer", False))
    return RewardModel(model, tokenizer, kind, float(facts.get("scale", 1.0)), own)


def save_reward_model(reward_model: RewardModel, path: Path) -> None:
    """Write weights, tokenizer and ``reward.json``; transformers' auto classes load the folder.

    Args:
        reward_model: What to write.
        path: The folder.

    """
    save_policy(reward_model.model, reward_model.tokenizer, path)
    facts: dict[str, object] = {
        _KIND: reward_model.parameterization,
        "scale": reward_model.scale,
    }
    if reward_model.own_tokenizer:
        facts["own_tokenizer"] = True
    (path / _FILE).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
