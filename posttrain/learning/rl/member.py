"""One of several policies that are trained together: its draws, its reward, and what it reads."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from posttrain.data.schemas import Problem
from posttrain.data.templates import encode_completions
from posttrain.learning.rl.batch import TrainSample
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.drawn import as_groups, read_and_said
from posttrain.learning.rl.generation import Generation
from posttrain.learning.rl.rollout import Group, Rollout, marked
from posttrain.learning.rl.rollout_batch import informative_groups
from posttrain.learning.rl.rollouter import Draft
from posttrain.learning.rl.state import RlState
from posttrain.learning.rollouts.engines.base import Prompt
from posttrain.learning.rollouts.limits import leaves_room
from posttrain.learning.rollouts.scoring import make_prompts
from posttrain.stage.seeds import purpose_seed

COPIED = "policy"
"""Begins the names of the first policy and its copies; alone, as the origin of a rollout, it is
whoever learns from that."""
FIRST = f"{COPIED}_1"
"""Name of the policy that the stage hands on."""


class Shared(NamedTuple):
    """A group as its author gives it away: text, and nothing of any model."""

    author: str
    """The policy that wrote it."""
    problem: Problem
    texts: tuple[str, ...]
    ended: tuple[bool, ...]
    """False where an answer was cut off."""


@dataclass(frozen=True)
class Member:
    """A policy with all that it is trained with."""

    name: str
    """Unique among them."""
    seed: int
    """Of its own draws."""
    state: RlState

    @cached_property
    def problems(self) -> Mapping[str, Problem]:
        """The problems that it draws from, by id."""
        return {each.id: each for each in self.state.rollouter.problems}

    def begin(self, step: int, config: RlConfig) -> None:
        """Let the engine and the reward be those of a step.

        Args:
            step: 0-based; the policy has learned from so many.
            config: The numbers of the step.

        """
        rollouter = self.state.rollouter
        rollouter.bench.engine.update(step)
        rollouter.production.use(config.producer)
        rollouter.bench.rewarder.use(config.reward, max_tokens=config.longest)
        self.state.learner.passes.config = config

    def generation(self, step: int, config: RlConfig) -> Generation:
        """Draw what the policy would learn from by itself.

        Args:
            step: 0-based step.
            config: Its numbers.

        Returns:
            All groups that were drawn, with what they earned; those to learn from are marked.

        """
        made = self.state.rollouter.generate(step, config, version=step)
        return replace(made, groups=[_named(group, self.name) for group in made.groups])

    def draft(self, step: int, config: RlConfig) -> Draft:
        """Draw the problems of a step by the policy's own sampler.

        Args:
            step: 0-based step.
            config: Its numbers.

        Returns:
            The problems with their prompts, and how to draw.

        """
        wanted = config.problems_per_step
        return self.state.rollouter.draft(step, config, version=step, wanted=wanted)

    def answers(self, draft: Draft) -> list[Group]:
        """Answer the problems of a draft, of this policy or of another one.

        Args:
            draft: Which problems, and how many answers to each.

        Returns:
            Groups that have earned nothing yet, in the order of the problems.

        """
        rollouter = self.state.rollouter
        params = replace(draft.at.params, seed=_seed_of(draft, "answers", self.name))
        at = replace(draft.at, params=params)
        made = rollouter.production.produce(draft.problems, draft.prompts, at)
        return [_named(group, self.name) for group in made]

    def replies(
        self, draft: Draft, texts: Sequence[Sequence[str]], *, purpose: str
    ) -> tuple[list[Group], int]:
        """Answer each problem of a draft once behind every one of some texts.

        Args:
            draft: The problems, and how to draw.
            texts: What is read in place of each problem's prompt, as many for each as replies are
                wanted.
            purpose: What the replies are for: a draw of its own within the step.

        Returns:
            A group for each problem that has earned nothing yet, a rollout for each text in their
            order; and the number of texts that left no room and in whose place the problem's own
            prompt was read.

        """
        bench = self.state.rollouter.bench
        asked = [
            replace(problem, prompt=text)
            for problem, each in zip(draft.problems, texts, strict=True)
            for text in each
        ]
        owners = [place for place, each in enumerate(texts) for _ in each]
        prompts: list[Prompt] = []
        full = 0
        for prompt, owner in zip(make_prompts(bench.tokenizer, asked), owners, strict=True):
            name = f"{draft.problems[owner].id}/{len(prompts)}"
            fits = leaves_room(prompt, bench.engine.context_length)
            ids = prompt.token_ids if fits else draft.prompts[owner].token_ids
            prompts.append(Prompt(name, ids))
            full += not fits
        params = replace(draft.at.params, num_samples=1, seed=_seed_of(draft, purpose, self.name))
        drawn = as_groups(bench.engine.sample(prompts, params), asked, prompts)
        groups: list[Group] = [[] for _ in texts]
        for (row,), owner in zip(drawn, owners, strict=True):
            problem, group = draft.problems[owner], groups[owner]
            episode = f"{problem.id}/{len(group)}"
            group.append(
                row._replace(problem_id=problem.id, group=owner, episode=episode, role=self.name)
            )
        return groups, full

    def rewarded(
        self, groups: Sequence[Group], *, step: int, problems: Sequence[Problem] | None = None
    ) -> list[Group]:
        """Return groups with what each rollout earns by this policy's reward.

        Args:
            groups: Rollouts that have earned nothing yet.
            step: 0-based step that they will be learned from in.
            problems: What each group answers, where that is not one of the policy's problems.

        Returns:
            The same groups, in their order.

        """
        if problems is None:
            problems = [self.problems[group[0].problem_id] for group in groups]
        return self.state.rollouter.bench.rewarder.rewarded(groups, problems, step=step)

    def learning(self, made: Generation, further: Sequence[Group]) -> Generation:
        """Return a generation with further groups that are learned from.

        Args:
            made: What the policy drew.
            further: Groups with what they earned.

        Returns:
            Those groups behind what it drew.

        """
        more = [marked(group, trained=True) for group in further]
        return replace(made, groups=[*made.groups, *more])

    def of_step(self, groups: Sequence[Group], step: int, config: RlConfig) -> Generation:
        """Return what is learned from of the groups of a step, as the recipe says.

        Args:
            groups: With what they earned.
            step: 0-based step.
            config: Its numbers.

        Returns:
            All of them; those to learn from are marked.

        """
        return self.state.rollouter.selected(groups, config, step=step, version=step, rounds=1)

    def only(self, made: Generation, places: Collection[int]) -> Generation:
        """Return a generation of which some groups alone are learned from.

        Args:
            made: What was drawn.
            places: Of these groups.

        Returns:
            The same groups; the others are not marked.

        """
        kept = [
            group if place in places else marked(group, trained=False)
            for place, group in enumerate(made.groups)
        ]
        return replace(made, groups=kept)

    def shared(self, groups: Sequence[Group]) -> list[Shared]:
        """Give groups away as text."""
        return [
            Shared(
                self.name,
                self.problems[group[0].problem_id],
                tuple(row.text for row in group),
                tuple(not row.truncated for row in group),
            )
            for group in groups
        ]

    def read(self, shared: Sequence[Shared], step: int) -> list[Group]:
        """Read what others wrote, and pay it by this policy's reward.

        Args:
            shared: Groups as text.
            step: 0-based step that they are learned from in.

        Returns:
            The groups in this policy's tokens, without log-probabilities yet. One that holds an
            empty answer or does not fit into the policy's context is left out.

        """
        bench = self.state.rollouter.bench
        prompts = make_prompts(bench.tokenizer, [each.problem for each in shared])
        groups: list[Group] = []
        for each, prompt in zip(shared, prompts, strict=True):
            said = encode_completions(bench.tokenizer, each.texts, allow_empty=True)
            answers = [ids if end else ids[:-1] for ids, end in zip(said, each.ended, strict=True)]
            longest = len(prompt.token_ids) + max(map(len, answers))
            if all(answers) and longest <= bench.engine.context_length:
                row = (len(groups), self.name, step)
                groups.append(_group_read(each, prompt, answers, *row))
        return self.rewarded(groups, step=step)

    def telling(self, groups: Sequence[Group], config: RlConfig) -> list[bool]:
        """Tell of which groups the policy's advantage would learn something.

        Args:
            groups: With what they earned by its reward.
            config: The numbers of the step.

        Returns:
            True or false for each group.

        """
        advantage = config.algorithm_at_work.advantage
        return informative_groups(groups, advantage, by=config.reward.filter)

    def as_own(self, groups: Sequence[Group]) -> list[Group]:
        """Return groups at the log-probabilities that the policy has of them now.

        The ratio to what drew them is that to this policy, as if it had drawn them.

        Args:
            groups: In this policy's tokens.

        Returns:
            The same groups, in their order.

        """
        passes = self.state.learner.passes
        rows = [TrainSample.bare(row) for group in groups for row in group]
        found = iter(passes.rows(rows, passes.present_logprobs))
        return [[row._replace(logprobs=next(found)) for row in group] for group in groups]


def _named(group: Group, name: str) -> Group:
    return [row._replace(role=name) for row in group]


def _seed_of(draft: Draft, purpose: str, name: str) -> int:
    return purpose_seed(draft.at.params.seed, purpose, name)


def _group_read(
    shared: Shared,
    prompt: Prompt,
    answers: Sequence[Sequence[int]],
    number: int,
    role: str,
    version: int,
) -> Group:
    """A group of another policy in the tokens of this one."""
    return [
        Rollout(
            problem_id=shared.problem.id,
            source=shared.problem.source,
            group=number,
            episode=f"{shared.problem.id}/{place}",
            token_ids=(*prompt.token_ids, *ids),
            spans=read_and_said(prompt.token_ids, ids),
            logprobs=(0.0,) * len(ids),
            versions=(version,),
            end="over" if ended else "tokens",
            text=text,
            role=role,
            origin=shared.author,
        )
        for place, (ids, text, ended) in enumerate(
            zip(answers, shared.texts, shared.ended, strict=True)
        )
    ]
