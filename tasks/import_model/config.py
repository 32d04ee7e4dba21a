"""Parameters of an import."""

from posttrain.learning.models.source import ModelSource


class ImportModelConfig(ModelSource):
    """Which model, and in which number format it is kept."""
