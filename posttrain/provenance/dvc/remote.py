"""Send objects of the cache to the default remote."""

from pathlib import Path

from posttrain.provenance.dvc.repository import open_repo
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import CacheName


def push_object(root: Path, md5: CacheName) -> None:
    """Upload one object, with the files of a directory, and see that it arrived."""
    from dvc.config import NoRemoteError
    from dvc.exceptions import DvcException
    from dvc_data.hashfile.hash_info import HashInfo

    repo = open_repo(root)
    try:
        repo.cloud.push([HashInfo("md5", md5)])
        odb = repo.cloud.get_remote_odb(None, "push")
    except NoRemoteError:
        raise UserError(
            f"{root} has no default DVC remote; set one with dvc remote add --default NAME URL"
        ) from None
    except (DvcException, OSError) as error:
        raise UserError(f"the DVC remote cannot be written to: {error}") from None
    if not odb.exists(md5):
        raise UserError(f"the DVC remote does not have {md5} after the upload; try again")
