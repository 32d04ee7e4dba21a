"""The tensors of a checkpoint, apart from its plain values and in safetensors' format.

Each process writes one file of what it has of every tensor: all of it, or some of its rows. Whoever
reads asks for the rows that it wants, so a checkpoint does not mind how many processes there are.
"""

import copy
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posttrain.stage.hashing import sha256_hasher

Outline = tuple[torch.dtype, tuple[int, ...]]
"""Type of the numbers, and shape of the whole tensor."""
PieceOf = Callable[[Any], "TensorPiece | None"]
"""What of a value this process writes; None for what is no tensor, or goes with plain values."""

_MARK = "a tensor of the checkpoint"
_FILE = "tensors-{rank:05d}.safetensors"
_FILES = re.compile(r"tensors-\d{5}\.safetensors")
_ROWS = "rows"
_DICTS, _LISTS = (dict, OrderedDict), (list, tuple)
_NUMBERS = {int, float, bool, str}
_BYTES_AT_ONCE = 1 << 24
# Names that safetensors has for torch's types; what is not here stays with the plain values.
_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_NAMES = {name: dtype for dtype, name in _TYPES.items()}
# What `torch.load` reads back with `weights_only`, beside containers.
_PLAIN = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, bytearray),
        *(torch.Tensor, torch.nn.Parameter, torch.Size, torch.device, torch.dtype),
    }
)


@dataclass(frozen=True)
class TensorPiece:
    """What one process has of a tensor: the rows from `first_row` on."""

    tensor: Tensor
    shape: tuple[int, ...]
    """Of the whole tensor."""
    first_row: int = 0

    @property
    def num_bytes(self) -> int:
        """Of the rows that are here."""
        return self.tensor.numel() * self.tensor.element_size()


def whole_piece(value: Any) -> TensorPiece | None:
    """All of a plain tensor; None for anything else."""
    if type(value) is not Tensor or value.dtype not in _TYPES or value.layout != torch.strided:
        return None
    return TensorPiece(value.detach(), tuple(value.shape))


class TensorsApart:
    """Takes states apart: plain values with marks, and what this process has of each tensor."""

    def __init__(self, piece_of: PieceOf) -> None:
        self.pieces: dict[str, TensorPiece] = {}
        """By the names of the tensors."""
        self._piece_of = piece_of
        self._names: dict[tuple[Any, ...], str] = {}

    def take(self, value: Any, place: str) -> Any:
        """Return a state with a mark in the place of every tensor.

        Args:
            value: The state; dicts, lists and tuples are looked through.
            place: Its name, with which those of its tensors begin.

        Returns:
            Another object of the same shape; what holds no tensor is the same.

        """
        if type(value) in _DICTS:
            found = copy.copy(value)  # with the attributes that a model's state has
            for key, each in value.items():
                found[key] = self.take(each, f"{place}/{key}")
            return found
        if type(value) in _LISTS:
            if set(map(type, value)) <= _NUMBERS:
                return value  # one by one, the tokens of rollouts would take seconds
            return type(value)(self.take(each, f"{place}/{at}") for at, each in enumerate(value))
        piece = self._piece_of(value)
        return value if piece is None else {_MARK: self._named(piece, place)}

    def _named(self, piece: TensorPiece, place: str) -> str:
        """The name of a piece; a weight that is tied to another one has that one's."""
        tensor = piece.tensor
        memory = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and memory in self._names:
            return self._names[memory]
        while place in self.pieces:
            place += "'"
        self._names[memory] = place
        self.pieces[place] = piece
        return place


def put_together(value: Any, read: Callable[[str], Any]) -> Any:
    """Undo `TensorsApart.take`.

    Args:
        value: What it returned.
        read: Gives the tensor of a name, or what stands for it.

    Returns:
        The state.

    """
    if type(value) is dict and value.keys() == {_MARK}:
        return read(value[_MARK])
    if type(value) in _DICTS:
        for key, each in value.items():
            value[key] = put_together(each, read)
        return value
    if type(value) in _LISTS:
        if set(map(type, value)) <= _NUMBERS:
            return value
        return type(value)(put_together(each, read) for each in value)
    return value


