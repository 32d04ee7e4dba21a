"""Resumable checkpoints: one atomic directory each, checked byte for byte when it is read back."""

import io
import json
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from posttrain.learning.models.checkpoints_config import CheckpointsConfig
from posttrain.learning.models.memory import free_memory
from posttrain.learning.models.stored_tensors import (
    StoredTensors,
    TensorPiece,
    TensorsApart,
    foreign,
    on_host,
    put_together,
    whole_piece,
    write_tensors,
)
from posttrain.stage.context import TRACKED_RUN
from posttrain.stage.errors import UserError
from posttrain.stage.files import flush, replacing
from posttrain.stage.formatting import bytesize
from posttrain.stage.hashing import sha256_of, sha256_of_file

_MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{9})")
_DONE = ".done"
"""Ends the name of the note by which a process says that its file is written, with its digest."""
_POLL_SECONDS = 0.01


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


class CheckpointShare(Protocol):
    """Which part of a checkpoint this process writes, and how it meets the others that do."""

    rank: int
    size: int

    def piece_of(self, value: Any) -> TensorPiece | None:
        """What this process writes of a value; None where it is no tensor, or another's."""
        ...

    def agree(self, draft: Path) -> Path:
        """The folder that all write to, once the main process has made it."""
        ...


class WholeCheckpoint:
    """The only process, which writes everything."""

    rank, size = 0, 1

    def piece_of(self, value: Any) -> TensorPiece | None:
        """All of a tensor."""
        return whole_piece(value)

    def agree(self, draft: Path) -> Path:
        """There is nobody to wait for."""
        return draft


