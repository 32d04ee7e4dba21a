"""What the figures were measured on."""

import subprocess

from benchmarks.sampling.machine import described as of_this_process


def described(peer_python: str) -> dict[str, object]:
    """Processor, load and our versions, and the peer's."""
    code = (
        "from importlib.metadata import version;"
        "print(*(version(n) for n in ('trl', 'transformers', 'torch')))"
    )
    said = subprocess.run([peer_python, "-c", code], capture_output=True, text=True, check=True)
    names = ("trl", "transformers", "torch")
    peer = dict(zip(names, said.stdout.split(), strict=True))
    return {**of_this_process(1), "peer": peer}
