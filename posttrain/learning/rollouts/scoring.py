"""A policy's answers to problems: prompts rendered, samples drawn, answers scored."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posttrain.data.contexts import in_context, turn_of
from posttrain.data.schemas import Completion, Problem
from posttrain.data.source_verifiers import read_scored_problems
from posttrain.data.templates import encode_prompts
from posttrain.learning.rewards.components.verifier import scores_of
from posttrain.learning.rewards.score import MANY_UNJUDGED, Score
from posttrain.learning.rewards.truncated import Truncated, judged
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    RolloutEngine,
    Sample,
    SamplingParams,
)
from posttrain.learning.rollouts.limits import leaves_room
from posttrain.stage.resources import RayResources

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ROWS_BETWEEN_REPORTS = 2048


@dataclass(frozen=True)
class ScoredSample:
    """One sample of one problem, with the score that the problem's verifier gave it."""

    problem: Problem
    sample: Sample
    score: Score

    @property
    def was_cut(self) -> bool:
        """True where it met the most tokens, or the most turns, before it was over."""
        return self.sample.finish_reason is FinishReason.LENGTH

    def completion(self, generator: str) -> Completion:
        """Return it as a row of a COMPLETIONS table; `generator` names the policy."""
        *between, (_, last) = self._said
        return Completion(
            problem=self.problem,
            text=last,
            generator=generator,
            score=self.score.value,
            verified=self.score.correct,
            reason=self.score.reason,
            between=tuple(turn_of(author, text) for author, text in between),
            read=self.sample.played.read if self.sample.played else (),
        )

    @property
    def _said(self) -> Sequence[tuple[str, str]]:
        """What was said behind the prompt; one answer where nothing answered it."""
        played = self.sample.played
        return (played.said if played else ()) or (("assistant", self.sample.text),)


def share_unjudged(
    scored: Sequence[ScoredSample], *, of: str, note: Callable[[str], None]
) -> float:
    """Count the samples that could not be judged, and say so where they are many.

    Args:
        scored: Samples, at least one.
        of: Who drew them, as a note names it.
        note: Takes a sentence for a person, where the share is above `MANY_UNJUDGED`.

    Returns:
        Their share of all samples.

    """
    reasons = Counter(made.score.reason for made in scored if made.score.value is None)
    share = reasons.total() / len(scored)
    if share > MANY_UNJUDGED:
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        note(
            f"{share:.0%} of the samples of {of} could not be judged ({told}); they are neither"
            " right nor wrong, and no figure counts them"
        )
    return share


@contextmanager
def verifying(ray: RayResources | None) -> Iterator[VerifierCache]:
    """Open a cache that remembers no answer yet; with `ray` its verifiers run on that cluster."""
    if ray is None:
        yield VerifierCache()
        return
    from posttrain.learning.rewards.on_ray import verifying_on_ray

    with verifying_on_ray(ray) as verify_there:
        yield VerifierCache(verify_there)


def read_problems(path: Path, verifiers: Path | None = None) -> list[Problem]:
    """Read problems with what scores them.

    Args:
        path: A PROBLEMS table.
        verifiers: The verifiers of their sources, where they are connected.

    Returns:
        The rows in the table's order.

    """
    return problems_of(read_scored_problems(path, verifiers))


def problems_of(frame: pl.DataFrame) -> list[Problem]:
    """Return rows of the PROBLEMS schema as records."""
    rows = frame.drop("id").iter_rows(named=True)
    return [Problem(**{**row, "parents": tuple(row["parents"])}) for row in rows]


def make_prompts(tokenizer: "PreTrainedTokenizerBase", problems: Sequence[Problem]) -> list[Prompt]:
    """Render the problems' prompts for the policy.

    Args:
        tokenizer: Of the policy, with its chat template.
        problems: Each gives one prompt.

    Returns:
        One prompt per problem, with the problem's id.

    """
    prompts = in_context(
        [problem.prompt for problem in problems], [problem.context for problem in problems]
    )
    encoded = encode_prompts(tokenizer, prompts)
    return [Prompt(p.id, tuple(ids)) for p, ids in zip(problems, encoded, strict=True)]


