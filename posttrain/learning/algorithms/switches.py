"""The base of every part of an algorithm's config."""

from pydantic import ConfigDict

from posttrain.stage.config import StageConfig


class Switches(StageConfig):
    """Frozen, unknown keys refused, and every number finite, so that it has one spelling."""

    model_config = ConfigDict(allow_inf_nan=False)
