"""Answers whose steps one policy proposes and another one's implicit reward chooses."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING

from posttrain.learning.rewards.port_models import drawn_logprobs
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    RolloutEngine,
    Sample,
    SamplingParams,
)
from posttrain.learning.rollouts.engines.beginnings import AnswerStart, drawn_steps
from posttrain.learning.rollouts.engines.stop import text_before, text_of_answer

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy


class ChosenSteps:
    """Draws several next steps, takes the one of the highest value, and goes on behind it.

    A step is a line. Its value is the mean over its tokens of ``log p_valuer - log p_actor``; of
    equal ones the first is taken. See `base.RolloutEngine`.
    """

    def __init__(
        self, engine: RolloutEngine, actor: "Policy", valuer: "Policy", *, candidates: int
    ) -> None:
        """Let one policy act by another one's values.

        Args:
            engine: Draws from the actor.
            actor: Proposes steps, and is the reference of their values.
            valuer: Was trained from it on pairs of steps.
            candidates: Steps that are proposed each time.

        """
        self.engine, self.actor, self.valuer = engine, actor, valuer
        self.candidates = candidates

    @property
    def context_length(self) -> int:
        """Positions that the actor knows."""
        return self.engine.context_length

    def update(self, policy_version: int) -> None:
        """Take over present weights; see `RolloutEngine.update`."""
        self.engine.update(policy_version)

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Answer step by step; see `RolloutEngine.sample`."""
        rows = {
            (prompt.id, index): Sample(prompt.id, index, (), (), "", FinishReason.LENGTH, 0)
            for prompt in prompts
            for index in range(params.num_samples)
        }
        asked = {prompt.id: prompt.token_ids for prompt in prompts}
        going = [*rows]
        while going:
            going = self._step(going, rows, asked, params)
        return [self._whole(row, params) for row in rows.values()]

    def _step(
        self,
        going: Sequence[tuple[str, int]],
        rows: dict[tuple[str, int], Sample],
        asked: dict[str, tuple[int, ...]],
        params: SamplingParams,
    ) -> list[tuple[str, int]]:
        """Take one more step of each row; which of them go on."""
        still = []
        behind = [
            AnswerStart(
                f"{name}/{index}/{len(rows[name, index].token_ids)}",
                asked[name],
                rows[name, index].token_ids,
            )
            for name, index in going
        ]
        several = replace(params, num_samples=self.candidates)
        proposed = drawn_steps(self.engine, self.actor.tokenizer, behind, several)
        values = self._values(behind, [[step for step, _ in group] for group in proposed])
        for key, group, worth in zip(going, proposed, values, strict=True):
            best, goes_on = group[max(range(len(group)), key=lambda at: worth[at])]
            row = rows[key]
            rows[key] = replace(
                best,
                prompt_id=row.prompt_id,
                index=row.index,
                token_ids=(*row.token_ids, *best.token_ids),
                logprobs=(*row.logprobs, *best.logprobs),
            )
            if goes_on:
                still.append(key)
        return still

    def _values(
        self, behind: Sequence[AnswerStart], proposed: Sequence[Sequence[Sample]]
    ) -> list[list[float]]:
        """What the valuer makes of the steps behind each beginning, in nats a token."""
        steps = [
            ((*each.prompt, *each.tokens), step.token_ids)
            for each, group in zip(behind, proposed, strict=True)
            for step in group
        ]
        ids = [[*before, *step] for before, step in steps]
        wanted = [[False] * len(before) + [True] * len(step) for before, step in steps]
        both = [drawn_logprobs(policy, ids, wanted) for policy in (self.valuer, self.actor)]
        values = iter(
            fmean(ours) - fmean(theirs) if ours else 0.0 for ours, theirs in zip(*both, strict=True)
        )
        return [list(islice(values, len(group))) for group in proposed]

    def _whole(self, row: Sample, params: SamplingParams) -> Sample:
        text = text_of_answer(self.actor.model, self.actor.tokenizer, row.token_ids)
        return replace(row, text=text_before(text, params.stop))