def sample_and_score(
    engine: RolloutEngine,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    params: SamplingParams,
    *,
    verify: VerifierCache,
    truncated: Truncated = "counts",
) -> list[ScoredSample]:
    """Draw `params.num_samples` samples of every problem, and score them all at once.

    Samples of a prompt that leaves no room for an answer are empty, and cut off.

    Args:
        engine: Draws the samples, by the policy that it holds.
        problems: What to answer.
        prompts: The problems' prompts as tokens, in the same order.
        params: How to sample, and with which seed.
        verify: Scores the samples.
        truncated: What becomes of a sample that was cut off at the limit of tokens.

    Returns:
        The samples, problem by problem.

    """
    samples = _sampled(engine, prompts, params)
    owners = [problem for problem in problems for _ in range(params.num_samples)]
    drawn = [*zip(owners, samples, strict=True)]
    return scored_samples(drawn, verify=verify, truncated=truncated)


def scored_samples(
    drawn: Sequence[tuple[Problem, Sample]],
    *,
    verify: VerifierCache,
    truncated: Truncated = "counts",
) -> list[ScoredSample]:
    """Score samples that were drawn, all at once.

    Args:
        drawn: Samples with their problems.
        verify: Scores them.
        truncated: What becomes of a sample that was cut off at the limit of tokens.

    Returns:
        The samples with their scores, in the order given.

    """
    answers = [(sample.text, owner) for owner, sample in drawn]
    played = [sample.played.earned if sample.played else () for _, sample in drawn]
    scores = scores_of(answers, played, verify)
    return [
        ScoredSample(owner, sample, _judged(score, sample.finish_reason, truncated))
        for (owner, sample), score in zip(drawn, scores, strict=True)
    ]


def _judged(score: Score, ended: FinishReason, truncated: Truncated) -> Score:
    if ended is FinishReason.FAILED:
        return Score(None, "environment_failed")
    return judged(score, truncated=ended is FinishReason.LENGTH, rule=truncated)


def _sampled(
    engine: RolloutEngine, prompts: Sequence[Prompt], params: SamplingParams
) -> list[Sample]:
    """What the engine draws; nothing for the prompts that fill the context, which it refuses."""
    asked = [prompt for prompt in prompts if leaves_room(prompt, engine.context_length)]
    drawn = iter(engine.sample(asked, params) if asked else ())
    answered = {prompt.id for prompt in asked}
    return [
        next(drawn)
        if prompt.id in answered
        else Sample(prompt.id, index, (), (), "", FinishReason.LENGTH, policy_version=0)
        for prompt in prompts
        for index in range(params.num_samples)
    ]


def sample_and_score_all(
    engine: RolloutEngine,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    params: SamplingParams,
    *,
    verify: VerifierCache,
    report: Callable[[int], None],
    truncated: Truncated = "counts",
) -> list[ScoredSample]:
    """Do as `sample_and_score` does, in portions of similar length.

    Args:
        engine: Draws the samples, by the policy that it holds.
        problems: What to answer.
        prompts: The problems' prompts as tokens, in the same order.
        params: How to sample, and with which seed.
        verify: Scores the samples.
        report: Called with the number of problems that are done, after every portion.
        truncated: What becomes of a sample that was cut off at the limit of tokens.

    Returns:
        The samples, problem by problem, in the order of the problems.

    """
    portion = max(1, _ROWS_BETWEEN_REPORTS // params.num_samples)
    ordered = sorted(range(len(problems)), key=lambda index: len(prompts[index].token_ids))
    found: dict[int, list[ScoredSample]] = {}
    for begin in range(0, len(ordered), portion):
        chosen = ordered[begin : begin + portion]
        made = sample_and_score(
            engine,
            [problems[index] for index in chosen],
            [prompts[index] for index in chosen],
            params,
            verify=verify,
            truncated=truncated,
        )
        for place, index in enumerate(chosen):
            found[index] = made[place * params.num_samples : (place + 1) * params.num_samples]
        report(len(found))
    return [made for index in range(len(problems)) for made in found[index]]
