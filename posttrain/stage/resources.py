"""What a stage runs on beyond one process; all of it is off unless a recipe asks for it."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from posttrain.stage.config import StageConfig


class RayResources(StageConfig):
    """A Ray cluster, and the share of it that one stage takes."""

    address: str = Field(default="auto", min_length=1)
    """`auto` finds the cluster of this machine, `local` starts one for the stage; or host:port."""
    actors: int = Field(default=2, ge=1)
    """Processes that draw samples for the stage at once, each with an engine and the policy."""
    cpus: float = Field(default=1.0, gt=0.0)
    """CPUs of the cluster that each of them holds; take as many as `run.threads`."""
    gpus: float = Field(default=0.0, ge=0.0)
    """GPUs that each of them holds; with `run.device` cuda its engine needs one, or a share."""
    rows: int | None = Field(default=None, ge=1)
    """Sequences that one of them draws together, and rows of one part of a table; null takes as
    many sequences as one process would, and 20,000 rows."""


def _by_address(value: Any) -> Any:
    """`ray: auto` says as much as `ray: {address: auto}`."""
    return {"address": value} if isinstance(value, str) else value


class Resources(StageConfig):
    """The `resources` of a stage's section."""

    processes: int = Field(default=1, ge=1, le=4096)
    """Processes of this machine that train together by FSDP2, on a CUDA device each or with the
    stage's threads shared out; each holds its part of the weights, gradients and optimizer."""
    gpus: int | None = Field(default=None, ge=0)
    """Devices that the stage has for itself; null takes one a process where run.device is cuda."""
    ray: Annotated[
        RayResources | None,
        BeforeValidator(_by_address, json_schema_input_type=RayResources | str | None),
    ] = None
    """Where samples are drawn and verified and tables are worked on, if not in the stage's process:
    `auto`, `local`, host:port, or a mapping."""

    def devices(self, device: str) -> int:
        """GPUs that no other stage may use beside this one."""
        needed = self.processes if self.gpus is None else self.gpus
        return needed if device == "cuda" else 0

    def changed(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """These, as values, with what a section says for itself: of Ray field by field."""
        values = {**self.model_dump(), **own}
        ray = _by_address(own.get("ray"))
        if self.ray and isinstance(ray, Mapping):
            values["ray"] = {**self.ray.model_dump(), **ray}
        return values

    def told(self) -> str:
        """What is asked for beyond one process, in a few words; nothing where nothing is."""
        parts = [f"{self.processes} processes that train together"] if self.processes > 1 else []
        if self.ray:
            many = "s" if self.ray.actors > 1 else ""
            parts.append(f"Ray ({self.ray.address}) with {self.ray.actors} actor{many}")
        return " and ".join(parts)

    def keyed(self) -> dict[str, str]:
        """What can change a stage's bytes: of Ray not where it works, nor on how many actors."""
        keyed = {"processes": str(self.processes)} if self.processes > 1 else {}
        return keyed | ({"ray.rows": str(self.ray.rows)} if self.ray else {})
