"""A context that the policy sums up itself, in a turn that is learned from like any other."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.episodes.contexts.base import ContextManager, Crowded
from posttrain.learning.episodes.environments.base import Told
from posttrain.learning.episodes.episode import Segment

if TYPE_CHECKING:
    from posttrain.learning.episodes.asked import TokenRole
    from posttrain.learning.rollouts.engines.base import Sample


class Summarize(ContextManager):
    """Ask the role to sum up what it read, and go on from the prompt and that.

    What it is told last is not in the summary: it is read behind it, as it came. The summary is
    drawn in the sequence that it ends, and trained on there; in the next one it is read.
    """

    SOURCE = "SUPO, arXiv 2510.06727, sections 3.1 and 3.2: summaries drawn by the policy itself"

    kind: Literal["summarize"] = "summarize"
    at_tokens: int = Field(ge=1)
    """Tokens of a sequence, read and drawn, above which it is summed up before the next turn."""
    instruction: str = Field(default="Sum up.", min_length=1)
    """What the role is told, in place of what comes next."""
    author: Literal["user", "tool"] = "user"
    """As whose message the chat template writes it."""

    def is_full(self, segment: Segment) -> bool:
        """Count its tokens; see `ContextManager.is_full`."""
        return len(segment.token_ids) > self.at_tokens and len(segment.spans) > 1

    def most_draws(self, turns: int) -> int:
        """Sum up before each turn but the first; see `ContextManager.most_draws`."""
        return turns - 1

    def make_room(self, crowded: Sequence[Crowded], role: "TokenRole") -> list[tuple[Segment, ...]]:
        """Have all summaries drawn at once; see `ContextManager.make_room`."""
        from posttrain.learning.rollouts.engines.base import Prompt

        closing = [self._asked(each, role) for each in crowded]
        prompts = [
            Prompt(f"{each.asked.place[0]}~{len(each.segments)}", last.token_ids)
            for each, last in zip(crowded, closing, strict=True)
        ]
        params = replace(role.params, num_samples=1)
        drawn = {sample.prompt_id: sample for sample in role.sample(prompts, params)}
        return [
            self._begun(each, last, drawn.get(prompt.id), role)
            for each, last, prompt in zip(crowded, closing, prompts, strict=True)
        ]

    def _asked(self, crowded: Crowded, role: "TokenRole") -> Segment:
        """The sequence that ends, with the instruction where the news stood."""
        from posttrain.learning.episodes.append import appended

        said = crowded.segments[-1].until_drawn()
        told = Told(self.author, self.instruction)
        return said.read(appended(role.tokenizer, (told,), ended=not crowded.asked.cut))

    def _begun(
        self, crowded: Crowded, closing: Segment, summary: "Sample | None", role: "TokenRole"
    ) -> tuple[Segment, ...]:
        from posttrain.data.contexts import in_context
        from posttrain.data.templates import encode_prompts

        *earlier, last = crowded.segments
        if summary is None:
            # No room for a summary: the role goes on as it can, and meets the end of its context.
            return crowded.segments
        text = summary.text.strip()
        asked = crowded.asked
        news = "\n".join(told.text for told in asked.ask.new)
        # What the role read first: the problem's prompt, or what it was told in place of that.
        whole = "\n".join(part for part in (asked.heard[0].text, text, news) if part)
        (ids,) = encode_prompts(role.tokenizer, in_context([whole], [asked.problem.context]))
        fresh = Segment(last.role).read(tuple(ids))
        return (*earlier, closing.drew(summary, text=summary.text)._replace(summed_up=True), fresh)
