"""MLflow's server in one process: `python mlflow_server.py server [OPTION ...]`.

`mlflow server` starts its web server as a second process and waits for it with 200 MB. It is
started here in its place, after MLflow has looked at its databases.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any


def _become(command: Sequence[str], *, extra_env: Mapping[str, str], **_: Any) -> None:
    os.execve(command[0], list(command), {**os.environ, **extra_env})


if __name__ == "__main__":
    import mlflow.server
    from mlflow.cli import cli

    mlflow.server._exec_cmd = _become
    cli()
