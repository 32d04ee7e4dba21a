"""Write what lets a forge compare proposed changes: a workflow of GitHub's, a job of GitLab's."""

from importlib.resources import files
from pathlib import Path

from posttrain.provenance.ledger.location import project_root
from posttrain.stage.errors import UserError

CI_FILES = {"github": ".github/workflows/posttrain.yml", "gitlab": ".gitlab-ci.yml"}
"""Where a forge looks, by its name."""


def write_ci(folder: Path, forge: str) -> Path:
    """Write the file into a project.

    Args:
        folder: In the project.
        forge: github or gitlab.

    Returns:
        The file.

    Raises:
        UserError: There is one already, or no project.

    """
    place = project_root(folder.absolute()) / CI_FILES[forge]
    if place.exists():
        raise UserError(
            f"{place} is there already and stays as it is; move it away, or compare in a job of its"
            " own: posttrain diff origin/main --markdown"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text_for(forge), encoding="utf-8")
    return place


def text_for(forge: str) -> str:
    """Return what is written for a forge."""
    template = files("posttrain.operations.project") / "template_ci" / f"{forge}.yml.tmpl"
    return template.read_text(encoding="utf-8")
