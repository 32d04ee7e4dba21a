"""Step tries: calls that failed are drawn anew, several times each, and judged by themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from posttrain.learning.episodes.environments.base import POLICY, Act, Environment, Said, Situation
from posttrain.learning.episodes.episode import Episode, turn_seed
from posttrain.stage.config import StageConfig
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.drawing import Role
    from posttrain.learning.rollouts.engines.base import Sample

STEP_ROLE = "step"
"""The role of such a try: it is no attempt at the problem, and is compared with its like alone."""


class StepTries(StageConfig):
    """What becomes of the first call of an episode that failed, after the episode.

    The turn is kept but for its last tokens, which are drawn again as often as a group has
    rollouts. A call that the environment answers without an error earns 1, one that fails 0; what
    is no call is left out. Only what was drawn again bears loss.
    """

    redrawn: int = Field(default=24, ge=1)
    """Tokens at the end of the turn that are drawn again: the call, and what was thought before."""
    errors: str = "tool_errors"
    """What the environment counts of calls that failed."""
    per_problem: float = Field(default=1.0, gt=0.0)
    """Most calls that are drawn again, as a share of the problems of a round; by chance, if there
    are more."""


class FailedCall(NamedTuple):
    """A turn that an environment answered with an error, in an episode that is over."""

    place: int
    """Of the episode's problem among those of the round."""
    problem: "Problem"
    episode: Episode
    turn: int
    """0-based turn of the episode."""
    begin: int
    """Where in the policy's tokens the turn begins."""
    cut: int
    """Where what is drawn again begins."""

    @property
    def id(self) -> str:
        """Of the tries: episode and turn."""
        return f"{self.episode.id}!{self.turn}"

    @property
    def kept(self) -> tuple[int, ...]:
        """Tokens that the tries share: what was read, and the beginning of the turn."""
        return self.episode.of(POLICY)[0].token_ids[: self.cut]


@dataclass(frozen=True)
class StepTry:
    """One such call, with what came of it."""

    call: FailedCall
    sample: "Sample"
    text: str
    """Of the whole turn."""
    failed: bool
    key: str
    """Of the situation in which it was said."""


def failed_calls(
    played: Sequence[Sequence[Episode]],
    problems: "Sequence[Problem]",
    config: StepTries,
    *,
    seed: int,
) -> list[FailedCall]:
    """Find the first call that failed in each episode.

    Args:
        played: Episodes by problem.
        problems: Their problems.
        config: What counts as failed, and how many are drawn again.
        seed: Of the round: where there are too many, they are chosen by it.

    Returns:
        Those that are drawn again, in the order of the episodes. A turn that was cut off, one in
        which others spoke too, and what stands behind a context that was begun afresh are not.

    """
    found = [
        call
        for place, (problem, episodes) in enumerate(zip(problems, played, strict=True))
        for episode in episodes
        if (call := _first_failed(place, problem, episode, config)) is not None
    ]
    most = max(1, int(config.per_problem * len(problems)))
    if len(found) <= most:
        return found
    chosen = Random(purpose_seed(seed, "steps")).sample(range(len(found)), most)
    return [found[at] for at in sorted(chosen)]


def _first_failed(
    place: int, problem: "Problem", episode: Episode, config: StepTries
) -> FailedCall | None:
    segments, own = episode.of(POLICY), 0
    for turn, (acts, after) in enumerate(zip(episode.log, episode.situations[1:], strict=True)):
        by_policy = any(act.role == POLICY for act in acts)
        if by_policy and after.facts.get(config.errors, 0.0) > 0:
            spans = [span for span in segments[0].spans if span.drawn and span.turn == own]
            if len(segments) > 1 or len(acts) > 1 or acts[0].cut or not spans:
                return None
            begin, end = spans[0].begin, spans[-1].end
            return FailedCall(
                place, problem, episode, turn, begin, max(begin, end - config.redrawn)
            )
        own += by_policy
    return None


def step_tries(
    environment: Environment, role: "Role", calls: Sequence[FailedCall], config: StepTries
) -> list[list[StepTry]]:
    """Draw calls anew, and let the environment answer.

    What is drawn depends on the seed, the episode and the turn alone.

    Args:
        environment: What answers: one whose states are values.
        role: Of the policy, as it played the episodes.
        calls: What failed.
        config: What counts as failed.

    Returns:
        The tries of each call that were calls again; none where only one was.

    """
    from posttrain.learning.episodes.contract import answered

    tries = [(call, sample) for call in calls for sample in _drawn(role, call)]
    said = [_said(role, call, sample) for call, sample in tries]
    turns = [
        Said(
            call.episode.situations[call.turn].state,
            (act,),
            turn_seed(role.params.seed, f"{call.id}/{sample.index}", call.turn),
        )
        for (call, sample), act in zip(tries, said, strict=True)
    ]
    before = [call.episode.situations[: call.turn + 1] for call, _ in tries]
    after = answered(environment, turns, before) if turns else []
    found: dict[str, list[StepTry]] = {call.id: [] for call in calls}
    for (call, sample), act, now in zip(tries, said, after, strict=True):
        failed = bool(now.facts.get(config.errors, 0.0) > 0)
        if _is_call(now, failed=failed):
            key = call.episode.situations[call.turn].key
            found[call.id].append(StepTry(call, sample, act.text, failed or act.cut, key))
    return [each if len(each) > 1 else [] for each in found.values()]


def _is_call(after: Situation, *, failed: bool) -> bool:
    """An answer that ends the episode is no call; a broken environment tells of none."""
    return not after.failed and (failed or bool(after.asks))


def _drawn(role: "Role", call: FailedCall) -> "list[Sample]":
    from posttrain.learning.rollouts.engines.base import Prompt

    left = role.params.max_tokens - (call.cut - call.begin)
    params = replace(role.params, max_tokens=left)
    return role.sample([Prompt(call.id, call.kept)], params)


def _said(role: "Role", call: FailedCall, sample: "Sample") -> Act:
    from posttrain.learning.rollouts.engines.base import FinishReason

    text = sample.text
    if call.cut > call.begin:
        # By itself a part of a turn may end within a letter.
        ids = (*call.kept[call.begin :], *sample.token_ids)
        text = str(role.tokenizer.decode(ids, skip_special_tokens=True))
    return Act(POLICY, text, cut=sample.finish_reason is FinishReason.LENGTH)
