"""Parameters of asking a teacher about rows."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from posttrain.backends.endpoint.config import Endpoint
from posttrain.data.chat_templates.base import Template
from posttrain.data.chat_templates.own import OwnTemplate
from posttrain.data.chat_templates.registry import TEMPLATES
from posttrain.data.contexts import LearnedTurns
from posttrain.stage.config import UNKEYED, StageConfig
from posttrain.stage.slots import InSlot


class TeachConfig(StageConfig):
    """Who is asked, about which turns, and how much of what it says is kept."""

    endpoint: Endpoint | None = None
    """Where the teacher answers, if no model is connected: an OpenAI-compatible server that gives
    `prompt_logprobs`, as `vllm serve` does (started with `--max-logprobs` of `top_k` or more)."""
    top_k: int = Field(default=64, ge=1)
    """Likeliest tokens that are kept of each distribution; at most the tokenizer's tokens."""
    temperature: float = Field(default=1.0, gt=0.0)
    """Divides the teacher's logits, and later the student's; an endpoint is asked at 1."""
    template: Annotated[Template, InSlot(TEMPLATES)] = OwnTemplate()
    """How a prompt is written, as the student learns it: `sft.template`."""
    turns: LearnedTurns = "last"
    """What of a conversation the student learns: `sft.turns`."""
    max_length: int | None = Field(default=None, ge=8)
    """Longest row in tokens; longer ones are left out and counted. Null for the teacher's context.
    """
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of the teacher's weights and passes; its logits are float32 either way."""
    batch_tokens: int = Field(default=8192, ge=1)
    """Padded tokens that go through the teacher at once."""
    rows_at_once: Annotated[int, UNKEYED] = Field(default=512, ge=1)
    """Rows after which what was said is kept, so that a stage that was killed goes on from there.
    """

    @model_validator(mode="after")
    def _as_served(self) -> Self:
        if self.endpoint is not None and self.temperature != 1.0:
            raise ValueError(
                "an endpoint gives log-probabilities at temperature 1; set temperature to 1, or"
                " connect the teacher as a model"
            )
        return self
