"""Instructions at work: put before the problems of a draw, and credited with what came of them."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from posttrain.data.chat_templates.own import with_system
from posttrain.data.contexts import PromptContext, PromptInContext
from posttrain.data.schemas import Problem
from posttrain.data.templates import encode_prompts
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.instructors.base import (
    InstructedAttempts,
    InstructionStream,
    Instructor,
    InstructorBench,
)
from posttrain.learning.rl.producers.base import Production, SamplingRound, Workbench
from posttrain.learning.rl.rollout import Group, wholes
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.limits import leaves_room
from posttrain.stage.errors import UserError
from posttrain.stage.started import started

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedTokenizerBase


@dataclass
class Instructed:
    """A run's instructions, and which of them each problem has that is not learned from yet.

    Problems stay what they are: an instruction is in the tokens of the prompt alone, so that rows,
    samplers and rewards know the problem by its id, and replay reads it in the tokens.
    """

    problems: Sequence[Problem]
    """All of the run."""
    longest: Problem
    """The one that leaves the least room for an instruction."""
    bench: Workbench
    production: Production
    seed: int
    """Of the run."""
    stream: InstructionStream = field(init=False)
    drawn: dict[str, dict[str, str]] = field(default_factory=dict)
    """Step -> id of a problem -> what stands before it."""
    _now: RlConfig | None = None
    _version: int = 0

    def renew(self, step: int, config: RlConfig, *, version: int) -> None:
        """Let instructions be written anew, where it is time.

        Args:
            step: 0-based step whose problems are drawn next.
            config: The numbers that are drawn with.
            version: Steps that the policy has learned from.

        """
        self._now, self._version = config, version
        # With others drawing ahead, nobody else has told this engine how far the policy is.
        self.bench.engine.update(version)
        self.stream.renew(step=step)

    def put_before(self, problems: Sequence[Problem], *, step: int) -> list[Prompt]:
        """Put an instruction before each problem of a round.

        Args:
            problems: Those that were drawn.
            step: 0-based step that they will be learned from in.

        Returns:
            Their prompts, with the problems' own ids.

        Raises:
            UserError: With its instruction a problem fills the policy's context.

        """
        chosen = self.stream.choose([each.id for each in problems], step=step)
        prompts = self._prompts(problems, chosen)
        for prompt, text in zip(prompts, chosen, strict=True):
            if not leaves_room(prompt, self.bench.engine.context_length):
                raise UserError(
                    f"rl.draw.instructions: behind the instruction {text[:40]!r} the problem"
                    f" {prompt.id} fills the {self.bench.engine.context_length} tokens of the"
                    " policy's context; take shorter problems or instructions"
                )
        of_step = self.drawn.setdefault(str(step), {})
        of_step |= {p.id: text for p, text in zip(problems, chosen, strict=True)}
        return prompts

    def observe(self, groups: Sequence[Group], *, step: int) -> None:
        """Let the instructions know what became of the groups of a step.

        Args:
            groups: All of it, trained on or not.
            step: The 0-based step.

        """
        chosen = self.drawn.pop(str(step), {})
        asked = {each.id: each.prompt for each in self.problems}
        self.stream.observe([_attempts(group, chosen, asked) for group in groups])

    def try_out(self, instruction: str, *, count: int, seed: int) -> list[float]:
        """Attempt problems of the run behind an instruction, as a `TryOut` does.

        Args:
            instruction: What stands before them.
            count: How many problems.
            seed: Of their choice and of the draws.

        Returns:
            The rewards of those that could be judged; none where it leaves no room to answer.

        """
        assert self._now is not None
        assert self._now.limit is not None
        (longest,) = self._prompts([self.longest], [instruction])
        if not leaves_room(longest, self.bench.engine.context_length):
            return []
        number = min(count, len(self.problems))
        problems = Random(seed).sample(list(self.problems), number)
        prompts = self._prompts(problems, [instruction] * number)
        params = SamplingParams(self._now.limit, self._now.temperature, num_samples=1, seed=seed)
        at = SamplingRound(self._version, params, first_group=0, version=self._version)
        # What remembers is left as it was: nobody learns from a trial.
        rewarder, made_before = self.bench.rewarder, self.production.state_dict()
        before = copy.deepcopy(rewarder.state_dict())
        made = self.production.produce(problems, prompts, at)
        rewarder.use(self._now.reward, max_tokens=self._now.longest)
        rewarded = rewarder.rewarded(made, problems, step=self._version)
        rewarder.load_state_dict(before)
        self.production.load_state_dict(made_before)
        attempts = [each for group in rewarded for each in wholes(group) if each.role == POLICY]
        return [each.reward for each in attempts if each.reward is not None]

    def leave_best(
        self, tokenizer: "PreTrainedTokenizerBase", *, note: Callable[[str], None]
    ) -> None:
        """Write the best instruction into the chat template of the policy that is saved.

        Args:
            tokenizer: Of that policy.
            note: Takes a sentence about it.

        """
        text = self.stream.best()
        if not text:
            return
        if not tokenizer.chat_template:
            note(
                f"the best instruction is {text!r}; the policy has no chat template to write it"
                " into, so evaluate it on problems of a source with context.system"
            )
            return
        tokenizer.chat_template = with_system(str(tokenizer.chat_template), text)
        note(f"the policy's chat template now begins with its best instruction: {text!r}")

    def state_dict(self) -> dict[str, Any]:
        """What the stream keeps, and the instructions whose results are not known yet."""
        return {"stream": self.stream.state_dict(), "drawn": copy.deepcopy(self.drawn)}

    def load_state_dict(self, state: "Mapping[str, Any]") -> None:
        """Go on from what `state_dict` gave."""
        self.stream.load_state_dict(state["stream"])
        self.drawn = {step: dict(each) for step, each in state["drawn"].items()}

    def _prompts(self, problems: Sequence[Problem], texts: Sequence[str]) -> list[Prompt]:
        asked = [_instructed(each, text) for each, text in zip(problems, texts, strict=True)]
        encoded = encode_prompts(self.bench.tokenizer, asked)
        return [Prompt(p.id, tuple(ids)) for p, ids in zip(problems, encoded, strict=True)]


def start_instructed(
    instructor: Instructor,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    bench: Workbench,
    production: Production,
    *,
    seed: int,
) -> Instructed:
    """Start a run's instructions.

    Args:
        instructor: The part.
        problems: All of the run.
        prompts: Their prompts as tokens, in the same order, without an instruction.
        bench: What draws from the policy, and what rewards.
        production: What makes rollouts.
        seed: Of the run.

    Returns:
        Them, before anything was drawn.

    Raises:
        UserError: A problem has a system prompt of its own.

    """
    own = next((p for p in problems if PromptContext.read(p.context).system), None)
    if own is not None:
        raise UserError(
            f"rl.draw.instructions: '{own.prompt[:40]}' of {own.source} has a system prompt of its"
            " own, and an instruction stands in its place; leave context.system out of the source"
        )
    lengths = [len(each.token_ids) for each in prompts]
    longest = problems[lengths.index(max(lengths))]
    made = Instructed(problems, longest, bench, production, seed)
    stands = InstructorBench(bench.table(), made.try_out, seed)
    made.stream = started(instructor, instructor.start(stands), InstructionStream, where="rl")
    return made


def _instructed(problem: Problem, text: str) -> PromptInContext:
    context = PromptContext.read(problem.context)
    return PromptInContext(problem.prompt, context.model_copy(update={"system": text}))


def _attempts(
    group: Group, chosen: "Mapping[str, str]", asked: "Mapping[str, str]"
) -> InstructedAttempts:
    problem = group[0].problem_id
    own = [each for each in wholes(group) if each.role == POLICY]
    return InstructedAttempts(
        instruction=chosen[problem],
        problem=asked[problem],
        texts=tuple(each.text for each in own),
        rewards=tuple(each.reward for each in own),
        solved=tuple(each.solved for each in own),
    )
