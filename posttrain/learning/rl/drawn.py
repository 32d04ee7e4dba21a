"""Rollouts of what an engine drew, or an episode came to: they have earned nothing yet."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.asked import Speaker
from posttrain.learning.episodes.drawing import Role
from posttrain.learning.episodes.environments.base import POLICY, Environment, role_of
from posttrain.learning.episodes.episode import Episode, Span
from posttrain.learning.episodes.step_tries import (
    STEP_ROLE,
    StepTries,
    StepTry,
    failed_calls,
    step_tries,
)
from posttrain.learning.rl.rollout import Group, Rollout, grouped
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    RolloutEngine,
    Sample,
    SamplingParams,
)
from posttrain.learning.rollouts.engines.beginnings import AnswerStart, drawn_behind, whole_text
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ENDS: Mapping[FinishReason, str] = {FinishReason.STOP: "over", FinishReason.LENGTH: "tokens"}
"""How an answer ended, as rollouts say it."""


def as_groups(
    samples: Sequence[Sample],
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    *,
    first: int = 0,
) -> list[Group]:
    """Turn samples into rollouts that have earned nothing yet.

    Args:
        samples: As many of each prompt, adjacent.
        problems: The problems of the prompts, in the same order.
        prompts: What was sampled from.
        first: Number of the first group.

    Returns:
        One group per prompt.

    Raises:
        UserError: A sample has no tokens, or not one finite log-probability for each.

    """
    size = len(samples) // len(prompts)
    for sample in samples:
        check_drawn(sample.prompt_id, len(sample.token_ids), sample.logprobs)
    rollouts = [
        Rollout(
            problem_id=problems[index // size].id,
            source=problems[index // size].source,
            group=first + index // size,
            episode=f"{sample.prompt_id}/{index % size}",
            token_ids=prompts[index // size].token_ids + sample.token_ids,
            spans=read_and_said(prompts[index // size].token_ids, sample.token_ids),
            logprobs=sample.logprobs,
            versions=(sample.policy_version,),
            end=ENDS[sample.finish_reason],
            text=sample.text,
        )
        for index, sample in enumerate(samples)
    ]
    return grouped(rollouts)


def gone_on(
    engine: RolloutEngine,
    tokenizer: "PreTrainedTokenizerBase",
    begun: Sequence[tuple[Problem, AnswerStart]],
    params: SamplingParams,
) -> list[Rollout]:
    """Draw once behind each beginning of an answer.

    Args:
        engine: Draws.
        tokenizer: Its own.
        begun: What is gone on from, and the problem that it answers.
        params: How to sample; its `max_tokens` are those of a whole answer.

    Returns:
        A rollout for each, which read its beginning; its text is that of the whole answer.

    Raises:
        UserError: A sample has no tokens, or not one finite log-probability for each.

    """
    if not begun:
        return []
    starts = [start for _, start in begun]
    drawn = drawn_behind(engine, starts, replace(params, num_samples=1))
    ends = [sample for group in drawn for sample in group]
    read = [Prompt(each.id, (*each.prompt, *each.tokens)) for each in starts]
    groups = as_groups(ends, [problem for problem, _ in begun], read)
    return [
        row._replace(text=whole_text(tokenizer, start.tokens, end.token_ids, end.text))
        for (row,), start, end in zip(groups, starts, ends, strict=True)
    ]


def of_episode(
    episode: Episode,
    problem: Problem,
    *,
    group: int,
    version: int,
    learning: Sequence[str] = (POLICY,),
    within: Literal["problem", "episode"] = "problem",
) -> list[Rollout]:
    """Turn what the policy read and drew in an episode into rollouts that have earned nothing yet.

    Args:
        episode: That is over.
        problem: What it was about.
        group: Number of its group.
        version: Step whose policy would have spoken, where the environment broke before it could.
        learning: Roles that the trained policy plays, by name or by what stands before a colon.
        within: Whose rollouts are compared: those of a role in all episodes of the problem, or
            those of the roles of one name in the episode itself, such as several solvers', where
            there are several.

    Returns:
        A rollout for each sequence of each of these roles that drew something, and of the policy
        also where its environment broke at once. Its text is what was said in it, a line a turn.

    Raises:
        UserError: The policy drew no token, or not one finite log-probability for each.

    """
    names = dict.fromkeys((POLICY, *(each.role for each in episode.segments)))
    roles = [(name, known) for name in names if (known := role_of(name, learning)) is not None]
    rows: list[Rollout] = []
    for name, known in roles:
        # A role that is alone in the episode has nobody to be compared with there.
        several = sum(other == known for _, other in roles) > 1
        peers = f"{known}@{episode.id}" if within == "episode" and several else known
        if len(learning) == 1 and not several:
            peers = ""
        rows += _of_role(episode, problem, name, group=group, version=version, peers=peers)
    return rows


def _of_role(
    episode: Episode, problem: Problem, role: str, *, group: int, version: int, peers: str
) -> Iterator[Rollout]:
    """A rollout for each sequence that a role drew in."""
    shared = episode.shared.get(role, 0)
    turns = list(zip(episode.earned(role), episode.keys(role), strict=True))
    for place, segment in enumerate(episode.of(role)):
        drawn = sum(span.end - span.begin for span in segment.spans if span.drawn)
        if not drawn and (place or role != POLICY):
            # It was begun, and the episode ended before the role came to speak in it.
            continue
        if segment.versions:
            check_drawn(problem.id, drawn, segment.logprobs)
        before, shared = min(shared, drawn), max(0, shared - drawn)
        own, turns = turns[: len(segment.said)], turns[len(segment.said) :]
        if segment.summed_up:
            # Where it was summed up somebody was to act, or could not any more: a place of its own.
            key = turns[0][1] if turns else episode.situations[-1].key
            own.append((0.0, f"~{key}" if key else ""))
        yield Rollout(
            problem_id=problem.id,
            source=problem.source,
            group=group,
            episode=episode.id,
            token_ids=segment.token_ids,
            spans=segment.spans,
            logprobs=segment.logprobs,
            versions=segment.versions or (version,),
            end=episode.end,
            text="\n".join(segment.said),
            turns=() if episode.is_one_answer else tuple(own),
            read=episode.read,
            shared=before,
            facts=tuple(sorted(episode.facts().items())),
            role=role,
            segment=place,
            peers=peers,
        )


def add_step_tries(
    made: Sequence[Group],
    problems: Sequence[Problem],
    played: Sequence[Sequence[Episode]],
    speakers: Mapping[str, Speaker],
    environment: Environment,
    config: StepTries,
) -> None:
    """Draw calls that failed again, and put what came of them behind their problems' rows.

    Args:
        made: The groups of the episodes, by problem; they grow.
        problems: Their problems.
        played: The episodes.
        speakers: Who played them, `policy` at least.
        environment: What answered.
        config: Which calls are drawn again, and how much of them.

    """
    policy = speakers[POLICY]
    assert isinstance(policy, Role)
    calls = failed_calls(played, problems, config, seed=policy.params.seed)
    tries = step_tries(environment, policy, calls, config)
    for call, each in zip(calls, tries, strict=True):
        made[call.place].extend(of_step_tries(each, group=made[call.place][0].group))


def of_step_tries(tries: Sequence[StepTry], *, group: int) -> list[Rollout]:
    """Turn calls that were drawn again into rollouts that have earned nothing yet.

    Args:
        tries: Of one call.
        group: Number of the group of its problem.

    Returns:
        A rollout for each, of the role `step`: what they share was read, and they are compared with
        each other.

    """
    rows: list[Rollout] = []
    for each in tries:
        call, sample = each.call, each.sample
        check_drawn(call.problem.id, len(sample.token_ids), sample.logprobs)
        rows.append(
            Rollout(
                problem_id=call.problem.id,
                source=call.problem.source,
                group=group,
                episode=f"{call.id}/{sample.index}",
                token_ids=call.kept + sample.token_ids,
                spans=read_and_said(call.kept, sample.token_ids),
                logprobs=sample.logprobs,
                versions=(sample.policy_version,),
                end=ENDS[sample.finish_reason],
                text=each.text,
                turns=((float(not each.failed), each.key),),
                read=call.episode.read,
                facts=(("failed", float(each.failed)),),
                role=STEP_ROLE,
                peers=call.id,
            )
        )
    return rows


def read_and_said(prompt: Sequence[int], answer: Sequence[int]) -> tuple[Span, ...]:
    """Return the spans of an answer of one turn.

    Args:
        prompt: Tokens that were read.
        answer: Tokens that were drawn behind them.

    """
    begin, end = len(prompt), len(prompt) + len(answer)
    return (Span(0, begin, 0, drawn=False), Span(begin, end, 0, drawn=True))


def check_drawn(problem: str, num_tokens: int, logprobs: Sequence[float]) -> None:
    """Refuse what no learner could use, whichever engine drew it.

    Args:
        problem: Id of the problem that it answers.
        num_tokens: Drawn tokens.
        logprobs: Of the drawn tokens, in nats.

    Raises:
        UserError: There are no tokens, or not one finite log-probability for each.

    """
    if not num_tokens or num_tokens != len(logprobs):
        raise UserError(
            f"rl: a sample of problem {problem} has {num_tokens} tokens and {len(logprobs)}"
            " log-probabilities; a learner needs one for each token, and at least one token: check"
            " the engine's settings"
        )
    if not math.isfinite(math.fsum(logprobs)):
        raise UserError(
            f"rl: a sample of problem {problem} has a log-probability that is not finite; the"
            " engine drew what its policy excludes: check its number format"
        )
