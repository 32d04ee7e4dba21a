"""A policy's answers to problems: prompts rendered, samples drawn, answers scored."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posttrain.data.schemas import PROBLEMS, Completion, Problem
from posttrain.data.tables import read_table
from posttrain.data.templates import encode_prompts
from posttrain.learning.rewards.components.verifier import VerifierCache
from posttrain.learning.rewards.score import Score
from posttrain.learning.rollouts.engines.base import Prompt, RolloutEngine, Sample, SamplingParams
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

    def completion(self, generator: str) -> Completion:
        """Return it as a row of a COMPLETIONS table; `generator` names the policy."""
        return Completion(
            problem=self.problem,
            text=self.sample.text,
            generator=generator,
            score=self.score.value,
            verified=self.score.correct,
            reason=self.score.reason,
        )


@contextmanager
def verifying(ray: RayResources | None) -> Iterator[VerifierCache]:
    """Open a cache that remembers no answer yet; with `ray` its verifiers run on that cluster."""
    if ray is None:
        yield VerifierCache()
        return
    from posttrain.learning.rewards.on_ray import verifying_on_ray

    with verifying_on_ray(ray) as verify_there:
        yield VerifierCache(verify_there)


def read_problems(path: Path) -> list[Problem]:
    """Read the rows of a PROBLEMS table, in its order."""
    return problems_of(read_table(path, PROBLEMS))


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
    encoded = encode_prompts(tokenizer, [problem.prompt for problem in problems])
    return [Prompt(p.id, tuple(ids)) for p, ids in zip(problems, encoded, strict=True)]


def sample_and_score(
    engine: RolloutEngine,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    params: SamplingParams,
    *,
    verify: VerifierCache,
) -> list[ScoredSample]:
    """Draw `params.num_samples` samples of every problem, and score them all at once.

    Args:
        engine: Draws the samples, by the policy that it holds.
        problems: What to answer.
        prompts: The problems' prompts as tokens, in the same order.
        params: How to sample, and with which seed.
        verify: Scores the samples.

    Returns:
        The samples, problem by problem.

    """
    samples = engine.sample(prompts, params)
    owners = [problem for problem in problems for _ in range(params.num_samples)]
    scores = verify([(sample.text, owner) for sample, owner in zip(samples, owners, strict=True)])
    return [ScoredSample(*made) for made in zip(owners, samples, scores, strict=True)]


def sample_and_score_all(
    engine: RolloutEngine,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    params: SamplingParams,
    *,
    verify: VerifierCache,
    report: Callable[[int], None],
) -> list[ScoredSample]:
    """Do as `sample_and_score` does, in portions of similar length.

    Args:
        engine: Draws the samples, by the policy that it holds.
        problems: What to answer.
        prompts: The problems' prompts as tokens, in the same order.
        params: How to sample, and with which seed.
        verify: Scores the samples.
        report: Called with the number of problems that are done, after every portion.

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
        )
        for place, index in enumerate(chosen):
            found[index] = made[place * params.num_samples : (place + 1) * params.num_samples]
        report(len(found))
    return [made for index in range(len(problems)) for made in found[index]]