def foreign(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Find what is neither plain nor a tensor in a state.

    Args:
        value: The state, or a part of it.
        place: The keys that lead to the part.

    Yields:
        The keys that lead to each such value, and the value.

    """
    if type(value) in (dict, OrderedDict, Counter):
        for key, each in value.items():
            yield from foreign(key, f"the key {place}[{key!r}]")
            yield from foreign(each, f"{place}[{key!r}]")
    elif type(value) in (list, tuple, set):
        for index, each in enumerate(value):
            yield from foreign(each, f"{place}[{index}]")
    elif type(value) not in _PLAIN:
        yield place, value


def on_host(pieces: Mapping[str, TensorPiece]) -> dict[str, TensorPiece]:
    """Copy pieces to memory that nobody changes.

    Args:
        pieces: By name, on any device.

    Returns:
        The same on the CPU.

    """
    return {
        name: TensorPiece(
            piece.tensor.to("cpu", copy=True, memory_format=torch.contiguous_format),
            piece.shape,
            piece.first_row,
        )
        for name, piece in pieces.items()
    }


def write_tensors(
    folder: Path, pieces: Mapping[str, TensorPiece], *, rank: int = 0
) -> tuple[str, str]:
    """Write one process's file, hashing the bytes as they go.

    Args:
        folder: Of the checkpoint.
        pieces: What this process has, by the names of the tensors.
        rank: Number of the process.

    Returns:
        Name of the file and its SHA-256.

    Raises:
        OSError: It cannot be written, as of a full disk.

    """
    name, hasher = _FILE.format(rank=rank), sha256_hasher()
    # Larger numbers first, so that all lie where their type may be read without a copy.
    ordered = sorted(pieces.items(), key=lambda item: (-item[1].tensor.element_size(), item[0]))
    with (folder / name).open("wb") as file:
        for part in chain([_header(ordered)], _contents_of(ordered)):
            file.write(part)
            hasher.update(part)
    return name, hasher.hexdigest()


def _header(ordered: list[tuple[str, TensorPiece]]) -> bytes:
    entries: dict[str, Any] = {
        "__metadata__": {
            _ROWS: json.dumps({name: [piece.first_row, piece.shape] for name, piece in ordered})
        }
    }
    end = 0
    for name, piece in ordered:
        begin, end = end, end + piece.num_bytes
        entries[name] = {
            "dtype": _TYPES[piece.tensor.dtype],
            "shape": list(piece.tensor.shape),
            "data_offsets": [begin, end],
        }
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def _contents_of(ordered: list[tuple[str, TensorPiece]]) -> Iterator[bytes | memoryview]:
    for _, piece in ordered:
        flat = piece.tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
        for part in torch.split(flat, _BYTES_AT_ONCE) if flat.numel() else ():
            yield memoryview(part.numpy())  # type: ignore[arg-type]


class StoredTensors:
    """The tensors of a checkpoint, read by name and rows."""

    def __init__(self, folder: Path) -> None:
        from safetensors import safe_open

        self._pieces: dict[str, list[tuple[int, int, Any]]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for path in sorted(path for path in folder.iterdir() if _FILES.fullmatch(path.name)):
            file: Any = safe_open(path, framework="pt")
            for name, (first, shape) in json.loads(file.metadata()[_ROWS]).items():
                here = file.get_slice(name).get_shape()
                rows = here[0] if here else 1
                self._pieces.setdefault(name, []).append((first, first + rows, file))
                self._shapes[name] = tuple(shape)

    def stored(self, name: str) -> "StoredTensor":
        """One of them, before anything of it is read."""
        _, _, file = self._pieces[name][0]
        dtype = _NAMES[file.get_slice(name).get_dtype()]
        return StoredTensor(self, name, dtype, self._shapes[name])

    def whole(self, name: str) -> Tensor:
        """Read all of one."""
        return self.stored(name).rows()

    def read(self, name: str, begin: int, end: int, out: Tensor) -> None:
        """Read rows of one tensor.

        Args:
            name: Of the tensor.
            begin: First row.
            end: Behind the last row.
            out: Gets them.

        """
        count = 0
        for first, last, file in self._pieces[name]:
            low, high = max(begin, first), min(end, last)
            if low < high:
                count += high - low
                found = file.get_slice(name)[low - first : high - first]
                out[low - begin : high - begin] = found
        assert count == end - begin, name

    def number(self, name: str) -> Tensor:
        """Read one that has no rows."""
        _, _, file = self._pieces[name][0]
        number: Tensor = file.get_tensor(name)
        return number


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a checkpoint that is on disk."""

    files: StoredTensors
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    def rows(self, begin: int = 0, end: int | None = None) -> Tensor:
        """Read some rows; of a single number, the number.

        Args:
            begin: First row.
            end: Behind the last row; None for all that follow.

        Returns:
            A tensor of these rows.

        """
        if not self.shape:
            return self.files.number(self.name)
        end = self.shape[0] if end is None else end
        out = torch.empty((end - begin, *self.shape[1:]), dtype=self.dtype)
        self.files.read(self.name, begin, end, out)
        return out
