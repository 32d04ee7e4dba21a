"""Parameters of an import of problems."""

from pydantic import Field

# Sources name their verifiers by the slot, which is there once its registry is imported.
import posttrain.learning.rewards.verifiers.registry  # noqa: F401
from posttrain.data.sources.config import SourcesConfig


class ImportProblemsConfig(SourcesConfig):
    """Sources of problems, each with its verifier; every row of a file is taken."""

    num_problems: int = Field(default=128, ge=1)
    """Problems of each generator, spread evenly over its levels."""
