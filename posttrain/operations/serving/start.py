"""Start what serves: vLLM where it is installed, else the torch engine in this process."""

import json
import shlex
import shutil
import time
from collections.abc import Callable
from contextlib import suppress

from posttrain.operations.services.loopback import LOOPBACK, bound
from posttrain.operations.serving.find import FoundPolicy
from posttrain.publishing.release.distribute import (
    check_completion,
    serve,
    serve_command,
    start_server,
)
from posttrain.stage.errors import UserError
from posttrain.stage.extras import package_line
from posttrain.stage.interrupts import Interrupted

_GRACE_SECONDS = 1
_Say = Callable[[str], None]


def has_vllm() -> bool:
    """Tell whether vLLM can be started here."""
    return shutil.which("vllm") is not None


def serve_by_vllm(found: FoundPolicy, port: int, *, say: _Say) -> int:
    """Serve until vLLM ends.

    Args:
        found: The policy.
        port: On loopback.
        say: Told the command, and where the policy answers.

    Returns:
        The exit code of vLLM.

    Raises:
        UserError: vLLM is not here, does not start, or answers otherwise than the release says.

    """
    if not has_vllm():
        raise UserError(
            f"vLLM is not installed here; {package_line('vllm')}, or leave --engine out"
        )
    command = serve_command(found.folder, found.name, host=LOOPBACK, port=port)
    say(shlex.join(command))
    process = (
        serve(found.folder, command, host=LOOPBACK, port=port)
        if found.has_example
        else start_server(command, host=LOOPBACK, port=port)
    )
    try:
        _tell(found.name, port, "vLLM", say)
        return process.wait()
    except Interrupted:
        return 0
    finally:
        process.terminate()
        process.wait()


def serve_by_torch(found: FoundPolicy, port: int, *, device: str, say: _Say) -> None:
    """Serve in this process until it is interrupted.

    Args:
        found: The policy.
        port: On loopback; 0 takes a free one.
        device: `cpu`, `cuda`, or `auto` for a GPU where there is one.
        say: Told where the policy answers, and a line for every request.

    Raises:
        UserError: It cannot be loaded, the port is taken, or it answers otherwise than the release
            says.

    """
    import torch
    import uvicorn

    from posttrain.learning.models.load import load_policy, weights_digest
    from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
    from posttrain.operations.serving.app import create_server
    from posttrain.operations.serving.served import ServedPolicy

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    with bound(port) as listening:
        say(f"loading {found.folder} ...")
        policy = load_policy(found.folder, device=device)
        served = ServedPolicy(
            found.name, policy, weights_digest(policy.model), created=int(time.time())
        )
        if found.has_example:

            def complete(ids: list[int], most: int) -> str:
                params = SamplingParams(max_tokens=most, temperature=0.0)
                return served.engine.sample([Prompt("example", tuple(ids))], params)[0].text

            check_completion(found.folder, complete)
        millions = sum(each.numel() for each in policy.model.parameters()) / 1e6
        what = f"torch on {device}, {millions:,.3g} million parameters"
        config = uvicorn.Config(
            create_server(served, say),
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        _tell(found.name, listening.getsockname()[1], what, say)
        # Ctrl-C is how it ends: there is nothing to go on with.
        with suppress(Interrupted):
            uvicorn.Server(config).run([listening])
        served.stop(patience=_GRACE_SECONDS)


def _tell(name: str, port: int, by_what: str, say: _Say) -> None:
    address = f"http://{LOOPBACK}:{port}/v1"
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "2 + 3 ="}]})
    say(f"{name} answers at {address} ({by_what}); Ctrl-C ends it. Ask it something:")
    say(
        f"  curl {address}/chat/completions -H 'Content-Type: application/json' -d"
        f" {shlex.quote(body)}"
    )
