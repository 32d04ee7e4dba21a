"""Answers that join the groups of a step, as rollouts that others wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.data.contexts import in_context
from posttrain.data.schemas import Problem
from posttrain.data.templates import encode_completions, fitting_answers
from posttrain.learning.episodes.episode import Span
from posttrain.learning.rl.additions.base import (
    Addition,
    AdditionAtWork,
    AdditionBench,
    Joining,
)
from posttrain.learning.rl.producers.base import SamplingRound, Workbench
from posttrain.learning.rl.rollout import Group, Rollout
from posttrain.stage.errors import UserError
from posttrain.stage.slots import name_of
from posttrain.stage.started import started


@dataclass(frozen=True)
class Joined:
    """An addition at work, and what lays its answers out as rollouts."""

    addition: Addition
    work: AdditionAtWork
    bench: AdditionBench
    room: int
    """Most tokens of a prompt and its answer."""

    def joined(
        self, groups: Sequence[Group], problems: Sequence[Problem], at: SamplingRound
    ) -> tuple[list[Group], dict[str, float]]:
        """Let answers join the groups that are learned from.

        Args:
            groups: All of a step, rewarded and marked.
            problems: Of the groups, in their order.
            at: Step, seed and how to sample.

        Returns:
            The same groups, each with what joined it behind its own; and what was measured.

        Raises:
            UserError: The addition gives other than one `Joining` for each group, or replaces what
                is not there.

        """
        learned = [place for place, group in enumerate(groups) if any(r.trained for r in group)]
        asked = [groups[place] for place in learned], [problems[place] for place in learned]
        found = list(self.work.join(*asked, at)) if learned else []
        if len(found) != len(learned):
            raise UserError(
                f"rl: {name_of(self.addition)}: `join` was given {len(learned)} groups and gave"
                f" {len(found)}; let it give one `Joining` for each"
            )
        rows = [
            self._rows(groups[place], problems[place], each, at)
            for place, each in zip(learned, found, strict=True)
        ]
        given = [place for place, each in zip(learned, rows, strict=True) if each]
        rewarder = self.bench.work.rewarder
        paid = iter(
            rewarder.rewarded(
                [each for each in rows if each], [problems[place] for place in given], step=at.step
            )
            if given
            else []
        )
        made = [list(group) for group in groups]
        for place, each, new in zip(learned, found, rows, strict=True):
            for wrong in each.replaced if new else ():
                made[place][wrong] = made[place][wrong]._replace(trained=False)
            chosen = _best(_above(next(paid), each.above), each.best) if new else []
            made[place] += [row._replace(trained=True) for row in chosen]
        added = [row for group in made for row in group if row.foreign]
        judged = [row.reward for row in added if row.reward is not None]
        return made, {
            "added": float(len(added)),
            **({"added_reward": sum(judged) / len(judged)} if judged else {}),
        }

    def _rows(
        self, group: Group, problem: Problem, joining: Joining, at: SamplingRound
    ) -> list[Rollout]:
        """What joins a group, as rollouts that have earned nothing yet; not what is too long."""
        if set(joining.replaced) - set(range(len(group))):
            raise UserError(
                f"rl: {name_of(self.addition)}: `join` replaces the rollouts {joining.replaced} of"
                f" a group of {len(group)}; let it name places in the group"
            )
        first = group[0]
        asked = first.token_ids[: first.spans[0].end]
        tokenizer = self.bench.work.tokenizer
        prompts = in_context([problem.prompt], [problem.context]) * len(joining.added)
        texts = fitting_answers(tokenizer, prompts, [each.text for each in joining.added])
        encoded = [
            each.token_ids or tuple(said)
            for each, said in zip(
                joining.added, encode_completions(tokenizer, texts, allow_empty=True), strict=True
            )
        ]
        return [
            first._replace(
                episode=f"{first.episode.rpartition('/')[0]}/{each.origin}-{place}",
                token_ids=(*asked, *said),
                spans=(
                    Span(0, len(asked), 0, drawn=False),
                    Span(len(asked), len(asked) + len(said), 0, drawn=True),
                ),
                # Its author's, where they are known: the learner asks the policy for its own.
                logprobs=each.logprobs or (0.0,) * len(said),
                versions=(at.version,),
                end="over",
                text=each.text,
                turns=(),
                components=(),
                reward=None,
                solved=None,
                token_rewards=(),
                advantages=(),
                trained=False,
                segment=0,
                origin=each.origin,
                read=each.read,
                shared=0,
                facts=(),
            )
            for place, (each, said) in enumerate(zip(joining.added, encoded, strict=True))
            if len(asked) + len(said) <= self.room and len(said) <= at.params.max_tokens
        ]


def _best(rows: Sequence[Rollout], count: int | None) -> list[Rollout]:
    """Those with the highest rewards, in their order; what could not be judged comes last."""
    if count is None:
        return list(rows)
    worth = [(row.reward is None, -(row.reward or 0.0), place) for place, row in enumerate(rows)]
    return [rows[place] for place in sorted(place for *_, place in sorted(worth)[:count])]


def _above(rows: Sequence[Rollout], least: float | None) -> Sequence[Rollout]:
    """Those that earn more, in their order."""
    if least is None:
        return rows
    return [row for row in rows if row.reward is not None and row.reward > least]


def start_joined(
    addition: Addition, work: Workbench, inputs: Mapping[str, Path], *, room: int
) -> Joined:
    """Start an addition, and check what it starts.

    Args:
        addition: The part.
        work: What draws from the policy and rewards.
        inputs: Of the stage by port.
        room: Most tokens of a prompt and its answer.

    Returns:
        What lets answers join groups.

    """
    bench = AdditionBench(work, inputs)
    made = started(addition, addition.start(bench), AdditionAtWork, where="rl")
    return Joined(addition, made, bench, room)
