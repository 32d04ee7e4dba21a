"""Which run of the tracker a stage's metrics go to: its own, or that of the attempt it resumes."""

from pathlib import Path

from posttrain.provenance.files import replacing
from posttrain.stage.context import TRACKED_RUN


def resumed_run(scratch: Path) -> str | None:
    """The tracker's id of the killed attempt whose checkpoint will be taken up, if there is one."""
    noted = scratch / TRACKED_RUN
    if not noted.is_file() or not any(scratch.glob("checkpoints/step-*")):
        return None
    return noted.read_text()


def note_run(scratch: Path, external: str | None) -> bool:
    """Keep the id beside the checkpoints; False where it is not known yet."""
    if external is None:
        return False
    scratch.mkdir(parents=True, exist_ok=True)
    with replacing(scratch / TRACKED_RUN) as partial:
        partial.write_text(external)
    return True
