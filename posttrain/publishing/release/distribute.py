"""Hand a release out: serve it with vLLM, checked against the stored completion, or upload it."""

import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from posttrain.publishing.hub.upload import push_folder
from posttrain.publishing.release.contents import CLAIMS, FolderContents
from posttrain.stage.errors import UserError

_START_SECONDS = 600.0


def serve_command(folder: Path, tag: str, *, host: str, port: int) -> list[str]:
    """The command that serves exactly this model; everything that decides a token is stated."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    options = {
        "served-model-name": tag,
        "host": host,
        "port": port,
        "dtype": config.get("dtype") or config.get("torch_dtype") or "float32",
        "seed": 0,
        "max-model-len": config.get("max_position_embeddings"),
        "generation-config": "vllm",
    }
    stated = [(f"--{name}", str(value)) for name, value in options.items() if value is not None]
    return ["vllm", "serve", str(folder.resolve()), *(part for each in stated for part in each)]


def serve(folder: Path, command: list[str], *, host: str, port: int) -> "subprocess.Popen[bytes]":
    """Start the server, wait for it, and check one completion; the process, which serves on."""
    name = command[command.index("--served-model-name") + 1]
    return start_server(
        command,
        host=host,
        port=port,
        ready=lambda: check_completion(folder, partial(_completed, name, host, port)),
    )


def start_server(
    command: list[str], *, host: str, port: int, ready: Callable[[], None] = lambda: None
) -> "subprocess.Popen[bytes]":
    """Start vLLM and wait until it answers.

    Args:
        command: Of `serve_command`.
        host: Where it listens.
        port: At which port.
        ready: Called once it answers; what it raises ends the server.

    Returns:
        The process, which serves on.

    Raises:
        UserError: It ended, or did not answer in time.

    """
    process = subprocess.Popen(command)
    try:
        _wait(process, f"http://{host}:{port}/health")
        ready()
    except BaseException:
        process.terminate()
        process.wait(30)
        raise
    return process


def _wait(process: "subprocess.Popen[bytes]", url: str) -> None:
    import httpx2

    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UserError(f"vllm ended with {process.returncode}; its messages are above")
        try:
            httpx2.get(url, timeout=5).raise_for_status()
            return
        except httpx2.HTTPError:
            time.sleep(0.2)
    raise UserError(f"vllm did not answer at {url} within {_START_SECONDS:.0f} s; see its messages")


def check_completion(folder: Path, complete: Callable[[list[int], int], str]) -> None:
    """Ask for the completion that a release has stored, greedily and by token ids.

    Args:
        folder: The release.
        complete: Goes on with token ids for so many tokens at most.

    Raises:
        UserError: The answer is another one.

    """
    stored = FolderContents(folder).evidence("example")
    text = complete(stored["prompt_ids"], len(stored["completion_ids"]))
    if text != stored["completion"]:
        raise UserError(
            f"the server answers {text!r} where the release says {stored['completion']!r}; it "
            "serves another model, template or precision than was released"
        )


def _completed(name: str, host: str, port: int, prompt_ids: list[int], max_tokens: int) -> str:
    """Ask a server."""
    import httpx2

    asked = {
        "model": name, "prompt": prompt_ids, "max_tokens": max_tokens, "temperature": 0.0,
    }  # fmt: skip
    answer = httpx2.post(f"http://{host}:{port}/v1/completions", json=asked, timeout=120)
    return str(answer.raise_for_status().json()["choices"][0]["text"])


def push_release(folder: Path, repository: str) -> str:
    """Make a repository of the Hugging Face hub hold a release, tagged with its version.

    Args:
        folder: The release, which is in the hub's layout already.
        repository: `OWNER/NAME`.

    Returns:
        Where it is, in one line.

    Raises:
        UserError: The hub refuses, or has the version of another release.

    """
    name, version = folder.parent.name, folder.name
    return push_folder(
        folder, repository, message=f"Release {name} {version}", tag=version, marker=CLAIMS
    )
