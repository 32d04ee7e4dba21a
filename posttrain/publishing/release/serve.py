"""Serve a release with vLLM: the exact command, and one completion checked against the stored."""

import json
import shlex
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.publishing.release.contents import EVIDENCE
from posttrain.stage.errors import UserError

_START_SECONDS = 600.0


def serve_command(folder: Path, tag: str, *, host: str, port: int) -> list[str]:
    """The command that serves exactly this release; everything that decides a token is stated."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    length = config.get("max_position_embeddings")
    return [
        "vllm",
        "serve",
        str(folder.resolve()),
        "--served-model-name",
        tag,
        "--host",
        host,
        "--port",
        str(port),
        "--dtype",
        str(config.get("dtype") or config.get("torch_dtype") or "float32"),
        "--seed",
        "0",
        *(["--max-model-len", str(length)] if length else []),
        "--generation-config",
        "vllm",
    ]


def shell_line(command: list[str]) -> str:
    """The command as a shell takes it."""
    return shlex.join(command)


def has_vllm() -> bool:
    """Return whether vLLM's command is on the path."""
    return shutil.which("vllm") is not None


def serve(folder: Path, command: list[str], *, host: str, port: int) -> "subprocess.Popen[bytes]":
    """Start the server, wait for it, and check one completion; the process, which serves on."""
    process = subprocess.Popen(command)
    try:
        _wait(process, f"http://{host}:{port}/health")
        _check_completion(folder, command[command.index("--served-model-name") + 1], host, port)
    except BaseException:
        process.terminate()
        process.wait(30)
        raise
    return process


def _wait(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UserError(f"vllm ended with {process.returncode}; its messages are above")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise UserError(f"vllm did not answer at {url} within {_START_SECONDS:.0f} s; see its messages")


def _check_completion(folder: Path, name: str, host: str, port: int) -> None:
    """Ask for the stored completion, greedily and by token ids."""
    stored = json.loads((folder / EVIDENCE / "example.json").read_text(encoding="utf-8"))
    answer = _post(
        f"http://{host}:{port}/v1/completions",
        {
            "model": name,
            "prompt": stored["prompt_ids"],
            "max_tokens": len(stored["completion_ids"]),
            "temperature": 0.0,
        },
    )
    text = str(answer["choices"][0]["text"])
    if text != stored["completion"]:
        raise UserError(
            f"the server answers {text!r} where the release says {stored['completion']!r}; it "
            "serves another model, template or precision than was released"
        )


def _post(url: str, body: Mapping[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return dict(json.loads(response.read()))
