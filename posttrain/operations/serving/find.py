"""Which policy a name means: a folder, an artifact of the recipe or of a run, or a release."""

from dataclasses import dataclass
from pathlib import Path

from posttrain.operations.python.artifacts import find_artifact
from posttrain.operations.python.project import AnyPath
from posttrain.publishing.release.contents import EVIDENCE
from posttrain.publishing.release.registered import find_release, release_folder
from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.errors import UserError


@dataclass(frozen=True)
class FoundPolicy:
    """A policy on this machine."""

    name: str
    """By which clients call it."""
    folder: Path

    @property
    def has_example(self) -> bool:
        """True of a release, which has stored what it answers."""
        return (self.folder / EVIDENCE / "example.json").is_file()


def find_policy(called: str, recipe: AnyPath, root: Path | None, run: str | None) -> FoundPolicy:
    """Find what somebody wants served.

    Args:
        called: A folder, `STAGE.OUTPUT`, or `NAME[@VERSION|#ENVIRONMENT]` of a release.
        recipe: Whose artifacts are meant.
        root: The project, for releases; None outside of any.
        run: A run whose artifact is meant; None for what lies in the workspace.

    Returns:
        The policy.

    Raises:
        UserError: There is nothing of that name, or it is no policy.

    """
    if Path(called).is_dir():
        if not Path(called, "config.json").is_file():
            raise UserError(f"{called}: there is no config.json; name the folder of a model")
        return FoundPolicy(Path(called).resolve().name, Path(called))
    if "/" in called:
        raise UserError(f"{called}: there is no such folder; name one with config.json")
    if "." in called and "@" not in called and "#" not in called:
        artifact = find_artifact(called, recipe, run=run, release=None)
        if artifact.kind != ArtifactKind.CHECKPOINT:
            raise UserError(f"{called} is {artifact.kind} and not a policy; name one, as rl.policy")
        return FoundPolicy(called, artifact.path)
    if root is None:
        raise UserError(
            f"{called}: there is no such folder, and no project here that has such a release; name"
            " a folder, or go to the project"
        )
    tag = find_release(root, called)
    return FoundPolicy(str(tag), release_folder(root, tag))
