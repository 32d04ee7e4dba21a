"""Parameters of an evaluation by Inspect."""

from typing import Any, ClassVar

from pydantic import Field

from posttrain.learning.rollouts.engines.config import EngineConfig
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.stage.config import StageConfig


class InspectConfig(StageConfig):
    """Which task is asked, and how the policy answers where the task does not say."""

    PACKAGES: ClassVar[frozenset[str]] = frozenset({"inspect_ai"})

    file: str = Field(pattern=r".+\.py(@\w+)?$")
    """A file with a function under `@task`, from the recipe's folder on; `FILE@NAME` where there
    are several."""
    files: tuple[str, ...] = ()
    """What that file reads: data, modules beside it; from the recipe's folder on. All count by
    content."""
    args: dict[str, Any] = {}
    """Arguments of the task's function."""
    limit: int | None = Field(default=None, ge=1)
    """Samples of the data set, the first ones; null asks about all."""
    epochs: int | None = Field(default=None, ge=1)
    """Times that every sample is asked; null leaves it to the task."""
    temperature: float = Field(default=0.0, ge=0.0)
    """Sampling temperature where the task does not say."""
    max_tokens: int = Field(default=512, ge=1)
    """Longest answer where the task does not say."""
    messages_limit: int | None = Field(default=None, ge=1)
    """Most messages of a sample, for solvers that go on by themselves."""
    engine: EngineConfig = TorchEngine()
    """What draws."""

    @property
    def path(self) -> str:
        """The file without the name of a function."""
        return self.file.rpartition("@")[0] or self.file

    def read_files(self) -> tuple[str, ...]:
        """Count the task's file, and what it reads, by content."""
        return (self.path, *self.files)
