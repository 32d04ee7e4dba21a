"""A creator rewrites the most informative problems, and the solver learns on what it wrote too."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.backends.endpoint.config import filled
from posttrain.learning.rl.exchanges.base import Exchange, ExchangeRound
from posttrain.learning.rl.rollout import marked
from posttrain.learning.rollouts.limits import leaves_room
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rewards.config import RewardStack
    from posttrain.learning.rl.generation import Generation
    from posttrain.learning.rl.member import Member
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rl.rollouter import Draft


class Creator(Exchange):
    """Let the second policy rewrite problems, drawn by how much the first one's rewards differ.

    The first policy answers the problems of a step. Of these some are drawn, in proportion to the
    best less the worst reward of their answers; the second policy rewrites each, and the first one
    answers what it wrote. It learns from these groups and from its own ones that make up the step.
    The second policy does not learn, and what it wrote earns nothing. A new problem has no label:
    the reward is to ask none, and what a label says of answers to it counts as unknown.
    """

    SOURCE = "Ye et al. 2025, arXiv 2411.00062"
    METRICS: ClassVar[Mapping[str, str]] = {
        "informativeness": "best less worst reward of the answers to a problem, mean of a step's",
        "informativeness_of_chosen": "the same of those that were rewritten",
        "informativeness_of_new": "the same of what was written",
        "new": "problems that were written and answered",
    }
    LEAST: ClassVar[int] = 2
    MOST: ClassVar[int] = 2

    kind: Literal["creator"] = "creator"
    evolved: int = Field(default=4, ge=1)
    """Most problems of a step that are rewritten; what is written stands in the place of others."""
    by: Literal["informativeness", "chance"] = "informativeness"
    """How they are drawn; by `chance` every problem is equally likely, whatever was earned."""
    asks: tuple[str, ...] = Field(
        default=(
            "{prompt}\n\nRewrite this problem into one that is harder but about as long, and that"
            " has one answer. Write the new problem alone.",
            "{prompt}\n\nWrite a new problem of another subject that is about as long and as hard,"
            " and that has one answer. Write the new problem alone.",
        ),
        min_length=1,
    )
    """What the second policy reads, in depth and in breadth; one is drawn for each problem."""

    @model_validator(mode="after")
    def _reads_the_problem(self) -> Self:
        if lacking := [each for each in self.asks if "{prompt}" not in each]:
            raise ValueError(f"asks has '{lacking[0]}', without {{prompt}}; write it there")
        return self

    def generations(self, members: "Sequence[Member]", at: ExchangeRound) -> "list[Generation]":
        """Answer, rewrite, and answer what was written; see `Exchange.generations`."""
        solver, creator = members
        draft = solver.draft(at.step, at.config)
        own = solver.rewarded(solver.answers(draft), step=at.step)
        found = [informativeness(group) for group in own]
        chosen = self.drawn(found, Random(purpose_seed(at.seed, "evolved")))
        wrote, fitting = self._written(creator, draft, chosen, at)
        new = self._answered(solver, draft, fitting, at)
        at.measured.update(
            informativeness=fmean(found),
            informativeness_of_chosen=fmean(found[each] for each in chosen),
            new=float(len(new)),
            **({"informativeness_of_new": fmean(map(informativeness, new))} if new else {}),
        )
        chance = Random(purpose_seed(at.seed, "kept"))
        kept = chance.sample(range(len(own)), max(0, len(own) - len(new)))
        made = solver.only(solver.of_step(own, at.step, at.config), kept)
        idle = creator.only(creator.of_step(wrote, at.step, at.config), ())
        return [solver.learning(made, new), idle]

    def drawn(self, found: Sequence[float], chance: Random) -> list[int]:
        """Draw the problems that are rewritten, without replacement.

        Args:
            found: Informativeness of each problem of the step.
            chance: What is drawn by.

        Returns:
            Places of at most `evolved` problems, in order. By informativeness none that has none,
            unless no problem has any: then all are equally likely.

        """
        evenly = self.by == "chance" or not any(found)
        weights = [1.0 for _ in found] if evenly else found
        # Exponential races: the first to finish are a weighted draw without replacement.
        finish = {
            place: chance.expovariate(1.0) / weight
            for place, weight in enumerate(weights)
            if weight > 0.0
        }
        return sorted(sorted(finish, key=finish.__getitem__)[: self.evolved])

    def _written(
        self, creator: "Member", draft: "Draft", chosen: Sequence[int], at: ExchangeRound
    ) -> "tuple[list[Group], dict[int, Problem]]":
        """What the creator wrote, and by its place the new problem where one can be read."""
        from posttrain.learning.rollouts.scoring import make_prompts

        chance = Random(purpose_seed(at.seed, "asks"))
        texts: list[list[str]] = [[] for _ in draft.problems]
        for place in chosen:
            ask = chance.choice(self.asks)
            texts[place].append(filled(ask, prompt=draft.problems[place].prompt))
        groups, _ = creator.replies(draft, texts, purpose="creator")
        wrote = [
            [row._replace(role=f"creator:{row.role}") for row in groups[place]] for place in chosen
        ]
        new = {
            place: replace(draft.problems[place], prompt=groups[place][0].text.strip())
            for place in chosen
            if groups[place][0].text.strip()
        }
        bench = creator.state.rollouter.bench
        prompts = make_prompts(bench.tokenizer, list(new.values()))
        fits = [leaves_room(prompt, bench.engine.context_length) for prompt in prompts]
        return wrote, {place: new[place] for place, fit in zip(new, fits, strict=True) if fit}

    def _answered(
        self, solver: "Member", draft: "Draft", new: "Mapping[int, Problem]", at: ExchangeRound
    ) -> "list[Group]":
        """The solver's answers to what was written, each group paid as one to the new problem."""
        if not new:
            return []
        texts: list[list[str]] = [[] for _ in draft.problems]
        for place, problem in new.items():
            texts[place] += [problem.prompt] * at.config.group_size
        groups, _ = solver.replies(draft, texts, purpose="evolved")
        answers = [group for group in groups if group]
        paid = solver.rewarded(answers, step=at.step, problems=list(new.values()))
        return [
            marked(
                # Nobody knows what is right there.
                [
                    row._replace(
                        role=f"evolved:{row.role}",
                        solved=None,
                        components=without_label(row.components, at.config.reward),
                    )
                    for row in group
                ],
                trained=True,
            )
            for group in paid
        ]


def informativeness(group: "Group") -> float:
    """Best less worst reward of the answers to a problem, of those that could be judged."""
    rewards = [row.reward for row in group if row.reward is not None]
    return max(rewards) - min(rewards) if rewards else 0.0


def without_label(
    scores: Sequence[tuple[str, float | None]], reward: "RewardStack"
) -> tuple[tuple[str, float | None], ...]:
    """Take out what only a label can say.

    Args:
        scores: Each component's name and score.
        reward: The components.

    Returns:
        The same, and None of each that says whether an answer is right, or reads one that does.

    """
    labeled: set[str] = set()
    for name in reward.order:
        if reward.components[name].SAYS_SOLVED or labeled.intersection(reward.read_by(name)):
            labeled.add(name)
    return tuple((name, None if name in labeled else score) for name, score in scores)
