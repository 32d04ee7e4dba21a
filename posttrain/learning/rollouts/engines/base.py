"""The contract of every engine: prompts and parameters in, samples out.

A sample keeps what a learner needs to trust it: the token ids as they were drawn (never
re-tokenized text), their log-probabilities, why it ended, and the version of the policy that
made it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

AllowedAt = Callable[["Tensor", "Tensor", float], Callable[[int, int], "Tensor"]]
"""Which tokens may stand where: see `TokenMask.at`."""


class FinishReason(StrEnum):
    """Why a sample ended."""

    STOP = "stop"
    """The policy drew an end token, or the text reached a stop string."""
    LENGTH = "length"
    """It met `max_tokens`, or the end of the context."""
    FAILED = "failed"
    """What answered it broke: it is neither right nor wrong."""


@dataclass(frozen=True)
class Prompt:
    """What to continue: `Prompt("9f2c", (1, 57, 88))`.

    `id` is the problem's id. It seeds the randomness of its samples and names the prompt in errors.
    To go on with a completion from given tokens, end the prompt with them.
    """

    id: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class SamplingParams:
    """How to draw: `SamplingParams(max_tokens=72, num_samples=8, seed=3)`.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 draw from the whole vocabulary. A sample
    ends before the first of the `stop` strings. Raises `ValueError` for values out of range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    num_samples: int = 1
    seed: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.num_samples < 1:
            raise ValueError("max_tokens and num_samples must be at least 1")
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise ValueError(f"temperature must be finite and not negative, got {self.temperature}")
        if not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError("top_p must lie in (0, 1], and top_k must not be negative")
        if "" in self.stop:
            raise ValueError("an empty stop string would end every sample at once")

    @property
    def greedy(self) -> bool:
        """True where the most likely token is taken and nothing is drawn."""
        return self.temperature == 0


class PlayedSample(NamedTuple):
    """What an episode was, beside the tokens that were drawn in it."""

    said: tuple[tuple[str, str], ...]
    """Who said what behind the prompt, in order; the policy is `assistant`, and speaks last."""
    earned: tuple[float, ...]
    """What the environment paid for each turn of the policy."""
    facts: Mapping[str, float]
    """What it counted."""
    read: tuple[str, ...] = ()
    """Ids of the rows that were shown in it."""
    end: str = "over"
    """How it ended."""
    tokens_read: int = 0
    """Tokens that the policy read behind the prompt."""
    keys: tuple[str, ...] = ()
    """Of the situation in which each turn of the policy was spoken."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One continuation of one prompt.

    `token_ids` ends with the end token where one was drawn; `text` is without it and without the
    stop string. `logprobs[t]` is log p(token_ids[t] | what came before) in nats, under the softmax
    of logits / temperature before any top-k or top-p cut (temperature 1 where greedy): what a
    trainer recomputes from the ids alone.
    """

    prompt_id: str
    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: FinishReason
    policy_version: int
    played: PlayedSample | None = None
    """The episode that it is, where it was answered; its text is then all that was drawn."""


class RolloutEngine(Protocol):
    """An open engine: what draws samples from a policy.

    Every engine guarantees:

    - Samples come back prompt by prompt in the order given, `index` 0..num_samples-1 within each.
    - The same call twice, on one machine with one policy, gives the same samples bit for bit.
    - What is drawn depends on (seed, prompt id, index, step) and the policy, not on the other
      prompts of the batch. Matrix products round differently with the shape of a batch, because
      kernels are chosen by it, and differently on every kind of processor. So a row alone and in
      company has log-probabilities that agree within 1e-4 nats (float32), and the same tokens up to
      the first draw whose random number lies within twice that of the boundary between two tokens
      (where greedy: whose two best logits lie so near each other). From there on the row is
      another sample of the same policy.
    - The torch engine's decoder for small Llamas goes further: a group's bits do not depend on how
      many other groups of the same length there are.
    """

    @property
    def context_length(self) -> int:
        """Most tokens, prompt and completion together, that the policy can attend to."""
        ...

    def update(self, policy_version: int) -> None:
        """Take over the policy's present weights: later samples are drawn from them and say so."""
        ...

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Draw `params.num_samples` continuations of every prompt.

        Args:
            prompts: Token ids and an id, which what is drawn depends on.
            params: Number, temperature, cuts, length, stop strings, seed.

        Returns:
            Prompt by prompt in the order given, `index` 0 to `num_samples` - 1 within each.

        Raises:
            UserError: A prompt is empty, too long for the policy, or given twice.

        """
        ...


def check_prompts(prompts: Sequence[Prompt], *, context_length: int) -> None:
    """Refuse an empty prompt, one that leaves no room to continue, and an id given twice.

    Args:
        prompts: What an engine is to continue.
        context_length: Most tokens, prompt and completion together, that the policy can attend to.

    Raises:
        UserError: Names the first prompt that is refused, and why.

    """
    seen: set[str] = set()
    for prompt in prompts:
        if not prompt.token_ids:
            raise UserError(f"prompt '{prompt.id}' has no tokens; drop it, or give it a text")
        if len(prompt.token_ids) >= context_length:
            raise UserError(
                f"prompt '{prompt.id}' has {len(prompt.token_ids)} tokens, but the model's context"
                f" is {context_length}; shorten it, or use a model with a longer context"
            )
        if prompt.id in seen:
            raise UserError(f"prompt '{prompt.id}' is given twice; ask for num_samples instead")
        seen.add(prompt.id)
