"""Resumable checkpoints: one atomic directory each, checked byte for byte when it is read back."""

import json
import re
import shutil
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from posttrain.stage.context import TRACKED_RUN
from posttrain.stage.errors import UserError
from posttrain.stage.files import flush
from posttrain.stage.hashing import sha256_of_file

# What `torch.load` reads back with `weights_only`, beside containers.
_PLAIN = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, bytearray),
        *(torch.Tensor, torch.nn.Parameter, torch.Size, torch.device, torch.dtype),
    }
)
_MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{9})")


@dataclass(frozen=True)
class Snapshot:
    """What was saved at the end of `step`: state dicts by name, JSON facts, and files in `path`."""

    step: int
    states: Mapping[str, Any]
    facts: Mapping[str, Any]
    path: Path

    def file(self, name: str) -> Path:
        """A file that was handed to `save`; copy it before the next save prunes it."""
        return self.path / "files" / name


class Checkpointer:
    """Writes a checkpoint every `every` steps and finds the newest sound one.

    A directory appears under its final name only when all its bytes are on disk, so a kill at any
    instant leaves the previous one in force. `identity` (configuration and input digests) is
    stored, and a checkpoint of another identity is refused by name.
    """

    def __init__(
        self,
        scratch: Path,
        *,
        every: int,
        keep: int = 2,
        identity: Mapping[str, str] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self.folder = scratch / "checkpoints"
        self.every = every
        self.keep = keep
        self.identity = dict(identity or {})
        self.owners: Mapping[str, str] = {}
        """Who gives a state that may hold anything, by the name of the state, for errors."""
        self._note = note or (lambda _line: None)

    def due(self, step: int) -> bool:
        """True where the schedule asks for a checkpoint after `step` finished steps."""
        return self.every > 0 and step > 0 and step % self.every == 0

    def save(
        self,
        step: int,
        states: Mapping[str, Any],
        *,
        facts: Mapping[str, Any] | None = None,
        files: Mapping[str, Path] | None = None,
    ) -> None:
        """Write one checkpoint atomically, then drop all but the newest `keep`.

        Args:
            step: Steps made; names the checkpoint.
            states: State by name, each of them for `torch.save`.
            facts: Small values, for JSON, that the snapshot gives back.
            files: Files to copy in, by the name that they get there.

        """
        self.check(states)
        final = self.folder / f"step-{step:09d}"
        draft = self.folder / f"draft-{step:09d}"
        # A killed attempt may have left either.
        for stale in (draft, final):
            shutil.rmtree(stale, ignore_errors=True)
        (draft / "files").mkdir(parents=True)
        for name, state in states.items():
            write_state(state, draft / f"{name}.pt")
        for name, source in (files or {}).items():
            shutil.copyfile(source, draft / "files" / name)
        manifest = {
            "step": step,
            "identity": self.identity,
            "facts": dict(facts or {}),
            "states": sorted(states),
            TRACKED_RUN: self._tracked_run(),
            "digests": {path: sha256_of_file(draft / path) for path in _contents(draft)},
        }
        (draft / _MANIFEST).write_text(json.dumps(manifest, sort_keys=True))
        # A rename may reach the disk before the bytes do: after a power cut, a checkpoint that is
        # there must be whole.
        for path in [*_contents(draft), "files", "."]:
            flush(draft / path)
        draft.rename(final)
        flush(self.folder)
        for old in self._steps()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)

    def check(self, states: Mapping[str, Any]) -> None:
        """Refuse states of which something could not be read back.

        Args:
            states: By name; those are looked through that have an owner.

        Raises:
            UserError: A value is of a type that is refused where a checkpoint is read.

        """
        for name, owner in self.owners.items():
            for place, value in _foreign(states.get(name)):
                kind = type(value)
                spelled = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
                raise UserError(
                    f"{owner}: `state_dict` holds a {spelled} at {place or 'its top'}, which a"
                    " checkpoint cannot hold; let it give plain numbers, texts, lists, tuples,"
                    " dicts and tensors"
                )

    def load(self, *, device: str = "cpu") -> Snapshot | None:
        """The newest complete checkpoint, or None; a torn or damaged one is skipped with a note."""
        for path in reversed(self._steps()):
            manifest = _sound_manifest(path)
            if manifest is None:
                self._note(f"checkpoint {path.name} is damaged and was skipped")
                continue
            self._check_identity(path, manifest["identity"])
            states = {
                name: torch.load(path / f"{name}.pt", map_location=device, weights_only=True)
                for name in manifest["states"]
            }
            return Snapshot(manifest["step"], states, manifest["facts"], path)
        return None

    def _tracked_run(self) -> str | None:
        """Where the curve up to here is, as far as the executor has said so."""
        noted = self.folder.parent / TRACKED_RUN
        return noted.read_text() if noted.is_file() else None

    def _steps(self) -> list[Path]:
        """Published checkpoint directories, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))

    def _check_identity(self, path: Path, stored: Mapping[str, str]) -> None:
        for name in sorted({*stored, *self.identity}):
            if stored.get(name) != self.identity.get(name):
                raise UserError(
                    f"{path}: this checkpoint was made with {name}={stored.get(name)}, now it is "
                    f"{self.identity.get(name)}; remove the checkpoint or restore the old value"
                )


def _foreign(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """What is neither plain nor a tensor in a state, each with the keys that lead to it."""
    if type(value) in (dict, OrderedDict, Counter):
        for key, each in value.items():
            yield from _foreign(key, f"the key {place}[{key!r}]")
            yield from _foreign(each, f"{place}[{key!r}]")
    elif type(value) in (list, tuple, set):
        for index, each in enumerate(value):
            yield from _foreign(each, f"{place}[{index}]")
    elif type(value) not in _PLAIN:
        yield place, value


def write_state(state: Any, path: Path) -> None:
    """Save a state with torch.

    Args:
        state: Whatever `torch.save` takes.
        path: The file, replaced where it exists.

    Raises:
        OSError: The file cannot be written, as of a full disk; torch alone would raise a
            `RuntimeError`.
        RuntimeError: torch cannot save the state for another reason.

    """
    try:
        with path.open("wb") as file:
            torch.save(state, file)
    except RuntimeError as error:
        # torch's writer buries the reason under a complaint about its own position.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _sound_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest, if it is there and every file has the digest that it states."""
    try:
        manifest: dict[str, Any] = json.loads((path / _MANIFEST).read_text())
        sound = all(
            sha256_of_file(path / name) == want for name, want in manifest["digests"].items()
        )
    except (OSError, ValueError, KeyError):
        return None
    return manifest if sound else None


def _contents(folder: Path) -> list[str]:
    """Relative paths of all files below `folder`, sorted."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
