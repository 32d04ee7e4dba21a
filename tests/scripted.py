"""A scripted engine: says what it is told to, in the form that real engines answer in."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    Sample,
    SamplingParams,
    check_prompts,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Script = Callable[[Prompt, int, int], str]
"""The text of (prompt, sample index, seed); greedy sampling asks for index 0 and seed 0."""

LOGPROB = -0.5
"""Log-probability of every scripted token."""


class FakeEngine:
    """Answers from a script, tokenized, cut and stamped as `base.RolloutEngine` demands."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        script: Script,
        *,
        context_length: int = 512,
        policy_version: int = 0,
    ) -> None:
        self.tokenizer = tokenizer
        self.script = script
        self.policy_version = policy_version
        self._context_length = context_length

    @property
    def context_length(self) -> int:
        """As given."""
        return self._context_length

    def update(self, policy_version: int) -> None:
        """Stamp later samples with this version."""
        self.policy_version = policy_version

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """The script's answers, `params.num_samples` for every prompt."""
        check_prompts(prompts, context_length=self.context_length)
        return [
            self._sample(prompt, index, params)
            for prompt in prompts
            for index in range(params.num_samples)
        ]

    def _sample(self, prompt: Prompt, index: int, params: SamplingParams) -> Sample:
        told = self.script(prompt, *((0, 0) if params.greedy else (index, params.seed)))
        ids = self.tokenizer.encode(told, add_special_tokens=False)
        token_ids = [*ids, self.tokenizer.eos_token_id]
        room = min(params.max_tokens, self.context_length - len(prompt.token_ids))
        length = self._length(token_ids, params.stop)
        text = self._decode(token_ids[: min(length, room)])
        for string in params.stop:
            text = text.split(string)[0]
        return Sample(
            prompt_id=prompt.id,
            index=index,
            token_ids=tuple(token_ids[: min(length, room)]),
            logprobs=(LOGPROB,) * min(length, room),
            text=text,
            finish_reason=FinishReason.STOP if length <= room else FinishReason.LENGTH,
            policy_version=self.policy_version,
        )

    def _length(self, token_ids: Sequence[int], stop: tuple[str, ...]) -> int:
        """Tokens up to the first whose text completes a stop string, else all."""
        for length in range(1, len(token_ids)):
            if any(string in self._decode(token_ids[:length]) for string in stop):
                return length
        return len(token_ids)

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=True))
