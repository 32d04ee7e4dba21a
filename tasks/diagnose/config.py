"""Parameters of a diagnosis."""

from typing import Annotated

from pydantic import Field

from posttrain.learning.rollouts.diagnostics.base import Diagnostic
from posttrain.learning.rollouts.diagnostics.registry import DIAGNOSTICS
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot

DiagnosticName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class DiagnoseConfig(StageConfig):
    """What is measured, and which policy all others are held against."""

    diagnostics: dict[DiagnosticName, Annotated[Diagnostic, InSlot(DIAGNOSTICS)]] = {}
    """Diagnostics by a name of one's own, under which their figures stand."""
    reference: str = "sft"
    """Name of the policy that the others were trained from, as it is connected."""
