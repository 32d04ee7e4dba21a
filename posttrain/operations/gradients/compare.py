"""How far two gradients are apart, and what is looked at while a stage runs."""

import copy
import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posttrain.learning.models.load import Policy, load_policy
from posttrain.learning.rl.rollout import EARLIER
from posttrain.operations.stage_alone import stage_function
from posttrain.stage.spec import Task

TOKENS = 1e-5
"""Most that the gradient of the log-probabilities may be apart, in parts of its length. A stage has
these in float32 whatever its weights are, and the log-ratio of a turn is a sum of rounded ones; a
label hardly surer than a half leaves a short gradient of them."""

WEIGHTS: Mapping[torch.dtype, float] = {torch.float64: 1e-5, torch.float32: 1e-4}
"""The same of the weights' gradient, by the number format of the weights."""

NEVER = 1e-6
"""A gradient shorter than this shows nothing."""

RATIO = 1.2
"""A method of ratios has to be looked at where one of them is at least this far from 1."""


@dataclass(frozen=True)
class GradientErrors:
    """How far a stage's gradients are from those of a formula, at the worst of some updates."""

    tokens: float
    """With respect to the log-probability of each token, as a share of the gradient's length."""
    weights: float
    """With respect to the weights."""
    dtype: torch.dtype
    """Number format of the weights."""
    complaint: str = ""
    """Why the comparison shows nothing; empty where it does."""
    where: str = ""
    """Row and token whose log-probability's gradient is the farthest off, and both numbers."""

    @property
    def agree(self) -> bool:
        """True where both are within what rounding makes."""
        return not self.complaint and self.tokens <= TOKENS and self.weights <= WEIGHTS[self.dtype]


