"""Roles that speak by tokens: what they read is appended, what they draw stays as it was drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

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
    from transformers import PreTrainedTokenizerBase


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
        seed: int,
    ) -> list[Reply]:
        """Read what is new, and draw; see `Speaker.reply`."""
        if seed != self.params.seed:
            # Episodes that began in an earlier round go on by the seed of that one.
            return replace(self, params=replace(self.params, seed=seed)).reply(
                asked, environment, seed=seed
            )
        reading = [self._read(each) for each in asked]
        reading = self._made_room(asked, reading)
        fits = [
            bool(each.begun) or self._fits(segments)
            for each, segments in zip(asked, reading, strict=True)
        ]
        drawn = self._drawn(
            [(each, r[-1]) for each, r, fit in zip(asked, reading, fits, strict=True) if fit]
        )
        return [
            self._said(each, segments, drawn.get(each.episode))
            for each, segments in zip(asked, reading, strict=True)
        ]

    def _read(self, asked: Cue) -> tuple[Segment, ...]:
        """Put what a role is told behind what it has read and said."""
        role, new = asked.ask.role, asked.ask.new
        if asked.begun:
            return asked.before
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
            if not each.begun and self.context.is_full(segments[-1]) and self._may_draw(segments)
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

    def _drawn(self, asked: Sequence[tuple[Cue, Segment]]) -> Mapping[str, Sample]:
        """Samples by episode."""
        groups, alone, most = dict[str, Prompt](), dict[int, list[Prompt]](), 1
        places: dict[str, tuple[str, int]] = {}
        for each, segment in asked:
            place = each.place
            if each.opens:
                # All episodes of a group begin alike: they are samples of one prompt.
                first = groups.setdefault(place[0], Prompt(place[0], segment.token_ids))
                if first.token_ids == segment.token_ids:
                    places[each.episode], most = place, max(most, each.index + 1)
                    continue
                # But for those of an environment in which a clock or a network has a say.
                place = each.place_alone, 0
            places[each.episode] = place
            alone.setdefault(each.begun, []).append(Prompt(place[0], segment.token_ids))
        together = replace(self._at_once(0), num_samples=most)
        samples = self.sample(list(groups.values()), together)
        for begun, prompts in sorted(alone.items()):
            samples += self.sample(prompts, replace(self._at_once(begun), num_samples=1))
        found = {(sample.prompt_id, sample.index): sample for sample in samples}
        return {episode: found[place] for episode, place in places.items() if place in found}

    def _interrupted(self, segment: Segment) -> bool:
        """Whether a turn was cut off only because no more of it is drawn at once."""
        left = self.params.max_tokens - len(segment.begun)
        room = self.engine.context_length - len(segment.token_ids)
        return self.limits.at_once is not None and min(left, room) > 0

    def _at_once(self, begun: int) -> SamplingParams:
        """How a turn is gone on with of which so many tokens are drawn."""
        left, most = self.params.max_tokens - begun, self.limits.at_once
        return replace(self.params, max_tokens=left if most is None else min(left, most))

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
        cut, text = sample.finish_reason is FinishReason.LENGTH, sample.text
        part = last.drew_part(sample)
        if cut and self._interrupted(part):
            return Reply(None, (*earlier, part), goes_on=True)
        if asked.begun:
            # By itself a part of a turn may end within a letter.
            text = str(self.tokenizer.decode(part.begun, skip_special_tokens=True))
        return Reply(Act(asked.ask.role, text, cut=cut), (*earlier, last.drew(sample, text=text)))
