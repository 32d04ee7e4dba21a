"""Answers that are drawn window by window, one a step, each under the weights of its step."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.episodes.episode import Span
from posttrain.learning.rl.producers.base import Producer, Production, SamplingRound, Workbench
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.environments.base import Environment
    from posttrain.learning.rl.rollout import Group, Rollout
    from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams


class Windows(Producer):
    """Draw a window of each answer in a step, learn from it, and go on in the next step.

    Each step has a row for every answer that is at work, of all its tokens so far: those of earlier
    steps are told by the fact `earlier`. One that is not over is `unfinished`, and judged by nobody
    until it is. A problem is at work until all answers of its group are over; then a new one takes
    its place.
    """

    SOURCE: ClassVar[str] = (
        "successive batching of T-PPO, arXiv 2506.15050; HanlinDu/verl at 5a669211,"
        " recipe/tppo/sample_pool.py (SamplePool)"
    )

    kind: Literal["windows"] = "windows"
    most: int = Field(default=3, ge=1)
    """Windows of the longest answer: each is of `max_tokens / most` tokens, rounded up."""

    @property
    def carried(self) -> int:
        """From the first window to the last one; see `Producer.carried`."""
        return self.most - 1

    def played_in(self) -> "Environment":
        """Nothing answers; see `Producer.played_in`."""
        return Single()

    def start(self, bench: Workbench) -> Production:
        """Begin a run; see `Producer.start`."""
        return WindowsProduction(self, bench)


@dataclass
class WindowsProduction(Production):
    """Draws a window of everything in each step; its state is all that is not over."""

    config: Windows
    bench: Workbench
    begun: "list[Group]" = field(default_factory=list)
    """By problem, the rows of the last step that go on."""
    step: int = -1
    """The last one."""

    @property
    def at_work_on(self) -> Collection[str]:
        """Ids of the problems with an answer that is not over; see `Production.at_work_on`."""
        return [group[0].problem_id for group in self.begun]

    @property
    def held_back(self) -> Collection[str]:
        """None: what is not over is learned from, too; see `Production.held_back`."""
        return ()

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Go on with what was begun, and begin on what is new; see `Production.produce`.

        Args:
            problems: Those that are new.
            prompts: Their prompts as tokens, in the same order.
            at: The round; a step has one.

        Returns:
            A group for each problem that is at work: first those that were before.

        Raises:
            UserError: It is asked a second time in a step.

        """
        from posttrain.learning.rl.drawn import as_groups

        if at.step == self.step:
            raise UserError(
                "rl: producer windows draws one window of each answer in a step, but"
                " draw.max_rounds samples on within it; set draw.max_rounds to 1"
            )
        self.step = at.step
        groups = self._gone_on(at)
        if prompts:
            samples = self.bench.engine.sample(prompts, self._window(at.params, begun=0))
            groups += as_groups(samples, problems, prompts)
        made = [
            [self._told(row, at)._replace(group=number) for row in group]
            for number, group in enumerate(groups, start=at.first_group)
        ]
        left = [[row for row in group if row.unfinished] for group in made]
        self.begun = [group for group in left if group]
        return made

    def _gone_on(self, at: SamplingRound) -> "list[Group]":
        """Draw the next window of all that is not over."""
        from posttrain.learning.rollouts.engines.base import Prompt

        asked: dict[int, list[Rollout]] = {}
        for group in self.begun:
            for row in group:
                asked.setdefault(row.num_drawn, []).append(row)
        drawn: dict[str, Sample] = {}
        for begun, rows in sorted(asked.items()):
            # By a name of its own: no random number is used twice, whatever the seed of the step.
            prompts = [Prompt(f"{row.episode}/{begun}", row.token_ids) for row in rows]
            params = replace(self._window(at.params, begun=begun), num_samples=1)
            samples = self.bench.engine.sample(prompts, params)
            drawn |= {row.episode: each for row, each in zip(rows, samples, strict=True)}
        return [[self._longer(row, drawn[row.episode]) for row in group] for group in self.begun]

    def _window(self, params: "SamplingParams", *, begun: int) -> "SamplingParams":
        """How a window is drawn behind so many tokens of an answer."""
        window = -(-params.max_tokens // self.config.most)
        return replace(params, max_tokens=min(window, params.max_tokens - begun))

    def _longer(self, row: "Rollout", sample: "Sample") -> "Rollout":
        """Put a window behind those that an answer has."""
        from posttrain.learning.rl.drawn import ENDS, check_drawn
        from posttrain.learning.rl.rollout import EARLIER
        from posttrain.learning.rollouts.engines.beginnings import whole_text

        check_drawn(row.problem_id, len(sample.token_ids), sample.logprobs)
        first, end = row.spans[0].end, len(row.token_ids)
        begun = row.token_ids[first:]
        return row._replace(
            token_ids=row.token_ids + sample.token_ids,
            spans=(*row.spans, Span(end, end + len(sample.token_ids), 0, drawn=True)),
            logprobs=row.logprobs + sample.logprobs,
            versions=(*row.versions, sample.policy_version),
            end=ENDS[sample.finish_reason],
            text=whole_text(self.bench.tokenizer, begun, sample.token_ids, sample.text),
            facts=((EARLIER, float(row.num_drawn)),),
        )

    def _told(self, row: "Rollout", at: SamplingRound) -> "Rollout":
        """Say of an answer that only the window cut off that it goes on."""
        room = len(row.token_ids) < self.bench.engine.context_length
        goes_on = row.end == "tokens" and row.num_drawn < at.params.max_tokens and room
        return row._replace(end="unfinished") if goes_on else row

    def state_dict(self) -> dict[str, Any]:
        """All answers that are not over, as plain values."""
        from posttrain.learning.rl.rollout import plain

        return {"begun": plain(self.begun), "step": self.step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        from posttrain.learning.rl.rollout import from_plain

        self.begun, self.step = from_plain(state["begun"]), state["step"]
