"""Parameters of the import of a reward model."""

from posttrain.learning.models.source import ModelSource


class ImportRewardModelConfig(ModelSource):
    """Which classifier, and in which number format it is kept."""
