"""Who can be asked what it says of the tokens of rows: a model, or an endpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from posttrain.backends.endpoint.client import Client, open_client
from posttrain.backends.endpoint.config import Endpoint
from posttrain.backends.endpoint.prompt_logprobs import prompt_logprobs
from posttrain.data.batching import length_buckets
from posttrain.data.rows import TokenRow, TokenTable
from posttrain.data.soft_targets import SoftTargets, learned_places
from posttrain.learning.models.load import Policy, load_policy, weights_digest
from posttrain.learning.models.served_tokens import refuse_other_texts
from posttrain.learning.models.supports import likeliest_tokens
from posttrain.learning.models.tokenizer import check_same_tokenizer
from posttrain.learning.training.lengths import room_of
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Precision = Literal["fp32", "bf16"]
"""Of a teacher's weights and passes."""
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class RowTeacher(Protocol):
    """Says of rows what it holds to be likely at each learned token."""

    @property
    def name(self) -> str:
        """Digest of its weights, or the endpoint and its model."""

    @property
    def context_length(self) -> int:
        """Most tokens of a row."""

    def ask(
        self, rows: Sequence[TokenRow], *, top_k: int, temperature: float
    ) -> list[tuple[SoftTargets, Tensor]]:
        """Ask about rows.

        Args:
            rows: Tokens, and which of them are learned.
            top_k: Likeliest tokens of each distribution.
            temperature: Divides the logits.

        Returns:
            Of each row the distributions at its learned tokens, and the log-probabilities of these
            tokens at temperature 1, in nats.

        """


def open_teacher(
    path: Path | None,
    endpoint: Endpoint | None,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    precision: Precision,
    batch_tokens: int,
    device: str,
) -> RowTeacher:
    """Open the teacher that there is.

    Args:
        path: A checkpoint; None where an endpoint is asked.
        endpoint: Where it answers, without a checkpoint.
        tokenizer: The student's.
        precision: Of a checkpoint's weights and passes.
        batch_tokens: Padded tokens that go through a checkpoint at once.
        device: Where a checkpoint goes, as torch names it.

    Returns:
        The teacher.

    Raises:
        UserError: A checkpoint has another tokenizer.

    """
    if path is not None:
        policy = load_policy(path, device=device, dtype=_DTYPES[precision])
        check_same_tokenizer(tokenizer, policy.tokenizer, where="teach: the policy and its teacher")
        return LocalTeacher(policy, len(tokenizer), batch_tokens)
    assert endpoint is not None
    return ServedTeacher(endpoint, tokenizer)


@dataclass(frozen=True)
class LocalTeacher:
    """A checkpoint that reads the rows itself."""

    policy: Policy
    num_tokens: int
    """Of the tokenizer that it shares with the student."""
    batch_tokens: int

    @property
    def name(self) -> str:
        """Digest of its weights."""
        return weights_digest(self.policy.model)

    @property
    def context_length(self) -> int:
        """Of the model."""
        return room_of(self.policy.model)

    def ask(
        self, rows: Sequence[TokenRow], *, top_k: int, temperature: float
    ) -> list[tuple[SoftTargets, Tensor]]:
        """Read rows of similar length together; see `RowTeacher.ask`."""
        model = self.policy.model
        table = TokenTable(rows, pad=int(self.policy.tokenizer.pad_token_id))
        lengths = [len(row.ids) for row in rows]
        found: dict[int, tuple[SoftTargets, Tensor]] = {}
        for members in length_buckets(range(len(rows)), lengths, self.batch_tokens):
            logprobs_N, targets = likeliest_tokens(
                model,
                table.batch(members).to(model.device),
                top_k=top_k,
                temperature=temperature,
                num_tokens=self.num_tokens,
            )
            targets, counts = targets.to("cpu"), [rows[index].num_learned for index in members]
            parts = zip(
                torch.split(targets.ids_NK, counts),
                torch.split(targets.logprobs_NK, counts),
                torch.split(targets.rest_N, counts),
                torch.split(logprobs_N.cpu(), counts),
                strict=True,
            )
            for index, (ids_NK, top_NK, rest_N, own_N) in zip(members, parts, strict=True):
                found[index] = SoftTargets(ids_NK, top_NK, rest_N, temperature), own_N
        return [found[index] for index in range(len(rows))]


_LEAST_REST = torch.finfo(torch.float32).eps
"""Mass of the other tokens at the least: a sum of probabilities in float32 says no less."""


@dataclass(frozen=True)
class ServedTeacher:
    """An OpenAI-compatible server that gives `prompt_logprobs`."""

    endpoint: Endpoint
    tokenizer: "PreTrainedTokenizerBase"
    """The student's: the server must write the same for every id that it names."""

    @property
    def name(self) -> str:
        """The endpoint and its model: nothing is known of its weights."""
        return f"{self.endpoint.base_url} {self.endpoint.model}"

    @cached_property
    def _client(self) -> Client:
        return open_client(self.endpoint)

    @property
    def context_length(self) -> int:
        """Return what the server says, less the token that it draws."""
        told = self._client.card().get("max_model_len")
        if not isinstance(told, int):
            raise UserError(
                f"teach: {self.endpoint.base_url} does not say how long the context of"
                f" '{self.endpoint.model}' is; set teach.max_length"
            )
        return told - 1

    def ask(
        self, rows: Sequence[TokenRow], *, top_k: int, temperature: float
    ) -> list[tuple[SoftTargets, Tensor]]:
        """Ask about each row by its ids; see `RowTeacher.ask`."""
        answers = prompt_logprobs(self._client, [row.ids for row in rows], top_k=top_k)
        found = []
        for row, said in zip(rows, answers, strict=True):
            places = [said[place] for place in learned_places(row)]
            learned = [each for each in places if each is not None]
            for each in learned:
                refuse_other_texts(self.tokenizer, each.texts, where=self.endpoint.base_url)
            ids_NK = torch.tensor([[token for token, _ in each.likeliest] for each in learned])
            top_NK = torch.tensor([[logprob for _, logprob in each.likeliest] for each in learned])
            # What the server does not name is what is left, as far as the digits go.
            rest_N = (1.0 - top_NK.double().exp().sum(-1)).clamp(min=_LEAST_REST).log().float()
            own_N = torch.tensor([each.logprob for each in learned])
            found.append((SoftTargets(ids_NK, top_NK.float(), rest_N, temperature), own_N))
        return found
