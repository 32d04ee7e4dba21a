"""What a client may ask, in the words of OpenAI's protocol; what we cannot do is refused."""

import secrets
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from posttrain.data.contexts import PromptInContext
from posttrain.data.conversations import prompt_of_conversation
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.stage.errors import UserError

_SEED_BITS = 31
_MOST_SAMPLES = 1024
_MOST_ALTERNATIVES = 20

IGNORED = frozenset(
    {
        "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention",
        "safety_identifier", "service_tier", "store", "user", "verbosity",
    }
)  # fmt: skip
"""Fields that say something about an account, or of what is not done here: they change no token."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (None,),
    "best_of": (None, 1),
    "frequency_penalty": (None, 0),
    "function_call": (None, "none"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "min_p": (None, 0),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "presence_penalty": (None, 0),
    "reasoning_effort": (None, "none"),
    "repetition_penalty": (None, 1),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "web_search_options": (None,),
}
"""Fields that would change what is drawn, with the values at which they do not; no others."""


class StreamOptions(BaseModel):
    """What a stream has beside its tokens."""

    include_usage: bool = False
    """End with a chunk that counts tokens."""
    include_obfuscation: bool = False
    """Taken and not done: this machine's loopback has no listeners."""


class SamplingRequest(BaseModel):
    """What both ways to ask have in common."""

    model_config = ConfigDict(extra="forbid")

    MAX_TOKENS: ClassVar[int | None] = None
    """Most tokens where nothing is said; None is as many as the context has room for."""

    model: str
    max_tokens: int | None = Field(default=None, ge=0)
    n: int | None = Field(default=None, ge=1, le=_MOST_SAMPLES)
    temperature: float | None = Field(default=None, ge=0, le=100, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    """As vLLM has it: token ids of prompt and answer, beside the texts."""

    @model_validator(mode="before")
    @classmethod
    def _nothing_that_is_not_done(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        for name in NEUTRAL.keys() & given.keys():
            if given[name] not in NEUTRAL[name]:
                raise ValueError(
                    f"{name}: this server has none of it; leave it out, or serve with vLLM"
                )
        return {name: given[name] for name in given if name not in IGNORED | NEUTRAL.keys()}

    def alternatives(self) -> int | None:
        """How many likely tokens are told for each; 0 for those drawn alone, None for nothing."""
        raise NotImplementedError

    def params(self, room: int) -> SamplingParams:
        """Return what the engine is told.

        Args:
            room: Tokens that the context has left.

        Returns:
            The parameters; with a seed by chance where none is given.

        """
        given = self.max_tokens if self.max_tokens is not None else self.MAX_TOKENS
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        try:
            return SamplingParams(
                max_tokens=room if given is None else given,
                temperature=1.0 if self.temperature is None else self.temperature,
                top_p=1.0 if self.top_p is None else self.top_p,
                top_k=max(0, self.top_k or 0),
                num_samples=self.n or 1,
                seed=secrets.randbits(_SEED_BITS) if self.seed is None else self.seed,
                stop=stops,
            )
        except ValueError as error:
            raise UserError(str(error)) from None

    @property
    def counts_in_stream(self) -> bool:
        """True where a stream ends by counting tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)


class CompletionRequest(SamplingRequest):
    """`/v1/completions`: texts or token ids that are continued as they are."""

    MAX_TOKENS: ClassVar[int | None] = 16

    prompt: list[str | list[int]] = Field(min_length=1)
    """Texts or token ids; also one of either alone."""
    echo: bool | None = None
    logprobs: int | None = Field(default=None, ge=0, le=_MOST_ALTERNATIVES)

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_of_them(cls, given: Any) -> Any:
        is_one = isinstance(given, str) or (
            isinstance(given, list) and given and isinstance(given[0], int)
        )
        return [given] if is_one else given

    def alternatives(self) -> int | None:
        """See `SamplingRequest.alternatives`."""
        return self.logprobs


class TextPart(BaseModel):
    """A piece of what is said; pictures and sound are refused."""

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message; names of speakers are taken, and templates that know them may write them."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str = ""
    refusal: None = None

    @property
    def text(self) -> str:
        """What is said."""
        content = self.content
        return content if isinstance(content, str) else "".join(part.text for part in content)


class ChatRequest(SamplingRequest):
    """`/v1/chat/completions`: a conversation that the policy goes on with."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=_MOST_ALTERNATIVES)

    @model_validator(mode="after")
    def _one_limit(self) -> "ChatRequest":
        self.max_tokens = self.max_completion_tokens or self.max_tokens or None
        return self

    def alternatives(self) -> int | None:
        """See `SamplingRequest.alternatives`."""
        return (self.top_logprobs or 0) if self.logprobs else None

    def prompt(self) -> PromptInContext:
        """Return the conversation as stages write one; see `prompt_of_conversation`."""
        return prompt_of_conversation([(each.role, each.text) for each in self.messages])
