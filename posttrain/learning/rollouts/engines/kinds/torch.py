"""The decode loop of this package."""

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.models.attention import Attention, beyond_cpu, set_attention
from posttrain.learning.rollouts.engines.engine import Engine
from posttrain.stage.config import Capability
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import AllowedAt, RolloutEngine


class TorchEngine(Engine):
    """The decode loop of this package, around the very module that is trained.

    Source: own.
    """

    SHARES_PROCESS: ClassVar[bool] = True

    kind: Literal["torch"] = "torch"
    attention: Attention | None = None
    """Kernel of the attention; where the policy is being trained, this is the learner's too."""
    compile: bool = False
    """Compile the model's forward pass: minutes at first; small Llamas have no use for it."""

    def beyond_device(self, capability: Capability) -> str | None:
        """Say that an attention wants a GPU; see `StageConfig.beyond_device`."""
        return beyond_cpu(self.attention, capability)

    @contextmanager
    def open(self, policy: "Policy", *, batch_size: int) -> "Iterator[RolloutEngine]":
        """Draw from the policy's own module; see `Engine.open`."""
        from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine

        if self.attention:
            set_attention(policy.model, self.attention)
        if self.compile:
            _require_compiler()
        yield TorchRolloutEngine(
            policy.model, policy.tokenizer, batch_size=batch_size, compiled=self.compile
        )

    @contextmanager
    def open_under(self, policy: "Policy", allowed_at: "AllowedAt") -> "Iterator[RolloutEngine]":
        """Draw token by token from what the mask leaves; see `Engine.open_under`."""
        from posttrain.learning.rollouts.engines.masked import MaskedRolloutEngine

        if self.attention:
            set_attention(policy.model, self.attention)
        yield MaskedRolloutEngine(policy, allowed_at)


def _require_compiler() -> None:
    names = (os.environ.get("CXX"), "g++", "clang++", "c++")
    if not any(name and shutil.which(name) for name in names):
        raise UserError(
            "engine.compile needs a C++ compiler, and there is none; install g++, or leave it out"
        )
