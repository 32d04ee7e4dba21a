"""What a stage runs on beyond one process; all of it is off unless a recipe asks for it."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from posttrain.pipeline.config import StageConfig


class RayResources(StageConfig):
    """A Ray cluster, and the share of it that one stage takes."""

    address: str = Field("auto", min_length=1)
    """`auto` finds the cluster of this machine, `local` starts one for the stage; or host:port."""
    actors: int = Field(2, ge=1)
    """Processes that work for the stage at once."""
    cpus: float = Field(1.0, gt=0.0)
    """CPUs of the cluster that each of them holds."""
    gpus: float = Field(0.0, ge=0.0)
    """GPUs that each of them holds; more than 0 puts its engine there."""


def _by_address(value: Any) -> Any:
    """`ray: auto` says as much as `ray: {address: auto}`."""
    return {"address": value} if isinstance(value, str) else value


class Resources(StageConfig):
    """The `resources` of a stage's section."""

    processes: int = Field(1, ge=1)
    """Processes that train together."""
    ray: Annotated[RayResources | None, BeforeValidator(_by_address)] = None
    """Where rollouts are drawn and tables are worked on, if not in the stage's own process."""

    def keyed(self) -> dict[str, str]:
        """What can change a stage's bytes: not where, or on how many actors, Ray works."""
        keyed = {"processes": str(self.processes)} if self.processes > 1 else {}
        return keyed | ({"ray": "true"} if self.ray else {})
