"""Upload a release to the Hugging Face hub; the folder is in the hub's layout already."""

from pathlib import Path
from typing import Protocol

from posttrain.stage.errors import UserError


class Hub(Protocol):
    """The part of `huggingface_hub.HfApi` that is used."""

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> object:
        """Make the repository if it is not there."""

    def upload_folder(
        self, *, repo_id: str, folder_path: str, commit_message: str, delete_patterns: str
    ) -> object:
        """Replace the repository's files by those of a folder, in one commit."""


def push_to_hub(folder: Path, repository: str, hub: Hub | None = None) -> str:
    """Make the repository hold exactly the release's files; where it is, in one line.

    A new repository is private: publishing is a decision of its own.
    """
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if hub is None:
        from huggingface_hub import HfApi

        hub = HfApi()
    message = f"Release {folder.parent.name} {folder.name}"
    try:
        hub.create_repo(repository, private=True, exist_ok=True)
        made = hub.upload_folder(
            repo_id=repository,
            folder_path=str(folder),
            commit_message=message,
            # Files of an earlier release that this one does not have would not verify.
            delete_patterns="*",
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise UserError(
            f"cannot upload to {repository}: {str(error).splitlines()[0]}; log in with "
            "'hf auth login', check the name, then posttrain release push again"
        ) from None
    return f"{repository}: {made}"
