"""What a stage of RL writes down of its method: in its report, and in its checkpoints."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.learning.algorithms.identity import digest
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.training.progress import run_identity
from posttrain.stage.hashing import sha256_of, sha256_of_file
from posttrain.stage.identity import identity


def method_in_report(config: RlConfig) -> dict[str, Any]:
    """Say in a report which algorithm and which method this is.

    Args:
        config: Of the stage.

    Returns:
        `algorithm` with its digest and all switches, `method` with its digest and what differs from
        the defaults.

    """
    return {
        "algorithm": {
            "digest": digest(config.algorithm),
            "switches": config.algorithm.model_dump(mode="json"),
        },
        "method": {"digest": digest(config), "identity": identity(config)},
    }


def checkpoint_identity(
    config: RlConfig, inputs: Mapping[str, Path], *, seed: int, policies: Mapping[str, str]
) -> dict[str, str]:
    """Collect what a checkpoint must agree with: every field, the seed, and the inputs' content.

    Args:
        config: Of the stage.
        inputs: Of the stage by port.
        seed: Of the stage.
        policies: Digest of the weights of each policy that learns, by name.

    Returns:
        Values as text, by place; see `run_identity`.

    """
    digests = {"algorithm": digest(config.algorithm), **policies}
    for name, path in inputs.items():
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        found = [
            f"{file.name} {sha256_of_file(file)}"
            for file in files
            # The policy's weights are in its digest already.
            if file.is_file() and not (name == "policy" and file.suffix == ".safetensors")
        ]
        digests[f"{name}.files" if path.is_dir() else name] = sha256_of("\n".join(found))
    return run_identity(config, seed=seed, **digests)
