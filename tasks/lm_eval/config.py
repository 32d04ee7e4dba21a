"""Parameters of an evaluation by lm-evaluation-harness."""

from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rollouts.engines.config import EngineConfig
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.stage.config import StageConfig
from posttrain.stage.needs import HUB

_FILES = (".yaml", ".yml")


class LmEvalConfig(StageConfig):
    """Which tasks are asked, and how the policy is asked."""

    PACKAGES: ClassVar[frozenset[str]] = frozenset({"lm_eval"})

    tasks: tuple[str, ...] = Field(min_length=1)
    """Tasks or groups of lm-evaluation-harness by name, whose data come from the hub, or YAML files
    of tasks of your own, from the recipe's folder on."""
    files: tuple[str, ...] = ()
    """What those YAML files read: data, functions; from the recipe's folder on. All count by
    content. `data_files` in a YAML is found from its own folder on."""
    num_fewshot: int | None = Field(default=None, ge=0)
    """Solved examples before each prompt; null leaves it to the task."""
    limit: int | None = Field(default=None, ge=1)
    """Documents of each task, the first ones; null asks about all."""
    chat_template: bool | Literal["auto"] = "auto"
    """Whether prompts are written as messages, by the policy's chat template (one without a
    template gets every message as a line); `auto` does where there is a template."""
    system: str = ""
    """System prompt."""
    max_tokens: int = Field(default=256, ge=1)
    """Longest answer of a task that generates and does not say how long."""
    batch_size: int = Field(default=16, ge=1)
    """Rows that are scored or decoded together. Scores agree whatever it is, but for ties within
    the rounding of float32."""
    bootstrap: int = Field(default=1000, ge=2)
    """Resamples for standard errors of what is no mean over documents."""
    engine: EngineConfig = TorchEngine()
    """What generates; likelihoods are computed by torch."""

    def own_tasks(self) -> tuple[str, ...]:
        """Return the tasks that are files."""
        return tuple(name for name in self.tasks if name.endswith(_FILES))

    def read_files(self) -> tuple[str, ...]:
        """Count the YAML files, and what they read, by content."""
        return (*self.own_tasks(), *self.files)

    def reaches(self) -> frozenset[str]:
        """Connect to the hub for tasks that are not files: their data lie there."""
        return frozenset({HUB}) if len(self.own_tasks()) < len(self.tasks) else frozenset()

    def remarks(self) -> tuple[str, ...]:
        """Say where the data of named tasks may become others unseen."""
        named = [name for name in self.tasks if name not in self.own_tasks()]
        if not named:
            return ()
        return (
            f"lm_eval: {', '.join(named)}: the hub gives such data as it has them on the day; which"
            " they were is told by documents_sha256 in the report",
        )
