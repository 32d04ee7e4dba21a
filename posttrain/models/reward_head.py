"""A reward model: a scalar head on a causal language model, in transformers' own format."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.data.batching import length_buckets
from posttrain.data.rows import pad_rows
from posttrain.data.templates import encode_completions, encode_prompts
from posttrain.models.load import load_tokenizer, load_weights, save_policy
from posttrain.models.logprobs import hidden_states

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class RewardModel:
    """A sequence classifier with one label, and its tokenizer."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"

    def score(
        self, prompts: Sequence[str], texts: Sequence[str], *, batch_tokens: int = 16384
    ) -> list[float]:
        """Reward of each completion of its prompt; higher is better, only differences matter."""
        rows = [
            prompt + text
            for prompt, text in zip(
                encode_prompts(self.tokenizer, prompts),
                encode_completions(self.tokenizer, texts),
                strict=True,
            )
        ]
        rewards = [0.0] * len(rows)
        lengths = [len(row) for row in rows]
        with torch.inference_mode():
            for batch in length_buckets(range(len(rows)), lengths, batch_tokens):
                input_ids_BT, last_B = pad_rows([rows[index] for index in batch], pad=self.pad)
                device = self.model.device
                values_B = sequence_rewards(self.model, input_ids_BT.to(device), last_B.to(device))
                for index, value in zip(batch, values_B.tolist(), strict=True):
                    rewards[index] = value
        return rewards

    @property
    def pad(self) -> int:
        """The padding id that the model's configuration names."""
        return int(self.model.config.pad_token_id)


def add_reward_head(
    policy_path: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> RewardModel:
    """Put a zero head on a policy, so that the first Bradley-Terry loss is exactly ln 2."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    causal = load_weights(AutoModelForCausalLM, policy_path, device=device, dtype=dtype)
    tokenizer = load_tokenizer(policy_path)
    config = causal.config
    config.num_labels = 1
    config.pad_token_id = tokenizer.pad_token_id
    # The classifier has no output embedding to tie to, and warns about the flag.
    config.tie_word_embeddings = False
    model = AutoModelForSequenceClassification.from_config(config)
    model.base_model.load_state_dict(causal.base_model.state_dict())
    torch.nn.init.zeros_(model.score.weight)
    return RewardModel(model.to(device=device, dtype=dtype).eval(), tokenizer)


def load_reward_model(
    path: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> RewardModel:
    """Load what `save_reward_model` wrote."""
    from transformers import AutoModelForSequenceClassification

    model = load_weights(AutoModelForSequenceClassification, path, device=device, dtype=dtype)
    return RewardModel(model, load_tokenizer(path))


def save_reward_model(reward_model: RewardModel, path: Path) -> None:
    """Write it so that ``AutoModelForSequenceClassification.from_pretrained(path)`` works."""
    save_policy(reward_model.model, reward_model.tokenizer, path)


def sequence_rewards(model: "PreTrainedModel", input_ids_BT: Tensor, last_B: Tensor) -> Tensor:
    """The head's value at each row's last token: ``[B]``; rows are right-padded."""
    hidden_BTD = hidden_states(model, input_ids_BT)
    rows_B = torch.arange(len(last_B), device=last_B.device)
    rewards_B: Tensor = model.score(hidden_BTD[rows_B, last_B])[:, 0].float()
    return rewards_B
