"""Answers of the policy behind a part of a reference solution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.rl.hints.base import HINT, HINT_ROUND, HintLaw, TriedShare
from posttrain.learning.rl.hints.fixed import Fixed
from posttrain.learning.rl.hints.registry import HINT_LAWS
from posttrain.learning.rl.producers.base import Producer, Production, SamplingRound, Workbench
from posttrain.stage.schedule import Schedulable
from posttrain.stage.seeds import purpose_seed
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.environments.base import Environment
    from posttrain.learning.rl.hints.giving import Hint, HintGiver
    from posttrain.learning.rl.rollout import Group, Rollout
    from posttrain.learning.rollouts.engines.base import Prompt


class Hinted(Producer, Schedulable):
    """Sample a group of answers to every problem, each behind the beginning of a solution.

    Solutions come through the stage's port `traces`; a problem without one is answered as it is.
    What is given is read and bears no loss; where the answer goes on from it, both are judged as
    one text. The row of the solution is a parent of the rollout's.

    Source: GHPO, arXiv 2507.10628; SEELE, arXiv 2509.06923. How much is given each law says, with
    its source.
    """

    FOLLOWS: ClassVar[bool] = True

    kind: Literal["hinted"] = "hinted"
    law: Annotated[HintLaw, InSlot(HINT_LAWS)] = Fixed()
    """How much is given: `fixed`, `growth`, `item_response`, ..., or a mapping with a kind."""
    place: Literal["answer", "prompt"] = "answer"
    """Where it stands: the answer begins with it, or it is told behind the problem."""
    lead: str = ""
    """What stands before it in the prompt."""
    cut: Literal["token", "line"] = "token"
    """`line` gives whole lines alone, and never the last one."""

    @property
    def ports(self) -> Sequence[str]:
        """See `Producer.ports`."""
        return ("traces",)

    @property
    def rewords(self) -> str:
        """A hint in the prompt; see `Producer.rewords`."""
        return "producer.place prompt" if self.place == "prompt" else ""

    def played_in(self) -> "Environment":
        """Nothing answers; see `Producer.played_in`."""
        return Single()

    def start(self, bench: Workbench) -> Production:
        """Begin a run."""
        from posttrain.learning.rl.hints.giving import HintGiver

        giver = HintGiver(bench, self.place, self.cut, self.lead)
        return HintedProduction(self.law, bench, giver)


@dataclass
class HintedProduction(Production):
    """Draws in rounds; its state is what is recalled of each problem."""

    law: HintLaw
    bench: Workbench
    giver: "HintGiver"
    recalled: dict[str, list[TriedShare]] = field(default_factory=dict)
    """Id of a problem -> what came of its latest hints."""

    def use(self, producer: Producer) -> None:
        """Go by the numbers of a step; see `Production.use`."""
        assert isinstance(producer, Hinted)
        self.law = producer.law

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Draw round by round what the law asks for; see `Production.produce`."""
        law = self.law
        groups: list[Group] = [[] for _ in problems]
        tried: list[list[TriedShare]] = [[] for _ in problems]
        chances = [Random(purpose_seed(at.params.seed, "hint", each.id)) for each in problems]
        for number, count in enumerate(law.portions(at.params.num_samples)):
            hints: dict[int, Hint] = {}
            for place, problem in enumerate(problems):
                whole = len(groups[place]) >= at.params.num_samples
                if whole and not self.giver.has(problem):
                    # Drawn again it would be behind nothing once more.
                    continue
                known = self.recalled.get(problem.id, ())
                share = law.share(tried[place], known, chances[place])
                if share is not None:
                    hints[place] = self.giver.give(problem, prompts[place], share)
            if not hints:
                break
            drawn = self._drawn(hints, problems, at, count=count, number=number)
            for place, rows in drawn.items():
                groups[place] += rows
                solved = self._solved(rows, problems[place]) if law.LOOKS else (None,) * len(rows)
                tried[place].append(TriedShare(hints[place].share, solved))
        if law.recalled:
            for problem, each in zip(problems, tried, strict=True):
                kept = [*self.recalled.get(problem.id, ()), *each]
                self.recalled[problem.id] = kept[-law.recalled :]
        return groups

    def _drawn(
        self,
        hints: "Mapping[int, Hint]",
        problems: Sequence["Problem"],
        at: SamplingRound,
        *,
        count: int,
        number: int,
    ) -> "dict[int, list[Rollout]]":
        """Draw a round, and say of every rollout what it was given."""
        from posttrain.learning.rl.drawn import as_groups

        # The first round's seed is that of a stage without hints.
        seed = purpose_seed(at.params.seed, "hints", number) if number else at.params.seed
        params = replace(at.params, num_samples=count, seed=seed)
        prompts = [hint.prompt for hint in hints.values()]
        samples = self.bench.engine.sample(prompts, params)
        made = as_groups(samples, [problems[place] for place in hints], prompts)
        return {
            place: [
                row._replace(
                    group=at.first_group + place,
                    episode=f"{row.episode}/{number}" if number else row.episode,
                    text=self.giver.whole(hint, row.token_ids[row.spans[-1].begin :], row.text),
                    read=hint.read,
                    facts=((HINT, hint.share), (HINT_ROUND, float(number))),
                )
                for row in rows
            ]
            for (place, hint), rows in zip(hints.items(), made, strict=True)
        }

    def _solved(self, rows: "Sequence[Rollout]", problem: "Problem") -> tuple[bool | None, ...]:
        """Ask the problem's verifier, which remembers what it said."""
        known = self.bench.rewarder.known([(row.text, problem) for row in rows])
        return tuple(score.correct for score in known)

    def state_dict(self) -> dict[str, Any]:
        """What is recalled; see `Production.state_dict`."""
        if not self.law.recalled:
            return {}
        plain = {
            name: [[each.share, list(each.solved)] for each in kept]
            for name, kept in self.recalled.items()
        }
        return {"recalled": plain}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.recalled = {
            name: [TriedShare(share, tuple(solved)) for share, solved in kept]
            for name, kept in state.get("recalled", {}).items()
        }