@dataclass
class SeenUpdate:
    """One optimizer update, as a stage made it."""

    passes: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    """Token ids, which of them bear loss, and their log-probabilities with `.grad`."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    """Before the update."""
    gradient: dict[str, Tensor] = field(default_factory=dict)
    """Of the loss, before any clipping."""

    @contextmanager
    def around(self, model: torch.nn.Module) -> Iterator[None]:
        """Write down the weights of a model before the context, and their gradient after it."""
        named = dict(model.named_parameters())
        self.weights = {name: each.detach().clone() for name, each in named.items()}
        yield
        self.gradient = {
            name: each.grad.detach().clone()
            for name, each in named.items()
            if each.grad is not None
        }

    def saw(self, ids_BT: Tensor, mask_BT: Tensor, logprobs_BT: Tensor) -> None:
        """Remember what the stage computed of some rows.

        Args:
            ids_BT: Their tokens.
            mask_BT: Which of them bear loss.
            logprobs_BT: Of those, before the gradient is taken.

        """
        logprobs_BT.retain_grad()
        self.passes.append((ids_BT, mask_BT, logprobs_BT))

    def policy(self, initial: torch.nn.Module) -> torch.nn.Module:
        """Give the policy as it was before the update, in float64."""
        model = copy.deepcopy(initial)
        for label, parameter in model.named_parameters():
            parameter.data.copy_(self.weights[label].double())
        return model

    def rows(self) -> Iterator[tuple[tuple[int, ...], Tensor, Tensor]]:
        """Give tokens, log-probabilities and their gradients, row by row."""
        for ids_BT, mask_BT, logprobs_BT in self.passes:
            assert logprobs_BT.grad is not None
            for ids_T, mask_T, values_T, grad_T in zip(
                ids_BT, mask_BT, logprobs_BT.detach(), logprobs_BT.grad, strict=True
            ):
                row = tuple(ids_T[: int(mask_T.nonzero()[-1]) + 1].tolist())
                yield row, values_T[mask_T].double(), grad_T[mask_T].double()

    def weights_apart(self, model: torch.nn.Module, loss: Tensor) -> tuple[float, str]:
        """Compare the gradient of the weights with that of a formula's loss.

        Args:
            model: The policy that the loss was computed with.
            loss: The formula's, of this update.

        Returns:
            How far they are apart, and why that shows nothing, where it does not.

        """
        torch.autograd.backward([loss])
        named, labels = dict(model.named_parameters()), sorted(self.gradient)
        expected = torch.cat([_flat(named[label].grad, named[label]) for label in labels])
        found = torch.cat([self.gradient[label].flatten() for label in labels])
        nothing = "the formula's gradient is 0" * bool(expected.norm() < NEVER)
        return apart(found, expected), nothing


def apart(found: Tensor, expected: Tensor) -> float:
    """Measure the distance of two gradients in parts of the expected one's length.

    Args:
        found: The stage's, of any shape.
        expected: The formula's, of the same.

    Returns:
        0 where they are equal, or both are too short to be more than rounding; infinite where only
        the expected one is 0, or one is not finite.

    """
    distance, length = (found.double() - expected).norm(), expected.norm()
    if distance == 0 or (distance < NEVER and length < NEVER):
        return 0.0
    share = float(distance / length)
    # What is no number would be passed over by the largest of several.
    return share if math.isfinite(share) else math.inf


def farthest(found: Tensor, expected: Tensor, rows: Iterable[tuple[str, Sequence[int]]]) -> str:
    """Name the token whose gradient is the farthest from the formula's.

    Args:
        found: The stage's, of the tokens of all rows, one after the other.
        expected: The formula's, of the same.
        rows: What each row is called, and the ids of its tokens.

    Returns:
        Row and token with both numbers; empty where all are equal.

    """
    off = (found.double() - expected).abs()
    if not off.numel() or float(off.max()) == 0.0:
        return ""
    place = int(off.argmax())
    numbers = f"{float(found[place]):.3g} and by the formula {float(expected[place]):.3g}"
    for name, ids in rows:
        if place < len(ids):
            return f"{name}, token {place + 1} of {len(ids)} (id {ids[place]}): {numbers}"
        place -= len(ids)
    raise ValueError("there are more gradients than tokens")


def earlier(row: Mapping[str, Any]) -> int:
    """Count the drawn tokens of a stored rollout, the first, that earlier steps learned from.

    Args:
        row: Of ROLLOUTS.

    """
    return int({each["name"]: each["value"] for each in row["facts"]}.get(EARLIER, 0))


def gradients_of(loss: Tensor, leaves: Iterable[Tensor]) -> Tensor:
    """Take the gradient of a loss with respect to tensors, 0 where it does not reach one.

    Args:
        loss: A number.
        leaves: Tensors that it may depend on.

    Returns:
        All gradients, one after the other.

    """
    leaves = list(leaves)
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return torch.cat([_flat(each, leaf) for each, leaf in zip(found, leaves, strict=True)])


def worst(errors: Iterable[GradientErrors]) -> GradientErrors:
    """Take the largest errors of several updates, and the first complaint where each has one.

    An update in which no group differs shows nothing, and the others may; where only the formula's
    gradient is 0 there, the error is infinite.
    """
    found = list(errors)
    complaints = [each.complaint for each in found]
    return GradientErrors(
        max(each.tokens for each in found),
        max(each.weights for each in found),
        found[0].dtype,
        complaints[0] if all(complaints) else "",
        max(found, key=lambda each: each.tokens).where,
    )


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let another function stand in a class's or module's place of a name, for a while.

    Args:
        owner: The class or the module.
        name: Of one of its functions.
        value: What stands there while the context is open.

    """
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def scoring_model(path: Path) -> torch.nn.Module:
    """Load a policy in float64, which reads rows as a stage's own does.

    Args:
        path: Its checkpoint.

    Returns:
        The model, in evaluation mode.

    """
    found: torch.nn.Module = load_policy(path, dtype=torch.float64).model.eval()
    return found


@contextmanager
def watched_stage(task: Task, dtype: torch.dtype) -> Iterator[Callable[..., Any]]:
    """Give the function of a stage, whose policy is loaded in another number format meanwhile.

    Args:
        task: The stage.
        dtype: Of the weights.

    Yields:
        What runs it.

    """
    # Where the stage stands, which need not be where its function was written.
    stage = importlib.import_module(task.entry.partition(":")[0])

    def load(path: Path, *_: Any, device: str = "cpu", **_processes: Any) -> Policy:
        return load_policy(path, device=device, dtype=dtype)

    digest = vars(stage).get("weights_digest")

    def as_stored(model: torch.nn.Module) -> Any:
        # Solve rates and other tables name the policy by the weights that they were drawn with.
        return digest and digest(copy.deepcopy(model).float())

    with replaced(stage, "load_to_train", load), ExitStack() as further:
        if digest:
            further.enter_context(replaced(stage, "weights_digest", as_stored))
        yield stage_function(task)


def _flat(gradient: Tensor | None, of: Tensor) -> Tensor:
    return torch.zeros_like(of).flatten() if gradient is None else gradient.flatten()
