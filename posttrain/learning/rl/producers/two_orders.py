"""Answers of the policy to what is told in its order, beside those to the same told in another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.order import SHUFFLED
from posttrain.learning.rl.producers.base import SamplingRound, Workbench
from posttrain.learning.rl.producers.plain import Plain, PlainProduction
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rollouts.engines.base import Prompt


class TwoOrders(Plain):
    """Answer each problem, and once more with the parts of its prompt in an order of chance.

    The last part is the question, which stays where it is. Both groups are rewarded as answers to
    the problem, each by itself, so that the component `order` can compare them; the selection
    `told_in_order` keeps the second one from being learned from.
    """

    SOURCE: ClassVar[str] = (
        "TimeHC-RL, arXiv 2505.24500, section 3.2.3: a second group behind the shuffled events"
    )
    REPEATS: ClassVar[bool] = False
    GOES_WITH: ClassVar[frozenset[str]] = frozenset({"component.order", "selection.told_in_order"})
    """See `InCompany`."""

    kind: Literal["two_orders"] = "two_orders"  # type: ignore[assignment]
    between: tuple[str, ...] = Field(default=("\n", " "), min_length=1)
    """What may part a prompt: the first of them by which it has three parts at least, which are
    lines, and else words. One with fewer by any has no other order, and is answered once."""

    def start(self, bench: Workbench) -> "TwoOrdersProduction":
        """Begin a run."""
        return TwoOrdersProduction(bench, self.between)


@dataclass(frozen=True)
class TwoOrdersProduction(PlainProduction):
    """Samples twice; it has no state."""

    between: tuple[str, ...]

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Draw what is told, then the same shuffled; see `Production.produce`."""
        from posttrain.learning.rl.drawn import as_groups
        from posttrain.learning.rollouts.limits import leaves_room
        from posttrain.learning.rollouts.scoring import make_prompts

        groups = super().produce(problems, prompts, at)
        told = {
            place: replace(problem, prompt=text)
            for place, problem in enumerate(problems)
            if (text := shuffled(problem.prompt, self.between, self._chance(problem, at)))
        }
        room = self.bench.engine.context_length
        made = {
            place: replace(prompt, id=f"{prompts[place].id}~{SHUFFLED}")
            for place, prompt in zip(
                told, make_prompts(self.bench.tokenizer, list(told.values())), strict=True
            )
            if leaves_room(prompt, room)
        }
        if not made:
            return groups
        params = replace(at.params, seed=purpose_seed(at.params.seed, SHUFFLED))
        samples = self.bench.engine.sample(list(made.values()), params)
        others = as_groups(samples, [problems[place] for place in made], list(made.values()))
        for place, rows in zip(made, others, strict=True):
            number = groups[place][0].group
            groups[place] += [
                row._replace(group=number, role=SHUFFLED, peers=SHUFFLED) for row in rows
            ]
        return groups

    def _chance(self, problem: "Problem", at: SamplingRound) -> Random:
        return Random(purpose_seed(at.params.seed, "order", problem.id))


def shuffled(prompt: str, between: Sequence[str], chance: Random) -> str:
    """Put the parts of a prompt, but for the last one, in another order.

    Args:
        prompt: What is told, and then asked.
        between: What may part it, the first that makes three parts goes.
        chance: Chooses the order.

    Returns:
        The prompt with its parts in an order that is not its own; empty where there is none.

    """
    by = next((each for each in between if prompt.count(each) > 1), None)
    if by is None:
        return ""
    *events, question = prompt.split(by)
    if len(set(events)) == 1:
        return ""
    mixed = list(events)
    while mixed == events:
        chance.shuffle(mixed)
    return by.join((*mixed, question))
