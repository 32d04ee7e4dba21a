"""Upload a folder to a repository of the Hugging Face hub: private by default, tagged once."""

import glob
import sys
from pathlib import Path
from typing import Any, Literal

from posttrain import __version__
from posttrain.publishing.hub.results import RESULTS
from posttrain.stage.errors import UserError, first_line
from posttrain.stage.hashing import git_name_of_file

RepositoryKind = Literal["model", "dataset"]


def push_folder(
    folder: Path,
    repository: str,
    *,
    message: str,
    kind: RepositoryKind = "model",
    tag: str | None = None,
    marker: str = "README.md",
    hub: Any = None,
) -> str:
    """Make a repository hold exactly the files of a folder, but for results that others added.

    A new repository is private: publishing is a decision of its own. A tag is never moved.

    Args:
        folder: In the hub's layout, with its card.
        repository: `OWNER/NAME`.
        message: Of the commit.
        kind: Whose repository it is.
        tag: What the commit is tagged as; None tags nothing.
        marker: A file that differs wherever what is pushed differs, by which a tag that is there
            already is recognized.
        hub: Another `huggingface_hub.HfApi` than the one of this machine's login.

    Returns:
        Where it is, in one line.

    Raises:
        UserError: The hub refuses, is not there, or has the tag for something else.

    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    hub = hub or HfApi(library_name="posttrain", library_version=__version__)
    try:
        hub.create_repo(repository, private=True, exist_ok=True, repo_type=kind)
        if tag is not None and _is_tagged(hub, repository, kind, tag, folder / marker):
            return f"{repository}: {tag} is there already"
        made = hub.upload_folder(
            repo_id=repository,
            repo_type=kind,
            folder_path=str(folder),
            commit_message=message,
            delete_patterns=_stale(hub, repository, kind, folder),
        )
        if tag is not None:
            hub.create_tag(
                repository, tag=tag, revision=made.oid, tag_message=message, repo_type=kind
            )
    except _errors_of_the_hub(HfHubHTTPError, HFValidationError, OSError) as error:
        raise UserError(
            f"cannot upload to {repository}: {first_line(error)}; log in with "
            "'hf auth login', check the name, then run the command again"
        ) from None
    except ValueError as error:
        # So the library says that the hub refuses the card, line by line.
        said = " ".join(str(error).split())
        raise UserError(f"cannot upload to {repository}: {said}") from None
    return f"{repository}: {made.commit_url}"


def _is_tagged(hub: Any, repository: str, kind: str, tag: str, marker: Path) -> bool:
    """Whether the tag is there for the same thing; refuses one that is there for another."""
    refs = hub.list_repo_refs(repository, repo_type=kind)
    if tag not in {each.name for each in refs.tags}:
        return False
    infos = hub.get_paths_info(repository, [marker.name], revision=tag, repo_type=kind)
    if [each.blob_id for each in infos] == [git_name_of_file(marker)]:
        return True
    raise UserError(
        f"{repository} has the tag {tag} for something else, and a tag is never moved;"
        " name another repository"
    )


def _stale(hub: Any, repository: str, kind: str, folder: Path) -> list[str]:
    """Patterns of the files that the repository has and the folder does not.

    Files of an earlier release would not verify; results of others stay.
    """
    there = hub.list_repo_files(repository, repo_type=kind)
    gone = [each for each in there if not (folder / each).exists()]
    return [glob.escape(each) for each in gone if not each.startswith(f"{RESULTS}/")]


def _errors_of_the_hub(*own: type[Exception]) -> tuple[type[Exception], ...]:
    """Add errors of connections, of whichever client the hub's library was built on."""
    clients = (sys.modules.get(name) for name in ("httpx", "httpx2"))
    return (*own, *(client.HTTPError for client in clients if client is not None))
