"""Load and save a policy in the Hugging Face format: safetensors and nothing that runs code."""

import errno
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from posttrain.learning.maths.reduce import widened
from posttrain.learning.models.mask_policy import is_mask_policy
from posttrain.learning.models.memory import check_memory
from posttrain.learning.models.unread import Places, copied, load_unread, pieces, stored_places
from posttrain.stage.errors import UserError, first_line
from posttrain.stage.hashing import WeightsDigest, sha256_of_parts

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Policy:
    """A causal language model and the tokenizer that belongs to it."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    stored: WeightsDigest | None = None
    """Digest of the weights as they are stored, where these were rounded; None where they agree."""

    def copied(self) -> "PreTrainedModel":
        """A copy of the model; what is not read yet is not read in the copy either."""
        made: PreTrainedModel = copied(self.model)
        return made


def load_policy(
    path: Path,
    *,
    device: str = "cpu",
    dtype: torch.dtype | None = torch.float32,
    processes: int = 1,
) -> Policy:
    """Load a checkpoint directory, in evaluation mode.

    One that was trained to predict masks reads as it was taught: see `mask_predictor`.

    Args:
        path: Folder in Hugging Face's format.
        device: Where the weights go, such as `cpu` or `cuda:0`.
        dtype: What its numbers become; None leaves them as they are stored.
        processes: How many will share the weights; see `load_weights`.

    Returns:
        Model and tokenizer.

    Raises:
        UserError: It cannot be loaded, or the tokenizer has more tokens than the model embeds.

    """
    from transformers import AutoModelForCausalLM

    model = load_weights(
        AutoModelForCausalLM, path, device=device, dtype=dtype, processes=processes
    )
    tokenizer = load_tokenizer(path)
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise UserError(
            f"{path}: the tokenizer has {len(tokenizer)} tokens but the model embeds {rows}; "
            "take model and tokenizer from one checkpoint"
        )
    if is_mask_policy(model):
        from posttrain.learning.models.mask_predictor import as_mask_predictor

        as_mask_predictor(model)
    return Policy(model, tokenizer)


def load_tokenizer(path: Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a checkpoint directory; it needs an end token, and gets a pad token."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not (path / "tokenizer.json").is_file():
        raise UserError(f"{path}: there is no tokenizer.json; save the tokenizer beside the model")
    # AutoTokenizer puts the architecture's usual tokenizer (Qwen2's, for instance) in the place of
    # what tokenizer.json says, which cuts text in other ways and may have other tokens.
    options = {"local_files_only": True, "trust_remote_code": False}
    generic = _is_generic(path)
    kind = PreTrainedTokenizerFast if generic else AutoTokenizer
    tokenizer = kind.from_pretrained(path, **options)
    if not generic and not _is_as_filed(tokenizer, path / "tokenizer.json"):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(path, **options)
    # How it was loaded is no part of it; saved again, its files must keep their bytes.
    for option in ("is_local", "local_files_only", "name_or_path"):
        tokenizer.init_kwargs.pop(option, None)
    if tokenizer.eos_token_id is None:
        raise UserError(f"{path}: the tokenizer has no end-of-sequence token; set eos_token")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_weights(
    auto_class: Any,
    path: Path,
    *,
    device: str,
    dtype: torch.dtype | None,
    processes: int = 1,
    **options: Any,
) -> Any:
    """Load a model after refusing pickles, foreign code and missing weights.

    Args:
        auto_class: One of transformers' auto classes.
        path: Folder with ``config.json`` and safetensors.
        device: Where the weights go, as torch names it.
        dtype: Of the weights; None keeps that of the files.
        processes: How many will share the weights. Of several none reads them before they are in
            shards, where the files hold them as the model does; see `unread`.
        **options: Handed on to ``from_pretrained``.

    Returns:
        The model in evaluation mode, on the device.

    Raises:
        UserError: transformers cannot load it, it would not fit into memory, or a weight is
            missing.

    """
    from safetensors import SafetensorError
    from transformers.utils import logging

    check_files(path)
    # An import fails where a quantized checkpoint wants a package of its own.
    failures = (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError)
    logging.disable_progress_bar()
    load = partial(
        auto_class.from_pretrained,
        path,
        dtype=dtype or "auto",
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
        **options,
    )
    try:
        check_memory(path, device=device, dtype=dtype, processes=processes)
        unread = load_unread(load, path, device=device) if processes > 1 else None
        model, report = unread or load()
    except failures as error:
        raise UserError(f"{path}: transformers cannot load this: {first_line(error)}") from None
    if report["missing_keys"]:
        name = sorted(report["missing_keys"])[0]
        raise UserError(f"{path}: the weights lack '{name}'; save the whole model again")
    return model.eval() if unread else model.to(device).eval()


def save_policy(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", path: Path) -> None:
    """Write model and tokenizer so that ``AutoModelForCausalLM.from_pretrained(path)`` works.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        path: Folder to write to, made where it is not there.

    Raises:
        UserError: Weights are not finite, as the last update may have made them; nothing is saved.
        OSError: The disk is full or refuses; safetensors' own error does not say which.
        SafetensorError: Any other failure to write.

    """
    broken = [name for name, p in model.named_parameters() if not bool(p.isfinite().all())]
    if broken:
        raise UserError(
            f"{len(broken)} weights are not finite after training, {broken[0]} the first; nothing"
            " was saved: lower the learning rate, or clip gradients at a smaller norm"
        )
    from safetensors import SafetensorError
    from transformers.utils import logging

    logging.disable_progress_bar()
    path.mkdir(parents=True, exist_ok=True)
    try:
        model.save_pretrained(path)
    except SafetensorError as error:
        if "os error 28" in str(error):
            raise OSError(errno.ENOSPC, "No space left on device", str(path)) from None
        raise
    tokenizer.save_pretrained(path)


def weights_digest(model: torch.nn.Module) -> WeightsDigest:
    """SHA-256 over the names, types, shapes and bytes of all weights, sorted by name.

    Narrower numbers than float32 count as float32, so that it does not depend on how a model was
    loaded that is stored in bfloat16. Weights that are not read yet are read through for it once.

    Args:
        model: A model.

    Returns:
        The digest.

    """
    # With what knows where its numbers lie, of weights that are not read yet.
    weights = sorted(model.state_dict(keep_vars=True).items())
    places = stored_places(weights)
    if places is None:
        return WeightsDigest(sha256_of_parts(_as_bytes(weights)))
    if places not in _READ_THROUGH:
        _READ_THROUGH.clear()
        _READ_THROUGH[places] = WeightsDigest(sha256_of_parts(_as_bytes(weights)))
    return _READ_THROUGH[places]


_READ_THROUGH: dict[Places, WeightsDigest] = {}
"""Of the model that was read through last, by where its weights lie: it is asked several times."""


def _as_bytes(weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[bytes]:
    for name, tensor in weights:
        dtype = widened(tensor.new_empty(0)).dtype if tensor.is_floating_point() else tensor.dtype
        yield f"{name} {dtype} {tuple(tensor.shape)}\n".encode()
        for piece in pieces(tensor):
            flat = piece.to(dtype).cpu().contiguous().reshape(-1)
            yield flat.view(torch.uint8).numpy().tobytes()


def bit_sums(weights: Iterable[torch.Tensor]) -> list[int]:
    """Sum the bits of each of some weights, read as integers.

    No digest, but enough to tell that an update has changed something, at a fraction of the cost.

    Args:
        weights: Tensors of 2, 4 or 8 bytes a number.

    Returns:
        One sum per tensor, in their order.

    """
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [w.detach().view(kinds[w.element_size()]).sum(dtype=torch.int64) for w in weights]
    found: list[int] = torch.stack(sums).tolist()
    return found


def check_files(path: Path) -> None:
    """Refuse a directory that is no checkpoint, holds only pickles, or asks to run its own code."""
    config = path / "config.json"
    if not path.is_dir():
        raise UserError(f"{path}: there is no such checkpoint directory; check the path")
    if not config.is_file() and (path / "adapter_config.json").is_file():
        raise UserError(
            f"{path}: this is an adapter without its base; set learner.lora.save to merged where it"
            " was trained, or merge it with posttrain.learning.models.adapters.load_adapter"
        )
    if not config.is_file():
        raise UserError(f"{path}: there is no config.json; give a Hugging Face model directory")
    if not any(path.glob("*.safetensors")):
        pickled = next((file.name for file in sorted(path.glob("*.bin"))), None)
        what = f"the weights are pickled ({pickled})" if pickled else "there are no weights"
        raise UserError(f"{path}: {what}; save the model with safetensors")
    try:
        described = json.loads(config.read_text())
    except ValueError:
        raise UserError(f"{config}: this is not JSON; save the model again") from None
    if "auto_map" in described:
        raise UserError(
            f"{path}: this model brings its own code (auto_map); "
            "use an architecture that transformers itself implements"
        )


def _is_as_filed(tokenizer: "PreTrainedTokenizerBase", file: Path) -> bool:
    """Whether a tokenizer has the tokens of its file, and cuts and joins text as that says."""
    from tokenizers import Tokenizer

    own, filed = getattr(tokenizer, "backend_tokenizer", None), Tokenizer.from_file(str(file))
    if own is None:
        return False  # some classes read other files
    parts = ("normalizer", "pre_tokenizer", "decoder")
    return own.get_vocab_size() == filed.get_vocab_size() and all(
        _state(getattr(own, part)) == _state(getattr(filed, part)) for part in parts
    )


def _state(part: Any) -> bytes | None:
    return None if part is None else part.__getstate__()


def _is_generic(path: Path) -> bool:
    """Whether the checkpoint names no tokenizer class but the one that follows tokenizer.json."""
    config = path / "tokenizer_config.json"
    if not config.is_file():
        return False
    try:
        named = json.loads(config.read_text()).get("tokenizer_class")
    except ValueError:
        raise UserError(f"{config}: this is not JSON; save the tokenizer again") from None
    return named in ("TokenizersBackend", "PreTrainedTokenizerFast")
