"""Parameters of an import."""

from typing import Annotated

from posttrain.data.chat_templates.base import Template
from posttrain.data.chat_templates.own import OwnTemplate
from posttrain.data.chat_templates.registry import TEMPLATES
from posttrain.learning.models.source import ModelSource
from posttrain.stage.slots import InSlot


class ImportModelConfig(ModelSource):
    """Which model, in which number format it is kept, and how it is prompted."""

    template: Annotated[Template, InSlot(TEMPLATES)] = OwnTemplate()
    """How a prompt is written; the model remembers it, and every later stage follows."""