class Checkpointer:
    """Writes a checkpoint every `every` steps and finds the newest sound one.

    A directory appears under its final name only when all its bytes are on disk, so a kill at any
    instant leaves the previous one in force. `identity` (configuration and input digests) is
    stored, and a checkpoint of another identity is refused by name.

    By `config`, states are copied to memory and written by a thread while the caller goes on, one
    checkpoint at a time: `wait` for the last one.
    """

    def __init__(
        self,
        scratch: Path,
        *,
        every: int,
        config: CheckpointsConfig | None = None,
        identity: Mapping[str, str] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self.folder = scratch / "checkpoints"
        self.every = every
        self.config = config or CheckpointsConfig()
        self.identity = dict(identity or {})
        self.owners: Mapping[str, str] = {}
        """Who gives a state that may hold anything, by the name of the state, for errors."""
        self.share: CheckpointShare = WholeCheckpoint()
        self._note = note or (lambda _line: None)
        self._told: list[str] = []
        self._writing: Future[None] | None = None

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
        """Write one checkpoint atomically, then drop those that `config` does not keep.

        Everything is read before this returns, so that it may change afterwards.

        Args:
            step: Steps made; names the checkpoint.
            states: State by name, each of them for `torch.save`.
            facts: Small values, for JSON, that the snapshot gives back.
            files: Files to copy in, by the name that they get there.

        Raises:
            OSError: It, or where it was written by the thread the one before, cannot be written.

        """
        self.check(states)
        self.wait()
        draft = self._draft(step)
        for name, source in (files or {}).items():
            shutil.copyfile(source, draft / "files" / name)
        apart = TensorsApart(self.share.piece_of)
        plain = {name: apart.take(state, name) for name, state in states.items()}
        manifest = {
            "step": step,
            "identity": self.identity,
            "facts": dict(facts or {}),
            "states": sorted(states),
            TRACKED_RUN: _tracked_run(self.folder),
        }
        pieces: Mapping[str, TensorPiece] = apart.pieces
        if not self._has_room(pieces, step):
            self._write(draft, _saved(plain), pieces, manifest)
            self._tell()
            return
        beside = ThreadPoolExecutor(1, "checkpoint")
        written = draft, _saved(plain), on_host(pieces), manifest
        self._writing = beside.submit(self._write, *written)
        beside.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until what was saved is on disk.

        Raises:
            OSError: It could not be written.

        """
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()
        self._tell()

    close = wait

    def raise_failed(self) -> None:
        """Raise what has gone wrong in the thread that writes, without waiting for it."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def check(self, states: Mapping[str, Any]) -> None:
        """Refuse states of which something could not be read back.

        Args:
            states: By name; those are looked through that have an owner.

        Raises:
            UserError: A value is of a type that is refused where a checkpoint is read.

        """
        for name, owner in self.owners.items():
            for place, value in foreign(states.get(name)):
                kind = type(value)
                spelled = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
                raise UserError(
                    f"{owner}: `state_dict` holds a {spelled} at {place or 'its top'}, which a"
                    " checkpoint cannot hold; let it give plain numbers, texts, lists, tuples,"
                    " dicts and tensors"
                )

    def load(self, *, device: str = "cpu") -> Snapshot | None:
        """The newest complete checkpoint, or None; a torn or damaged one is skipped with a note."""
        path = self.newest()
        return None if path is None else read_checkpoint(path, device=device)

    def newest(self) -> Path | None:
        """Folder of the newest complete checkpoint, whose identity is checked."""
        self.wait()
        for path in reversed(self._steps()):
            manifest = _sound_manifest(path)
            if manifest is None:
                self._note(f"checkpoint {path.name} is damaged and was skipped")
                continue
            self._check_identity(path, manifest["identity"])
            return path
        return None

    def _draft(self, step: int) -> Path:
        """An empty folder for a checkpoint, which every process sees."""
        draft = self.folder / f"draft-{step:09d}"
        if self.share.rank == 0:
            # A killed attempt may have left either.
            for stale in (draft, self.folder / f"step-{step:09d}"):
                shutil.rmtree(stale, ignore_errors=True)
            (draft / "files").mkdir(parents=True)
        return self.share.agree(draft)

    def _has_room(self, pieces: Mapping[str, TensorPiece], step: int) -> bool:
        """Whether a copy of the state may be made, for the thread that writes."""
        if not self.config.in_background:
            return False
        needed, free = sum(piece.num_bytes for piece in pieces.values()), free_memory("cpu")
        if needed > free / 2:
            self._note(
                f"the checkpoint of step {step} is written while the step waits: a copy of it takes"
                f" {bytesize(needed)}, more than half of the {bytesize(free)} that are free"
            )
        return needed <= free / 2

    def _write(
        self,
        draft: Path,
        plain: Mapping[str, bytes],
        pieces: Mapping[str, TensorPiece],
        manifest: Mapping[str, Any],
    ) -> None:
        """Write this process's part; the main process makes a checkpoint of all parts."""
        name, digest = write_tensors(draft, pieces, rank=self.share.rank)
        flush(draft / name)
        if self.share.rank:
            with replacing(draft / f"{name}{_DONE}") as note:
                note.write_text(digest)
            return
        digests = {name: digest} | _parts_of_others(draft, self.share.size - 1)
        for state, content in plain.items():
            (draft / f"{state}.pt").write_bytes(content)
            digests[f"{state}.pt"] = sha256_of(content)
        for path in _contents(draft / "files"):
            digests[f"files/{path}"] = sha256_of_file(draft / "files" / path)
        (draft / _MANIFEST).write_text(json.dumps({**manifest, "digests": digests}, sort_keys=True))
        # A rename may reach the disk before the bytes do: after a power cut, a checkpoint that is
        # there must be whole.
        for path in [*_contents(draft), "files", "."]:
            if path != name:
                flush(draft / path)
        final = draft.with_name(draft.name.replace("draft", "step"))
        draft.rename(final)
        flush(self.folder)
        self._drop_old()

    def _drop_old(self) -> None:
        """Drop the oldest beyond the number, then beyond the budget; the newest stays."""
        kept, budget = self._steps()[-self.config.keep :], self.config.budget
        for old in self._steps()[: -self.config.keep]:
            shutil.rmtree(old, ignore_errors=True)
        while budget is not None and len(kept) > 1:
            sizes = [_size(path) for path in kept]
            if sum(sizes) <= budget:
                return
            self._told.append(
                f"checkpoint {kept[0].name} is dropped: with it there would be"
                f" {bytesize(sum(sizes))}, and learner.checkpoints.budget is {bytesize(budget)}"
            )
            shutil.rmtree(kept.pop(0), ignore_errors=True)

    def _tell(self) -> None:
        """Note what the thread that writes had to say."""
        told, self._told = self._told, []
        for line in told:
            self._note(line)

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


def _tracked_run(folder: Path) -> str | None:
    """Where the curve up to here is, as far as the executor has said so."""
    noted = folder.parent / TRACKED_RUN
    return noted.read_text() if noted.is_file() else None


def read_checkpoint(
    path: Path, *, device: str = "cpu", in_pieces: Collection[str] = ()
) -> Snapshot:
    """Read a checkpoint that is known to be sound.

    Args:
        path: Its folder.
        device: Where tensors go.
        in_pieces: States whose tensors are left on disk, each as a `StoredTensor`.

    Returns:
        What was saved.

    """
    manifest = json.loads((path / _MANIFEST).read_text())
    tensors = StoredTensors(path)

    def whole(name: str) -> torch.Tensor:
        return tensors.whole(name).to(device)

    states = {
        name: put_together(
            torch.load(path / f"{name}.pt", map_location=device, weights_only=True),
            tensors.stored if name in in_pieces else whole,
        )
        for name in manifest["states"]
    }
    return Snapshot(manifest["step"], states, manifest["facts"], path)


def _saved(plain: Mapping[str, Any]) -> dict[str, bytes]:
    """States without their tensors, each as torch saves it."""
    found = {}
    for name, state in plain.items():
        buffer = io.BytesIO()
        torch.save(state, buffer)
        found[name] = buffer.getvalue()
    return found


def _parts_of_others(draft: Path, count: int) -> dict[str, str]:
    """Wait for the files of other processes; their digests by name.

    One that fails ends its process, and with that this one.
    """
    while len(notes := sorted(draft.glob(f"*{_DONE}"))) < count:
        time.sleep(_POLL_SECONDS)
    digests = {note.name.removesuffix(_DONE): note.read_text() for note in notes}
    for note in notes:
        note.unlink()
    return digests


def _size(path: Path) -> int:
    """Bytes of all files of a checkpoint."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


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
