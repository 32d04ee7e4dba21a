"""Answers that begin a little before an earlier one of the policy's own went wrong."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.rl.hints.base import HINT
from posttrain.learning.rl.producers.base import Producer, Production, SamplingRound, Workbench
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.environments.base import Environment
    from posttrain.learning.rl.rollout import Group, Rollout
    from posttrain.learning.rollouts.engines.base import Prompt


class BeforeFailure(Producer):
    """Begin a group where an earlier answer to its problem stood shortly before it ended wrong.

    The first wrong answer of a group is kept without its last tokens. When its problem is drawn
    again, all of the group go on from there, by a chance, and so are compared from one place. What
    they go on from is read and bears no loss; both are judged as one text.
    """

    SOURCE = (
        "collision replay of Huang et al., 'Collision Avoidance and Navigation for a Quadrotor"
        " Swarm Using End-to-end Deep Reinforcement Learning', arXiv 2309.13285; authors' code:"
        " Zhehui-Huang/quad-swarm-rl, quad_experience_replay.py"
    )

    kind: Literal["before_failure"] = "before_failure"
    share: float = Field(default=0.75, ge=0.0, le=1.0)
    """Chance that a problem with a kept answer begins with it."""
    back: float = Field(default=0.5, gt=0.0, lt=1.0)
    """Share of a wrong answer's tokens that is left to be drawn anew, at least two of them: its
    end alone is none. An answer that has no more is not kept."""
    kept: int = Field(default=20, ge=1)
    """Answers that are kept; the oldest gives way."""
    times: int = Field(default=10, ge=1)
    """Groups that begin with an answer before it is forgotten."""

    def played_in(self) -> "Environment":
        """Nothing answers; see `Producer.played_in`."""
        return Single()

    def start(self, bench: Workbench) -> Production:
        """Begin a run with nothing kept; see `Producer.start`."""
        return BeforeFailureProduction(self, bench)


@dataclass
class KeptFailure:
    """An answer that went wrong, without its last tokens."""

    problem_id: str
    begun: tuple[int, ...]
    """Its first tokens."""
    of: int
    """Tokens that it had."""
    replayed: int = 0
    """Groups that began with it."""


class BeforeFailureProduction(Production):
    """The answers that are kept are its state."""

    def __init__(self, config: BeforeFailure, bench: Workbench) -> None:
        self.config, self.bench = config, bench
        self.failures: deque[KeptFailure] = deque(maxlen=config.kept)

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Draw behind what is kept of a problem, or behind nothing; see `Production.produce`."""
        from posttrain.learning.rl.drawn import as_groups

        began = [self._chosen(each, at) for each in problems]
        asked = [
            replace(prompt, token_ids=prompt.token_ids + each.begun) if each else prompt
            for prompt, each in zip(prompts, began, strict=True)
        ]
        samples = self.bench.engine.sample(asked, at.params)
        made = as_groups(samples, problems, asked, first=at.first_group)
        groups: list[Group] = [
            [self._whole(row, each) for row in group]
            for group, each in zip(made, began, strict=True)
        ]
        for problem, group, each in zip(problems, groups, began, strict=True):
            self._keep(problem, group, each.begun if each else ())
        left = [each for each in self.failures if each.replayed < self.config.times]
        self.failures = deque(left, maxlen=self.config.kept)
        return groups

    def _chosen(self, problem: "Problem", at: SamplingRound) -> KeptFailure | None:
        """One of the problem's kept answers, by chance; None where it begins as it is."""
        own = [each for each in self.failures if each.problem_id == problem.id]
        draw = Random(purpose_seed(at.params.seed, "failure", problem.id))
        if not own or draw.random() >= self.config.share:
            return None
        chosen = draw.choice(own)
        chosen.replayed += 1
        return chosen

    def _whole(self, row: "Rollout", failure: KeptFailure | None) -> "Rollout":
        """A rollout whose text is what it went on from and what was drawn."""
        from posttrain.learning.rollouts.engines.beginnings import whole_text

        if failure is None:
            return row._replace(facts=((HINT, 0.0),))
        drawn = row.token_ids[row.spans[-1].begin :]
        text = whole_text(self.bench.tokenizer, failure.begun, drawn, row.text)
        return row._replace(text=text, facts=((HINT, len(failure.begun) / failure.of),))

    def _keep(self, problem: "Problem", group: "Group", begun: tuple[int, ...]) -> None:
        """Keep the first wrong answer that is long enough."""
        scores = self.bench.rewarder.known([(row.text, problem) for row in group])
        for row, score in zip(group, scores, strict=True):
            answer = (*begun, *row.token_ids[row.spans[-1].begin :])
            cut = answer[: -max(2, round(self.config.back * len(answer)))]
            if score.correct is False and cut:
                self.failures.append(KeptFailure(problem.id, cut, len(answer)))
                return

    def state_dict(self) -> dict[str, Any]:
        """What is kept, the oldest first; see `Production.state_dict`."""
        kept = [
            [each.problem_id, list(each.begun), each.of, each.replayed] for each in self.failures
        ]
        return {"failures": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        kept = [
            KeptFailure(name, tuple(begun), of, replayed)
            for name, begun, of, replayed in state.get("failures", ())
        ]
        self.failures = deque(kept, maxlen=self.config.kept)
