"""A Dockerfile followed without Docker: its steps, one after the other, in a bare root of Debian.

What an image would be made of is made here by debootstrap, and what a layer would hold is left in
the root. What a machine needs to reach a package index (pip's settings, and the folders that they
name) is shown to the steps as it is here; nothing else of the machine is.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_SHOWN = "/run/pip"
_BARE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Step(NamedTuple):
    """An instruction of a Dockerfile with what stands behind it, on one line."""

    instruction: str
    text: str


def steps(dockerfile):
    """The instructions of a Dockerfile in their order."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    parts = [line.split(maxsplit=1) for line in whole.splitlines() if line.strip()]
    return [Step(*part) for part in parts]


@dataclass
class Image:
    """What the steps make: a root, and how processes are started in it."""

    root: Path
    context: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _BARE_PATH})
    arguments: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def build(self, dockerfile, **arguments):
        """Do every step but FROM, for which the root stands.

        Args:
            dockerfile: Text of the file.
            arguments: What `--build-arg` would set.

        """
        for instruction, text in steps(dockerfile):
            if instruction == "FROM":
                assert text == f"debian:{self.release()}-slim"
            elif instruction == "ARG":
                name, _, default = text.partition("=")
                self.arguments[name] = arguments.get(name, default.strip('"'))
            elif instruction == "ENV":
                self.environment |= dict(pair.split("=", 1) for pair in text.split())
            elif instruction == "WORKDIR":
                self.folder = text
                self._inside(text).mkdir(parents=True, exist_ok=True)
            elif instruction == "COPY":
                self._copy(*text.split())
            elif instruction == "RUN":
                self.run("/bin/sh", "-ec", text, building=True)
            elif instruction in ("ENTRYPOINT", "CMD"):
                setattr(self, {"CMD": "command"}.get(instruction, "entrypoint"), json.loads(text))
            else:
                raise AssertionError(f"nobody follows {instruction}")

    def release(self):
        """The name of the Debian that the root is of."""
        text = (self.root / "etc/os-release").read_text()
        return re.search(r"^VERSION_CODENAME=(\w+)$", text, re.MULTILINE)[1]

    def run(self, *command, building=False, user=0, folder=None):
        """Run a command in the root; what it printed."""
        variables, shown = _of_pip()
        for path, place in shown.items():
            self._show(Path(path), self._inside(place))
        binds = [each for pair in shown.items() for each in ("--ro-bind", *pair)]
        environment = {**self.environment, **variables}
        if building:
            environment |= {name: value for name, value in self.arguments.items() if value}
        done = subprocess.run(
            ["bwrap", "--bind", self.root, "/", "--dev", "/dev", "--proc", "/proc",
             "--tmpfs", "/tmp", "--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf", *binds,
             "--unshare-pid", "--die-with-parent", "--cap-add", "ALL", "--clearenv",
             *(each for pair in environment.items() for each in ("--setenv", *pair)),
             "--chdir", folder or self.folder, "--",
             "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
        return done.stdout

    @staticmethod
    def _show(path, place):
        """Make what a mount goes over, for anybody to reach; bwrap would make it for root alone."""
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            place.mkdir(exist_ok=True)
        else:
            place.touch()

    def _inside(self, path):
        return self.root / path.lstrip("/")

    def _copy(self, *words):
        *sources, target = words
        place = self._inside(os.path.normpath(f"{self.folder}/{target}"))
        for source in (self.context / each for each in sources):
            if source.is_dir():
                shutil.copytree(source, place, dirs_exist_ok=True)
            else:
                shutil.copy(source, place)


def bare_root(release, place):
    """Lay a minimal Debian, from where this machine's own packages come."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    mirror = listed.stdout.splitlines()[0]
    command = ["debootstrap", "--variant=minbase", release, str(place), mirror]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@functools.cache
def _of_pip():
    """What pip is told on this machine, as variables, and where files that these name are shown."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    variables, shown = {}, {}
    for name, value in re.findall(r"^(?:global|user|:env:)\.([\w.-]+)='(.*)'$", said, re.MULTILINE):
        if name == "constraint":  # a bound of this machine's own
            continue
        words = value.split()
        for at, word in enumerate(words):
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.exists():
                # An index lies beside the files that its pages name.
                kept = path.parent if word.startswith("file://") else path
                shown[str(kept)] = f"{_SHOWN}{kept}"
                words[at] = word.replace(str(path), f"{_SHOWN}{path}")
        variables[f"PIP_{name.upper().replace('-', '_')}"] = " ".join(words)
    return variables, shown
