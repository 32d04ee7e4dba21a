"""Roles that speak by tokens: what they read is appended, what they draw stays as it was drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from posttrain.data.batching import length_buckets
from posttrain.data.contexts import in_context
from posttrain.data.templates import encode_prompts
from posttrain.learning.episodes.append import appended
from posttrain.learning.episodes.asked import Cue, Reply, Speaker, TokenLimits
from posttrain.learning.episodes.branches.base import Forks
from posttrain.learning.episodes.contexts.base import ContextManager, Crowded
from posttrain.learning.episodes.contexts.whole import Whole
from posttrain.learning.episodes.environments.base import Act, Environment, Told
from posttrain.learning.episodes.episode import Segment
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    RolloutEngine,
    Sample,
    SamplingParams,
)
from posttrain.learning.rollouts.limits import leaves_room
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_TOKENS_AT_ONCE = 8192
"""Padded tokens of a pass that computes entropies."""


@dataclass(frozen=True)
class Role(Speaker):
    """Speaks by drawing tokens from an engine."""

    engine: RolloutEngine
    """Draws what it says."""
    tokenizer: "PreTrainedTokenizerBase"
    """Of the engine's policy."""
    params: SamplingParams
    """How; `num_samples` is the size of a group, `max_tokens` the most of one turn."""
    context: ContextManager = field(default_factory=Whole)
    """What becomes of a context that fills."""
    limits: TokenLimits = TokenLimits()
    forks: Forks | None = None
    """Of the policy: where episodes of a group begin inside another one; None begins all at once.
    """

    def reply(
        self,
        asked: Sequence[Cue],
        environment: Environment,  # noqa: ARG002 - it goes by what it read
        *,
        seed: int,  # noqa: ARG002 - that of `params`
    ) -> list[Reply]:
        """Read what is new, and draw; see `Speaker.reply`."""
        reading = [self._read(each) for each in asked]
        reading = self._made_room(asked, reading)
        fits = [self._fits(segments) for segments in reading]
        drawn = self._drawn(
            [(each, r[-1]) for each, r, fit in zip(asked, reading, fits, strict=True) if fit]
        )
        return [
            self._said(each, segments, drawn.get(each.place))
            for each, segments in zip(asked, reading, strict=True)
        ]

    def _read(self, asked: Cue) -> tuple[Segment, ...]:
        """Put what a role is told behind what it has read and said."""
        role, new = asked.ask.role, asked.ask.new
        if not asked.before:
            read = self._first(asked.problem.context, new) if new else asked.prompt.token_ids
            return (Segment(role).read(read),)
        if not new:
            raise UserError(
                f"an environment asked {role} again and told it nothing; give it one message at"
                " least before it speaks again"
            )
        *earlier, last = asked.before
        return (*earlier, last.read(appended(self.tokenizer, new, ended=not asked.cut)))

    def _first(self, context: str, new: Sequence[Told]) -> tuple[int, ...]:
        """What is read first in place of the problem's prompt, in the problem's context."""
        text = "\n".join(told.text for told in new)
        (ids,) = encode_prompts(self.tokenizer, in_context([text], [context]))
        return tuple(ids)

    def _made_room(
        self, asked: Sequence[Cue], reading: Sequence[tuple[Segment, ...]]
    ) -> list[tuple[Segment, ...]]:
        """Let the context manager begin those segments afresh that have become too long."""
        crowded = [
            Crowded(each, segments)
            for each, segments in zip(asked, reading, strict=True)
            if self.context.is_full(segments[-1]) and self._may_draw(segments)
        ]
        if not crowded:
            return list(reading)
        made = self.context.make_room(crowded, self)
        fresh = {c.asked.episode: each for c, each in zip(crowded, made, strict=True)}
        return [fresh.get(a.episode, each) for a, each in zip(asked, reading, strict=True)]

    def _fits(self, segments: Sequence[Segment]) -> bool:
        tokens, most = len(segments[-1].token_ids), self.limits.context
        fits = tokens < self.engine.context_length and (most is None or tokens < most)
        return fits and self._may_draw(segments)

    def _may_draw(self, segments: Sequence[Segment]) -> bool:
        drawn = sum(len(segment.logprobs) for segment in segments)
        return self.limits.drawn is None or drawn < self.limits.drawn

    def _drawn(self, asked: Sequence[tuple[Cue, Segment]]) -> Mapping[tuple[str, int], Sample]:
        """Samples by prompt and index."""
        # All episodes of a group begin alike: they are samples of one prompt.
        groups, alone, most = dict[str, Prompt](), list[Prompt](), 1
        for each, segment in asked:
            name, index = each.place
            if each.turn or each.late:
                alone.append(Prompt(name, segment.token_ids))
            else:
                groups[name] = Prompt(name, segment.token_ids)
                most = max(most, index + 1)
        samples = [
            *self.sample(list(groups.values()), replace(self.params, num_samples=most)),
            *self.sample(alone, replace(self.params, num_samples=1)),
        ]
        return {(sample.prompt_id, sample.index): sample for sample in samples}

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Draw from the engine behind the prompts that leave room.

        Args:
            prompts: Any number, none too.
            params: How to draw.

        Returns:
            Their samples, as the engine gives them.

        """
        fitting = [each for each in prompts if leaves_room(each, self.engine.context_length)]
        return self.engine.sample(fitting, params) if fitting else []

    def _said(self, asked: Cue, segments: tuple[Segment, ...], sample: Sample | None) -> Reply:
        *earlier, last = segments
        if sample is None:
            # What it read last is of no use: nothing follows.
            return Reply(None, (*earlier, last.until_drawn()))
        cut = sample.finish_reason is FinishReason.LENGTH
        return Reply(Act(asked.ask.role, sample.text, cut=cut), (*earlier, last.drew(sample)))


def first_entropies(
    model: "PreTrainedModel", segments: Sequence[Segment], count: int, *, temperature: float
) -> list[tuple[float, ...]]:
    """Compute the entropies of the distributions from which the first tokens were drawn last.

    Args:
        model: The policy that drew.
        segments: Of which each ends with a drawn turn.
        count: Most tokens of that turn.
        temperature: That it was drawn at.

    Returns:
        For each segment, the entropy at each of these tokens divided by log V, from 0 to 1.

    """
    import torch

    from posttrain.learning.models.logprobs import token_logprobs

    spans = [segment.spans[-1] for segment in segments]
    ends = [min(span.end, span.begin + count) for span in spans]
    largest = math.log(model.config.get_text_config().vocab_size)
    found: dict[int, tuple[float, ...]] = {}
    for bucket in length_buckets(range(len(segments)), ends, _TOKENS_AT_ONCE):
        width = max(ends[place] for place in bucket)
        ids_BT = torch.zeros(len(bucket), width, dtype=torch.int64)
        wanted_BT = torch.zeros(len(bucket), width, dtype=torch.bool)
        for row, place in enumerate(bucket):
            ids_BT[row, : ends[place]] = torch.tensor(segments[place].token_ids[: ends[place]])
            wanted_BT[row, spans[place].begin : ends[place]] = True
        with torch.no_grad():
            entropy_BT = token_logprobs(
                model,
                ids_BT.to(model.device),
                wanted_BT=wanted_BT.to(model.device),
                temperature=temperature,
                with_entropy=True,
            ).entropy_BT
        assert entropy_BT is not None
        shares_BT = entropy_BT.cpu() / largest
        for row, place in enumerate(bucket):
            found[place] = tuple(shares_BT[row, wanted_BT[row]].tolist())
    return [found[place] for place in range(len(segments))]
