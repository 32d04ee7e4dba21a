"""The templates that ship with posttrain."""

from posttrain.data.chat_templates.base import Template
from posttrain.data.chat_templates.jinja import JinjaTemplate
from posttrain.data.chat_templates.own import OwnTemplate
from posttrain.data.chat_templates.turns import TurnsTemplate
from posttrain.stage.slots import Slot

TEMPLATES = Slot(
    "template",
    Template,
    {"own": OwnTemplate, "jinja": JinjaTemplate, "turns": TurnsTemplate},
    one_of=("chat_template",),
)
