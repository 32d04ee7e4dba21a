"""Sample from an OpenAI-compatible server: token ids in, token ids and log-probabilities out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posttrain.backends.endpoint.client import Asked, Client
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    Sample,
    SamplingParams,
    check_prompts,
)
from posttrain.learning.rollouts.engines.stop import text_before
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SEED_BITS = 31
"""Servers hold a request's seed in a signed integer, some in one of 32 bits."""


class ServerRolloutEngine:
    """Samples through /completions of a server that returns token ids, as `vllm serve` does.

    Every sample is a request of its own with a seed of its own, so that it depends on nothing else;
    what was answered once is never asked again, also by another process. The server's weights are
    what they are: `update` to another version is refused. `base.RolloutEngine` has the contract.

    `processed_logprobs` says that the server was started with `--logprobs-mode
    processed_logprobs`: its log-probabilities are then those of the softmax at the temperature,
    but after cuts; without it they are those at temperature 1.
    """

    def __init__(
        self,
        client: Client,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        context_length: int | None = None,
        processed_logprobs: bool = False,
        policy_version: int = 0,
    ) -> None:
        self.client = client
        self.tokenizer = tokenizer
        self.processed_logprobs = processed_logprobs
        self.policy_version = policy_version
        self._context_length = context_length

    @property
    def context_length(self) -> int:
        """As given, else as the server says."""
        if self._context_length is None:
            told = self.client.card().get("max_model_len")
            if not isinstance(told, int):
                raise UserError(
                    f"{self.client.endpoint.base_url} does not say how long the context of"
                    f" '{self.client.endpoint.model}' is; give context_length"
                )
            self._context_length = told
        return self._context_length

    def update(self, policy_version: int) -> None:
        """Nothing to do for the version that is served; `UserError` for any other."""
        if policy_version != self.policy_version:
            raise UserError(
                f"{self.client.endpoint.base_url} serves version {self.policy_version} of the"
                f" policy and cannot take over version {policy_version}; where the policy learns,"
                " sample with the engine torch or vllm"
            )

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Ask the server, one request per sample; see `RolloutEngine.sample`."""
        if not prompts:
            return []
        check_prompts(prompts, context_length=self.context_length)
        self._check_params(params)
        places = [(prompt, index) for prompt in prompts for index in range(params.num_samples)]
        asked = [Asked(self._body(prompt, index, params)) for prompt, index in places]
        drawn = self.client.ask("completions", asked, _read)
        return [
            self._sample(prompt, index, row, params.stop)
            for (prompt, index), row in zip(places, drawn, strict=True)
        ]

    def _check_params(self, params: SamplingParams) -> None:
        """Refuse what the server's log-probabilities would not be right for."""
        if params.greedy:
            return
        if self.processed_logprobs and (params.top_k or params.top_p < 1.0):
            raise UserError(
                "a server with processed log-probabilities reports them after top_k and top_p;"
                " leave these out"
            )
        if not self.processed_logprobs and params.temperature != 1.0:
            raise UserError(
                f"{self.client.endpoint.base_url} reports log-probabilities at temperature 1, but"
                f" the temperature is {params.temperature:g}; sample at 1, or start it with"
                " --logprobs-mode processed_logprobs and say so"
            )

    def _body(self, prompt: Prompt, index: int, params: SamplingParams) -> dict[str, Any]:
        body: dict[str, Any] = {
            "prompt": list(prompt.token_ids),
            "max_tokens": min(params.max_tokens, self.context_length - len(prompt.token_ids)),
            "temperature": params.temperature,
            # A served model's own generation config would fill in what is not said.
            "top_k": params.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "logprobs": 1,
            "return_token_ids": True,
        }
        if params.stop:
            body["stop"] = list(params.stop)
        if not params.greedy:
            body["seed"] = purpose_seed(params.seed, prompt.id, index) % 2**_SEED_BITS
            body["top_p"] = params.top_p
        return body

    def _sample(self, prompt: Prompt, index: int, row: "_Row", stop: tuple[str, ...]) -> Sample:
        text = str(self.tokenizer.decode(row.token_ids, skip_special_tokens=True))
        return Sample(
            prompt_id=prompt.id,
            index=index,
            token_ids=row.token_ids,
            logprobs=row.logprobs,
            text=text_before(text, stop),
            finish_reason=row.finish_reason,
            policy_version=self.policy_version,
        )


@dataclass(frozen=True)
class _Row:
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason


def _read(answer: Any) -> _Row:
    """One completion; ValueError, LookupError or TypeError where a part is missing."""
    choice = answer["choices"][0]
    ids = choice.get("token_ids")
    if not ids:
        raise ValueError("no token_ids; serve with vLLM 0.11 or newer")
    logprobs = choice["logprobs"]["token_logprobs"]
    if len(ids) != len(logprobs):
        raise ValueError(f"{len(ids)} token ids, but {len(logprobs)} log-probabilities")
    reason = FinishReason(choice["finish_reason"])
    return _Row(tuple(map(int, ids)), tuple(map(float, logprobs)), reason)
