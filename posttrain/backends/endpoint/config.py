"""Parameters of an endpoint."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from posttrain.stage.config import UNKEYED, StageConfig
from posttrain.stage.needs import ENDPOINT


class Endpoint(StageConfig):
    """Where a model answers, and how it may be asked. The key itself is never a parameter."""

    base_url: str
    """Address up to the version, for example http://127.0.0.1:8000/v1."""
    model: str
    """Name of the model there."""
    api_key_env: str | None = None
    """Environment variable that holds the key; null for an endpoint without one."""
    concurrency: Annotated[int, UNKEYED] = Field(16, ge=1, le=1024)
    """Most requests in flight at once."""
    timeout_s: Annotated[float, UNKEYED] = Field(120.0, gt=0.0)
    """Seconds without a byte after which a request counts as failed."""
    retries: Annotated[int, UNKEYED] = Field(6, ge=0)
    """Further attempts at a request that failed for the moment: busy, slow, broken off."""
    send_seed: bool = True
    """Whether requests carry a seed; some endpoints refuse the field."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Further fields of every request; null takes a field out."""

    def reaches(self) -> frozenset[str]:
        """Connect to where the model answers."""
        return frozenset({ENDPOINT})

    def secret_names(self) -> tuple[str, ...]:
        """Name the variable that holds the key, if there is one."""
        return (self.api_key_env,) if self.api_key_env else ()

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


def filled(template: str, **values: str) -> str:
    """Replace `{name}` by its value, all at once: a value that contains `{name}` stays as it is.

    >>> filled("{a}-{b} {c}", a="{b}", b="x")
    '{b}-x {c}'
    """
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), template)
