"""Token ids of large tables of text, kept by digest: each is tokenized once on a machine.

A million rows take minutes, at the start of every stage and of every run with another learning
rate. What is kept is what the tokenizer's own library gives, so that no code of posttrain is
behind it: the key is the tokenizer as it is serialized, the library's version, the options and the
texts.
"""

import contextlib
import importlib.metadata
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.stage.hashing import sha256_of_parts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from transformers import PreTrainedTokenizerBase

TOKENS_VARIABLE = "POSTTRAIN_TOKENS"
"""Environment variable that names another folder."""
WORTH_KEEPING = 4_000_000
"""Characters; fewer are tokenized in a few seconds."""
BUDGET = 8 << 30
"""Bytes of the folder; what was not read for longest goes first."""

TokenIds = list[list[int]]


def folder() -> Path:
    """Where tables lie: `posttrain/tokens` among the user's caches."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(TOKENS_VARIABLE) or Path(caches) / "posttrain" / "tokens")


def kept_token_ids(
    tokenizer: "PreTrainedTokenizerBase",
    texts: Sequence[str],
    options: Mapping[str, bool],
    tokenize: Callable[[], TokenIds],
) -> TokenIds:
    """Give the token ids of texts, from an earlier time where they were kept.

    Args:
        tokenizer: Whose they are.
        texts: What is tokenized.
        options: Of the tokenizer's call.
        tokenize: Calls it.

    Returns:
        Ids of each text.

    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or sum(map(len, texts)) < WORTH_KEEPING:
        return tokenize()
    versions = [importlib.metadata.version(name) for name in ("tokenizers", "transformers")]
    identity = [backend.to_str(), type(tokenizer).__name__, repr(sorted(options.items()))]
    lengths = repr([len(text) for text in texts]).encode()
    parts = [*(part.encode() for part in [*versions, *identity]), lengths]
    path = folder() / f"{sha256_of_parts([*parts, *(text.encode() for text in texts)])}.safetensors"
    kept = _read(path)
    if kept is not None:
        return kept
    found = tokenize()
    # A cache that cannot be written is no reason to stop.
    with contextlib.suppress(OSError):
        _write(path, found)
        _keep_within(path.parent, BUDGET)
    return found


def _read(path: Path) -> TokenIds | None:
    """What is kept there; None where nothing is, or its bytes are no longer its own."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            ids, lengths = file.get_tensor("ids"), file.get_tensor("lengths")
            if file.metadata()["digest"] != _digest(ids, lengths):
                return None
        os.utime(path)
    except (OSError, SafetensorError, KeyError, TypeError):
        return None
    ends = lengths.cumsum()
    flat = ids.tolist()
    return [flat[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _write(path: Path, rows: TokenIds) -> None:
    import numpy as np
    from safetensors.numpy import save

    ids = np.array([token for row in rows for token in row], dtype=np.int32)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    tensors = {"ids": ids, "lengths": lengths}
    draft.write_bytes(save(tensors, metadata={"digest": _digest(ids, lengths)}))
    draft.replace(path)


def _digest(ids: "npt.NDArray[np.int32]", lengths: "npt.NDArray[np.int64]") -> str:
    return sha256_of_parts([ids.tobytes(), lengths.tobytes()])


def _keep_within(where: Path, budget: int) -> None:
    """Remove the tables that were not read for longest until the others fit."""
    tables = sorted(where.glob("*.safetensors"), key=lambda file: -file.stat().st_mtime_ns)
    total = 0
    for table in tables:
        total += table.stat().st_size
        if total > budget:
            table.unlink()
