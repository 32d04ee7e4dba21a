"""Which weights training changed, by how much, and whether another seed changes the same ones."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic, Seen
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


class WeightDelta(Diagnostic):
    """Compares the weights of each policy with those of the reference.

    `moved` is the share of weights that differ by more than `tolerance` in the given precision,
    `largest_layer` and `smallest_layer` the same share within one matrix, `rank` the mean over
    matrices of the rank of their change, as a share of the full one. Where the policy of another
    seed is connected (`repeats`), `overlap` is the share of the weights that this one moved which
    the other moved too, `chance` what it would be if both had moved as many at random, and
    `beyond_chance` the first less the second.
    """

    SOURCE = (
        "Mukherjee et al., 'Reinforcement Learning Finetunes Small Subnetworks in Large Language"
        " Models', arXiv:2505.11711, sections 3 and 5; SagnikMukherjee/sparsity_in_rl at 21997f5,"
        " check_sparsity.py"
    )
    NEEDS = frozenset({"policies"})

    kind: Literal["weight_delta"] = "weight_delta"
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """In which two weights are compared; the paper's checkpoints are bfloat16."""
    tolerance: float = Field(default=1e-5, ge=0.0)
    """Differences up to this count as none."""
    parent: str = ""
    """Policy that the reference was trained from, as it is connected: then the change of the
    reference itself is measured too, by the same measure."""

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Compare every policy with the reference; see `Diagnostic.diagnose`."""
        before = _weights(seen.compared(seen.policies))
        figures = {}
        if self.parent:
            if self.parent not in seen.policies:
                raise UserError(
                    f"diagnose: parent '{self.parent}' is none of the policies; there are"
                    f" {', '.join(seen.policies)}"
                )
            started = _weights(seen.policies[self.parent])
            figures[seen.reference] = _shares(self._moved(started, before, seen.reference))
        for name, path in seen.policies.items():
            if name in (seen.reference, self.parent):
                continue
            after = _weights(path)
            moved = self._moved(before, after, name)
            figures[name] = _shares(moved) | {"rank": _rank(before, after)}
            if name in seen.repeats:
                again = self._moved(before, _weights(seen.repeats[name]), name)
                figures[name] |= _overlap(moved, again)
        return Diagnosis(figures)

    def _moved(
        self, before: dict[str, Any], after: dict[str, Any], name: str
    ) -> "dict[str, Tensor]":
        """Where each weight differs, by the names of the tensors."""
        import torch

        other = set(before.keys() ^ after.keys())
        other |= {n for n in before.keys() & after.keys() if before[n].shape != after[n].shape}
        if other:
            raise UserError(
                f"diagnose: '{name}' has not the weights of the reference, such as"
                f" {sorted(other)[0]}; compare models of one architecture"
            )
        kind = getattr(torch, self.precision)
        return {
            n: (after[n].to(kind).float() - before[n].to(kind).float()).abs() > self.tolerance
            for n in before
        }


def _weights(path: "Path") -> dict[str, Any]:
    from posttrain.learning.models.load import load_policy

    return dict(load_policy(path).model.named_parameters())


def _shares(moved: "dict[str, Tensor]") -> dict[str, float]:
    by_matrix = [float(each.double().mean()) for each in moved.values() if each.ndim > 1]
    hit = sum(int(each.sum()) for each in moved.values())
    return {
        "moved": hit / sum(each.numel() for each in moved.values()),
        "largest_layer": max(by_matrix),
        "smallest_layer": min(by_matrix),
    }


def _rank(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Mean over matrices of the change's numerical rank, of the most that it could be."""
    import torch

    with torch.inference_mode():
        shares = [
            int(torch.linalg.matrix_rank((after[n] - before[n]).double())) / min(before[n].shape)
            for n in before
            if before[n].ndim == 2
        ]
    return float(sum(shares) / len(shares))


def _overlap(one: "dict[str, Tensor]", other: "dict[str, Tensor]") -> dict[str, float]:
    total = sum(each.numel() for each in one.values())
    ours, theirs = (sum(int(each.sum()) for each in moved.values()) for moved in (one, other))
    both = sum(int((one[n] & other[n]).sum()) for n in one)
    chance = theirs / total
    found = {"overlap": both / ours, "beyond_chance": both / ours - chance} if ours else {}
    return {"chance": chance, **found}
