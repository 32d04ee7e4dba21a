"""How much likelier each token is to a teacher than to the policy that drew it: distillation."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.backends.endpoint.config import Endpoint
from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class TeacherComponent(Component):
    """`beta x (log p_teacher - log p)` at each drawn token, p by the policy as it drew the token.

    The teacher comes through the stage's port `references`, or answers behind an endpoint that
    gives `prompt_logprobs`. Under advantage returns with gamma 0 a token's advantage is what it is
    paid, and in expectation the policy follows the gradient of the reverse divergence
    KL(policy || teacher) at each place (arXiv 2009.01325): on-policy distillation. The same
    mathematics as regularizer `kl` in the reward with estimator k1 and the teacher as reference,
    but that it is a component: measured by itself, beside a reference of another kind, and stored,
    so that a replay asks no teacher. It is shown as its sum, beta times an estimate of less the
    divergence of whole answers.
    """

    SOURCE = (
        "On-Policy Distillation, Thinking Machines Lab 2025, by its code:"
        " thinking-machines-lab/tinker-cookbook at 148adcf, distillation/train_on_policy.py"
        " (incorporate_kl_penalty), where beta is 1 and the discount 0"
    )
    SCOPE: ClassVar[Literal["token"]] = "token"
    RANGE: ClassVar[Range] = (-math.inf, math.inf)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens", "logprobs"})

    kind: Literal["teacher"] = "teacher"
    of: str = "teacher"
    """Name under `inputs.references` of the teacher, where no endpoint is one."""
    endpoint: Endpoint | None = None
    """Where the teacher answers; it must write the same texts for the policy's token ids."""
    beta: float = Field(default=1.0, gt=0.0)
    """Factor on the log-ratio."""
    clip: float | None = Field(default=None, gt=0.0)
    """The most that one token is paid or fined; null for any."""

    def without_effect(self) -> frozenset[str]:
        """`of` with an endpoint."""
        return frozenset({"of"} if self.endpoint is not None else ())

    def ports(self) -> Sequence[str]:
        """Return the teacher's port, if it is connected; see `Component.ports`."""
        return () if self.endpoint is not None else (f"references.{self.of}",)

    def score_tokens(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[Sequence[float] | None]]:
        """Give the teacher all answers at once; see `Component.score_tokens`."""
        from posttrain.learning.rewards.components import answer_tokens

        if self.endpoint is None:
            said = answer_tokens.answers_logprobs(known.models.reference(self.of), groups)
        else:
            said = answer_tokens.served_logprobs(self.endpoint, known.models.tokenizer, groups)
        rows = iter(said)
        return [
            [
                [
                    self._paid(to_teacher - own)
                    for to_teacher, own in zip(next(rows), own_T, strict=True)
                ]
                for own_T in group.logprobs
            ]
            for group in groups
        ]

    def _paid(self, log_ratio: float) -> float:
        scaled = self.beta * log_ratio
        return scaled if self.clip is None else max(-self.clip, min(self.clip, scaled))
