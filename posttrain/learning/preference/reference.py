"""What the reference says of every pair: computed once before training, kept in the scratch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.data.batching import length_buckets
from posttrain.learning.algorithms.identity import digest
from posttrain.learning.algorithms.preference import PreferenceAlgorithm
from posttrain.learning.preference.frozen_policy import FrozenPolicy
from posttrain.learning.preference.objective import reduced_logprobs
from posttrain.learning.training.asking import ask, in_turns, writes
from posttrain.learning.training.pairwise import PairRows
from posttrain.stage.hashing import sha256_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PORTION = 32


@torch.no_grad()
def reference_values(
    algorithm: PreferenceAlgorithm,
    policy: FrozenPolicy,
    rows: PairRows,
    *,
    batch_tokens: int,
    scratch: Path,
) -> Tensor:
    """Compute the reduced log-probability of each side of each pair under a model.

    Portions that an earlier attempt has finished are read back, if they are of the same rows,
    weights and algorithm.

    Args:
        algorithm: Says how the log-probabilities of a completion's tokens become one number.
        policy: The reference; it is read only where a portion is not there yet.
        rows: Token ids of the pairs.
        batch_tokens: Most tokens of one pass, padding included.
        scratch: Folder in which portions are kept.

    Returns:
        Values ``[sides, pairs]``, in nats.

    """
    from safetensors.torch import load_file

    lengths = [rows.length(index, packed=False) for index in range(len(rows.kept))]
    buckets = length_buckets(range(len(lengths)), lengths, batch_tokens)
    identity = [digest(algorithm), policy.digest(), rows.table().digest, str(batch_tokens)]
    name = sha256_of(" ".join(identity))[:16]
    folder = scratch / "reference" / name
    folder.mkdir(parents=True, exist_ok=True)
    values_SN = torch.zeros(len(rows.sides), len(lengths))
    missing: list[tuple[list[list[int]], list[int], Path]] = []
    for begin in range(0, len(buckets), _PORTION):
        portion = buckets[begin : begin + _PORTION]
        indices = [index for bucket in portion for index in bucket]
        path = folder / f"{begin // _PORTION:06d}.safetensors"
        if path.is_file():
            values_SN[:, indices] = load_file(path)["values"]
        else:
            missing.append((portion, indices, path))
    if not missing:
        return values_SN

    def asked(model: "PreTrainedModel") -> None:
        for portion, indices, path in missing:
            values_SN[:, indices] = _portion(algorithm, model, rows, portion, path)

    with policy.reading() as model:
        ask(model, asked)
    return values_SN


def _portion(
    algorithm: PreferenceAlgorithm,
    model: "PreTrainedModel",
    rows: PairRows,
    buckets: Sequence[Sequence[int]],
    path: Path,
) -> Tensor:
    from safetensors.torch import save_file

    def values_of(bucket: Sequence[int]) -> Tensor:
        pairs = rows.table(bucket, sides=(0, 1)).batch(range(len(bucket))).to(model.device)
        values = [*reduced_logprobs(algorithm, model, pairs, paired=True).chunk(2)]
        if len(rows.sides) > 2:
            extra = rows.table(bucket, sides=(2,)).batch(range(len(bucket))).to(model.device)
            values.append(reduced_logprobs(algorithm, model, extra, paired=False))
        return torch.stack(values).cpu()

    joined = torch.cat(in_turns(model, buckets, values_of), dim=1)
    if writes(model):
        draft = path.with_suffix(".draft")
        save_file({"values": joined}, draft)
        draft.replace(path)
    return joined
