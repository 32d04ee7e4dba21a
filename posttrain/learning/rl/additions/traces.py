"""Traces of others in a group, always or where the policy failed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from posttrain.learning.rl.additions.base import (
    Added,
    Addition,
    AdditionAtWork,
    AdditionBench,
    Joining,
)

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rl.producers.base import SamplingRound
    from posttrain.learning.rl.rollout import Group

SOLUTIONS = "solutions"


class ChosenTraces(Addition):
    """What of a table of answers joins which group; a kind says where the table is from."""

    SOURCE = (
        "RL-PLUS, arXiv 2508.00222; AMPO, arXiv 2510.02227; SII-Enigma/AMPO at b88d365,"
        " adaptive_mix_src/mix_dapo_trainer.py (injection_strategy, target_selection_strategy)"
    )

    count: int = Field(default=1, ge=1)
    """Most traces that join a group."""
    when: Literal["always", "failed"] = "always"
    """Every group that is learned from, or those in which no rollout is right."""
    replace: bool = False
    """Each stands for one wrong rollout, which is not learned from, and none joins without one."""
    choose: Literal["random", "understood"] = "random"
    """By chance, or by the probability of the reference answer behind the trace."""

    @property
    def asks_policy(self) -> bool:
        """Only for what it understands; see `Addition.asks_policy`."""
        return self.choose == "understood"

    def beyond_processes(self, processes: int) -> str | None:
        """Say that it asks the whole policy; see `StageConfig.beyond_processes`."""
        if processes == 1 or not self.asks_policy:
            return None
        return (
            "draw.additions chooses by what the policy understands, and several processes have a"
            " part of it each; set choose to random, or leave resources.processes out"
        )


class Traces(ChosenTraces):
    """Let traces of teachers, from a connected table, join the group of their problem.

    Those that are right stand for rollouts that are wrong, or beside all of them. Of several traces
    the choice is random, or falls on those that the policy understands best: which make it give the
    reference answer the highest mean probability.
    """

    kind: Literal["traces"] = "traces"

    def ports(self) -> Sequence[str]:
        """Return the port of the traces; see `Addition.ports`."""
        return (SOLUTIONS,)

    def start(self, bench: AdditionBench) -> AdditionAtWork:
        """Read the traces; see `Addition.start`."""
        import polars as pl

        from posttrain.data.schemas import COMPLETIONS
        from posttrain.data.tables import read_table

        table = read_table(bench.inputs[SOLUTIONS], COMPLETIONS)
        table = table.filter(pl.col("verified").fill_null(value=True))
        found: dict[str, list[AuthoredTrace]] = {}
        for name, row, text in table.select("problem_id", "id", "text").iter_rows():
            found.setdefault(name, []).append(AuthoredTrace(row, text))
        return TracesAtWork(self, bench, found)


class AuthoredTrace(NamedTuple):
    """An answer that may join a group."""

    id: str
    text: str
    token_ids: tuple[int, ...] = ()
    """Where its author's tokens are known."""
    logprobs: tuple[float, ...] = ()
    """Its author's, in nats, of these tokens."""


class TracesAtWork(AdditionAtWork):
    """The traces by problem."""

    def __init__(
        self,
        config: ChosenTraces,
        bench: AdditionBench,
        known: Mapping[str, Sequence[AuthoredTrace]],
    ) -> None:
        self._config, self._bench, self._known = config, bench, known

    def join(
        self, groups: "Sequence[Group]", problems: "Sequence[Problem]", at: "SamplingRound"
    ) -> Sequence[Joining]:
        """Choose for each group; see `AdditionAtWork.join`."""
        return [
            self._joining(group, problem, at)
            for group, problem in zip(groups, problems, strict=True)
        ]

    def _joining(self, group: "Group", problem: "Problem", at: "SamplingRound") -> Joining:
        config, known = self._config, self._known.get(problem.id, ())
        learned = [place for place, row in enumerate(group) if row.trained]
        wrong = [place for place in learned if group[place].solved is False]
        if not known or (config.when == "failed" and len(wrong) < len(learned)):
            return Joining()
        count = min(config.count, len(wrong)) if config.replace else config.count
        chosen = self._chosen(known, problem, count, group, at)
        replaced = wrong[: len(chosen)] if config.replace else []
        added = [
            Added(each.text, "trace", (each.id,), each.token_ids, each.logprobs) for each in chosen
        ]
        return Joining(added, replaced)

    def _chosen(
        self,
        known: Sequence[AuthoredTrace],
        problem: "Problem",
        count: int,
        group: "Group",
        at: "SamplingRound",
    ) -> list[AuthoredTrace]:
        from posttrain.stage.seeds import shuffler

        order = list(known)
        shuffler(at.params.seed, "traces", problem.id).shuffle(order)
        if self._config.choose == "understood" and len(order) > count:
            from posttrain.learning.rl.understood import understood

            asked = group[0].token_ids[: group[0].spans[0].end]
            scores = understood(
                self._bench.work, asked, [each.text for each in order], problem.answer
            )
            ranked = sorted(range(len(order)), key=lambda place: -scores[place])
            order = [order[place] for place in ranked]
        return order[:count]
