"""Fetch a model from the Hugging Face hub at one commit: data only, nothing that could run."""

from pathlib import Path

from posttrain.data.hub import check_network
from posttrain.stage.errors import UserError

# Weights as safetensors, configuration and tokenizer.
_WANTED = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "tokenizer.model"]


def fetch_model(name: str, *, revision: str, cache: Path) -> Path:
    """The folder of model `name` at commit `revision`, downloaded into `cache` where it is not."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    what = f"model '{name}' at {revision}"
    check_network(
        what, remedy="without a network, download the model elsewhere and give its folder as path"
    )
    try:
        return Path(
            snapshot_download(name, revision=revision, allow_patterns=_WANTED, cache_dir=cache)
        )
    except RevisionNotFoundError:
        raise UserError(
            f"{what}: the hub knows the model but not this commit; "
            "take one from the model's page under 'Files and versions'"
        ) from None
    except RepositoryNotFoundError:
        raise UserError(
            f"{what}: the hub has no such model, or it is private or gated and HF_TOKEN is not set "
            "or has no access; check the name, or give the folder of a local copy as path"
        ) from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise UserError(
            f"{what}: cannot be fetched: {reason}; "
            "try again, or give the folder of a local copy as path"
        ) from None
