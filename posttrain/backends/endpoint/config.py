"""Parameters of an endpoint, and of a judge that is asked there."""

import re
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from posttrain.stage.config import StageConfig

JUDGE_TEMPLATE = """\
You grade one answer to a question. Be strict: an answer is right only if its final result is.

Question:
{prompt}

Reference answer:
{answer}

Answer to grade:
{completion}

Say in one sentence what is right or wrong. Then write a last line `Score: N`, where N is a whole \
number from 0 (wrong) to 10 (right and well explained)."""


class Endpoint(StageConfig):
    """Where a model answers, and how it may be asked. The key itself is never a parameter."""

    base_url: str
    """Address up to the version, for example http://127.0.0.1:8000/v1."""
    model: str
    """Name of the model there."""
    api_key_env: str | None = None
    """Environment variable that holds the key; null for an endpoint without one."""
    concurrency: int = Field(16, ge=1, le=1024)
    """Most requests in flight at once."""
    timeout_s: float = Field(120.0, gt=0.0)
    """Seconds without a byte after which a request counts as failed."""
    retries: int = Field(6, ge=0)
    """Further attempts at a request that failed for the moment: busy, slow, broken off."""
    send_seed: bool = True
    """Whether requests carry a seed; some endpoints refuse the field."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Further fields of every request; null takes a field out."""

    @model_validator(mode="after")
    def _without_secrets(self) -> Self:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url must be like http://host:port/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "base_url must be an address alone; put the key into an environment variable and"
                " its name into api_key_env"
            )
        if self.api_key_env is not None and not re.fullmatch(r"[A-Za-z_]\w*", self.api_key_env):
            raise ValueError("api_key_env must be the name of an environment variable, not a key")
        return self


class JudgeSettings(StageConfig):
    """A model that grades answers: what it is asked, and how its reply becomes a score."""

    endpoint: Endpoint
    """Where it answers."""
    template: str = JUDGE_TEMPLATE
    """The rubric; {prompt}, {answer} (the reference) and {completion} are filled in."""
    pattern: str = r"Score:\s*(-?\d+(?:\.\d+)?)"
    """Regular expression whose one group is the grade; its last match in the reply counts."""
    worst: float = 0.0
    """Grade that scores 0."""
    accept: float = 10.0
    """Grade from which an answer counts as correct and scores 1; linear in between."""
    temperature: float = Field(0.0, ge=0.0)
    """Sampling temperature of the judge."""
    max_tokens: int = Field(512, ge=1)
    """Longest reply, in tokens."""

    @model_validator(mode="after")
    def _can_grade(self) -> Self:
        if "{completion}" not in self.template:
            raise ValueError("the template must contain {completion}, the text to grade")
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"the pattern is no regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"the pattern must have one group, the grade, but has {groups}")
        if self.accept <= self.worst:
            raise ValueError("accept must be above worst")
        return self


def filled(template: str, **values: str) -> str:
    """Replace `{name}` by its value, all at once: a value that contains `{name}` stays as it is.

    >>> filled("{a}-{b} {c}", a="{b}", b="x")
    '{b}-x {c}'
    """
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), template)
