"""Answers of a policy of masked diffusion, each learned from in rows in which some of it is masked.

Sequences of one answer are segments of one rollout, as those of an episode are: they earn together,
and each is a row of its own in every update.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.rl.producers.base import SamplingRound, Workbench
from posttrain.learning.rl.producers.plain import Plain, PlainProduction
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rl.rollout import Group, Rollout
    from posttrain.learning.rollouts.engines.base import Prompt


class Noised(Plain):
    """Sample answers, and make of each several rows that mask a part of it and end with that part.

    The likelihood of an answer by masked diffusion has no closed form: a row is one draw of its
    evidence lower bound, as the mean log-probability of its hidden tokens is that bound by the
    token. All policies that score it see the same masks, a reference too. Rows are masked anew at
    every step.
    """

    SOURCE: ClassVar[str] = (
        "BGPO, arXiv 2510.11683, abstract; the masks: yjyddq/DARE at d0f6f66,"
        " verl/trainer/ppo/dllm_core_algos.py (_forward_process_bgpo)"
    )
    UNMASKED: ClassVar[bool] = True

    kind: Literal["noised"] = "noised"  # type: ignore[assignment]
    draws: int = Field(default=8, ge=1)
    """Rows of an answer: draws of its evidence lower bound."""

    def longest(self, max_tokens: int) -> int:
        """Count what all rows of an answer hide at the most; see `Producer.longest`."""
        return self.draws * max_tokens

    def beyond_processes(self, processes: int) -> str | None:
        """Say that it asks the whole policy; see `StageConfig.beyond_processes`."""
        if processes == 1:
            return None
        return (
            "producer noised needs the policy's weights, of which several processes have a part"
            " each; leave resources.processes out"
        )

    def start(self, bench: Workbench) -> "NoisedProduction":
        """Begin a run."""
        from posttrain.learning.models.mask_predictor import MaskPredictor

        assert bench.policy is not None
        if not isinstance(bench.policy.model.base_model, MaskPredictor):
            raise UserError(
                "rl.producer: noised scores what masks hide, and the policy reads token by token;"
                " begin from a policy of tasks.denoise"
            )
        return NoisedProduction(bench, self.draws, bench.policy)


@dataclass(frozen=True)
class NoisedProduction(PlainProduction):
    """Samples and masks; it has no state."""

    draws: int
    policy: "Policy"

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Draw answers, then mask them; see `Production.produce`."""
        canvas = int(self.policy.model.config.answer_canvas)
        if at.params.max_tokens < canvas:
            raise UserError(
                f"rl.max_tokens {at.params.max_tokens} cuts answers short, and the policy unmasks"
                f" {canvas} tokens; set it to {canvas}, or to auto"
            )
        groups = super().produce(problems, prompts, at)
        noised = [[row for whole in group for row in self._rows(whole, at)] for group in groups]
        scored = iter(self._logprobs([row for group in noised for row in group], at))
        return [[row._replace(logprobs=next(scored)) for row in group] for group in noised]

    def _rows(self, whole: "Rollout", at: SamplingRound) -> Iterator["Rollout"]:
        """The rows of an answer, which is a text in the first of them."""
        from posttrain.learning.models.noised_rows import filled_up, noised_rows
        from posttrain.learning.rl.drawn import read_and_said

        read, said = whole.spans
        config, end = self.policy.model.config, int(self.policy.tokenizer.eos_token_id)
        answer = whole.token_ids[said.begin : said.end]
        rows = noised_rows(
            whole.token_ids[: read.end],
            filled_up(answer, canvas=int(config.answer_canvas), end=end),
            mask=int(config.mask_token_id),
            draws=self.draws,
            chance=Random(purpose_seed(at.params.seed, "masks", whole.episode)),
        )
        for place, row in enumerate(rows):
            shown = len(row.token_ids) - row.num_hidden
            yield whole._replace(
                token_ids=row.token_ids,
                spans=read_and_said(row.token_ids[:shown], row.token_ids[shown:]),
                text=whole.text if place == 0 else "",
                segment=place,
            )

    def _logprobs(self, rows: Sequence["Rollout"], at: SamplingRound) -> list[tuple[float, ...]]:
        """What the policy that drew them says of the hidden tokens of each row."""
        import torch

        from posttrain.data.batching import length_buckets
        from posttrain.learning.models.logprobs import wanted_logprobs

        found: dict[int, tuple[float, ...]] = {}
        model, pad = self.policy.model, int(self.policy.tokenizer.pad_token_id)
        lengths = [len(row.token_ids) for row in rows]
        for part in length_buckets(range(len(rows)), lengths, _TOKENS):
            width = max(lengths[place] for place in part)
            ids = [[*rows[p].token_ids, *[pad] * (width - lengths[p])] for p in part]
            drawn = [[*rows[p].drawn, *[False] * (width - lengths[p])] for p in part]
            with torch.no_grad():
                logprobs_N, _ = wanted_logprobs(
                    model,
                    torch.tensor(ids, device=model.device),
                    wanted_BT=torch.tensor(drawn, device=model.device),
                    temperature=at.params.temperature,
                )
            counts = [sum(rows[place].drawn) for place in part]
            each = (tuple(values.tolist()) for values in torch.split(logprobs_N.cpu(), counts))
            found |= zip(part, each, strict=True)
        return [found[place] for place in range(len(rows))]


_TOKENS = 16_384
"""Tokens that go through the model at once."""
