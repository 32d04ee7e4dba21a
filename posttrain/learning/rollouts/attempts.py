"""A policy's attempts at problems: prompts rendered, samples drawn, answers judged."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posttrain.data.schemas import PROBLEMS, Completion, Problem
from posttrain.data.tables import read_table
from posttrain.data.templates import encode_prompts
from posttrain.learning.rewards import Verdict, verify_all
from posttrain.learning.rollouts.engines.base import Prompt, Sample, Sampler, SamplingParams
from posttrain.stage.resources import RayResources

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ROWS_BETWEEN_REPORTS = 2048


@dataclass(frozen=True)
class Attempt:
    """One sample of one problem, with the verdict of the problem's verifier."""

    problem: Problem
    sample: Sample
    verdict: Verdict

    def completion(self, generator: str) -> Completion:
        """As a row of a COMPLETIONS table; `generator` names the policy."""
        return Completion(
            problem=self.problem,
            text=self.sample.text,
            generator=generator,
            score=self.verdict.score,
            verified=self.verdict.correct,
            reason=self.verdict.reason,
        )


@dataclass(frozen=True)
class Judge:
    """Verifies answers, the same answer to the same problem only once."""

    known: dict[tuple[str, Problem], Verdict] = field(default_factory=dict)
    verify: Callable[[Sequence[tuple[str, Problem]]], list[Verdict]] = verify_all

    def __call__(self, answers: Sequence[tuple[str, Problem]]) -> list[Verdict]:
        """The verdict of each problem's own verifier; models that judge are asked all at once."""
        new = [answer for answer in dict.fromkeys(answers) if answer not in self.known]
        self.known.update(zip(new, self.verify(new), strict=True))
        return [self.known[answer] for answer in answers]


@contextmanager
def judging(ray: RayResources | None) -> Iterator[Judge]:
    """A judge that knows no answer yet; with `ray` its verifiers run on that cluster."""
    if ray is None:
        yield Judge()
        return
    from posttrain.learning.rewards.remote import verifying

    with verifying(ray) as verify:
        yield Judge(verify=verify)


def read_problems(path: Path) -> list[Problem]:
    """The rows of a PROBLEMS table, in its order."""
    return problems_of(read_table(path, PROBLEMS))


def problems_of(frame: pl.DataFrame) -> list[Problem]:
    """Rows of the PROBLEMS schema as records."""
    rows = frame.drop("id").iter_rows(named=True)
    return [Problem(**{**row, "parents": tuple(row["parents"])}) for row in rows]


def make_prompts(tokenizer: "PreTrainedTokenizerBase", problems: Sequence[Problem]) -> list[Prompt]:
    """The problems' prompts as the policy reads them; a prompt has the id of its problem."""
    encoded = encode_prompts(tokenizer, [problem.prompt for problem in problems])
    return [Prompt(p.id, tuple(ids)) for p, ids in zip(problems, encoded, strict=True)]


def attempt(
    sampler: Sampler,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    params: SamplingParams,
    *,
    judge: Judge,
) -> list[Attempt]:
    """`params.num_samples` attempts at every problem, problem by problem."""
    samples = sampler.sample(prompts, params)
    owners = [problem for problem in problems for _ in range(params.num_samples)]
    verdicts = judge([(sample.text, owner) for sample, owner in zip(samples, owners, strict=True)])
    return [
        Attempt(problem, sample, verdict)
        for problem, sample, verdict in zip(owners, samples, verdicts, strict=True)
    ]


def attempt_all(
    sampler: Sampler,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    params: SamplingParams,
    *,
    judge: Judge,
    report: Callable[[int], None],
) -> list[Attempt]:
    """As `attempt`, in portions of similar length; `report` hears how many problems are done."""
    portion = max(1, _ROWS_BETWEEN_REPORTS // params.num_samples)
    ordered = sorted(range(len(problems)), key=lambda index: len(prompts[index].token_ids))
    found: dict[int, list[Attempt]] = {}
    for begin in range(0, len(ordered), portion):
        chosen = ordered[begin : begin + portion]
        made = attempt(
            sampler,
            [problems[index] for index in chosen],
            [prompts[index] for index in chosen],
            params,
            judge=judge,
        )
        for place, index in enumerate(chosen):
            found[index] = made[place * params.num_samples : (place + 1) * params.num_samples]
        report(len(found))
    return [made for index in range(len(problems)) for made in found[index]]
