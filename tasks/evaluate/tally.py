"""What one policy did on the problems, as tables of problems by samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.data.contexts import in_context
from posttrain.data.schemas import Problem
from posttrain.learning.episodes.figures import EpisodeFigures, figures_of
from posttrain.learning.models.load import Policy, weights_digest
from posttrain.learning.models.record import trained_from
from posttrain.learning.models.reward_head import RewardModel
from posttrain.learning.rewards.verify import stated_answers
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt
from posttrain.learning.rollouts.scoring import ScoredSample, make_prompts
from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import DecodingBench
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.rollouts.engines.base import RolloutEngine, SamplingParams
    from tasks.evaluate.config import EvaluateConfig


@dataclass(frozen=True)
class Tally:
    """The scored samples of one policy, `num_samples` per problem in the order of the problems."""

    name: str
    digest: str
    problems: tuple[Problem, ...]
    samples: tuple[tuple[ScoredSample, ...], ...]
    correct_PN: Tensor
    """1 where a sample was accepted in full, else 0; float64."""
    rewards_PN: Tensor | None
    """The reward model's values, where there is one; float64."""
    episodes: EpisodeFigures
    """Of all samples, those of problems that were left out among them."""
    ancestors: tuple[str, ...] = ()
    """Digests of the weights that it was trained from, the last ones last."""
    varied: Mapping[str, DrawnSamples] = field(default_factory=dict)
    """What it answered where a variant asked otherwise, by the variant's name."""

    def judged(self) -> list[bool]:
        """Return of each problem whether all of its samples could be judged."""
        return [all(made.score.value is not None for made in group) for group in self.samples]

    def of(self, kept: Sequence[bool]) -> "Tally":
        """Return the tally of the problems that are kept."""
        kept_P = torch.tensor(kept)
        return replace(
            self,
            problems=tuple(compress(self.problems, kept)),
            samples=tuple(compress(self.samples, kept)),
            correct_PN=self.correct_PN[kept_P],
            rewards_PN=None if self.rewards_PN is None else self.rewards_PN[kept_P],
            varied={name: _of(each, kept) for name, each in self.varied.items()},
        )

    @property
    def num_samples(self) -> int:
        """Samples per problem."""
        return self.correct_PN.shape[1]

    @property
    def solve_rate_P(self) -> Tensor:
        """Share of each problem's samples that were right, `[P]`."""
        return self.correct_PN.mean(-1)

    def drawn(self) -> DrawnSamples:
        """Return what inference strategies work with."""
        return replace(drawn_of(self.samples), rewards_PN=self.rewards_PN)

    def mean_length(self) -> float:
        """Tokens per sample, the end token included."""
        lengths = [len(made.sample.token_ids) for group in self.samples for made in group]
        return sum(lengths) / len(lengths)

    def truncation_rate(self) -> float:
        """Share of samples that met the token limit."""
        reasons = [made.sample.finish_reason for group in self.samples for made in group]
        return sum(reason is FinishReason.LENGTH for reason in reasons) / len(reasons)


def prompts_as_posed(
    policy: Policy, posed: Sequence[Problem], problems: Sequence[Problem]
) -> list[Prompt]:
    """Write the prompts of a variant, with the randomness of the problems as they are."""
    prompts = make_prompts(policy.tokenizer, posed)
    return [
        Prompt(problem.id, prompt.token_ids)
        for problem, prompt in zip(problems, prompts, strict=True)
    ]


def asked_otherwise(
    config: "EvaluateConfig",
    policies: tuple[Policy, Policy],
    engine: "RolloutEngine",
    plain: "tuple[Sequence[Problem], SamplingParams]",
) -> "dict[str, tuple[RolloutEngine, Sequence[Problem], list[Prompt], SamplingParams]]":
    """Let every variant say what it asks and by what it is answered.

    Args:
        config: Names the variants.
        policies: The one that is graded, and the first one of the evaluation.
        engine: The evaluation's own, of the graded one.
        plain: The problems as they stand, and how they are sampled.

    Returns:
        Engine, problems, prompts and parameters, by the names of the variants that draw anew.

    """
    problems, params = plain
    bench = DecodingBench(*policies, config.batch_size, problems)
    found = {}
    for name, variant in config.variants.items():
        posed, own = variant.posed(problems), variant.drawn_by(bench)
        if posed is not None or own is not None:
            asked = problems if posed is None else posed
            prompts = prompts_as_posed(bench.policy, asked, problems)
            found[name] = (own or engine, asked, prompts, variant.params(params))
    return found


def by_problem(
    samples: Sequence[ScoredSample], num_samples: int
) -> tuple[tuple[ScoredSample, ...], ...]:
    """Cut samples that stand problem by problem into those of each problem."""
    return tuple(
        tuple(samples[begin : begin + num_samples]) for begin in range(0, len(samples), num_samples)
    )


def tally(
    name: str,
    model: "PreTrainedModel",
    samples: Sequence[ScoredSample],
    *,
    num_samples: int,
    reward_model: RewardModel | None,
    varied: Mapping[str, Sequence[ScoredSample]] | None = None,
) -> Tally:
    """Arrange a policy's samples by problem, and score them where there is a reward model."""
    grouped = by_problem(samples, num_samples)
    rewards_PN = None
    if reward_model is not None:
        rewards_PN = torch.tensor(_rewards(reward_model, samples), dtype=torch.float64)
        rewards_PN = rewards_PN.view(-1, num_samples)
    return Tally(
        name=name,
        digest=weights_digest(model),
        problems=tuple(group[0].problem for group in grouped),
        samples=grouped,
        correct_PN=_correct(grouped),
        rewards_PN=rewards_PN,
        varied={
            # A variant may draw another number of samples.
            name: drawn_of(by_problem(each, len(each) // len(grouped)))
            for name, each in (varied or {}).items()
        },
        episodes=figures_of(samples),
        ancestors=trained_from(model),
    )


def drawn_of(groups: Sequence[Sequence[ScoredSample]]) -> DrawnSamples:
    """Arrange scored samples, problem by problem, for strategies and variants.

    What could not be judged is not right.
    """
    lengths = [[float(len(made.sample.token_ids)) for made in group] for group in groups]
    answers = [
        stated_answers([made.sample.text for made in group], group[0].problem) for group in groups
    ]
    return DrawnSamples(
        answers,
        _correct(groups),
        lengths_PN=torch.tensor(lengths, dtype=torch.float64),
    )


def _correct(groups: Sequence[Sequence[ScoredSample]]) -> Tensor:
    correct = [[float(bool(made.score.correct)) for made in group] for group in groups]
    return torch.tensor(correct, dtype=torch.float64)


def _of(drawn: DrawnSamples, kept: Sequence[bool]) -> DrawnSamples:
    kept_P = torch.tensor(kept)
    lengths_PN = drawn.lengths_PN
    return DrawnSamples(
        [*compress(drawn.answers, kept)],
        drawn.correct_PN[kept_P],
        lengths_PN=None if lengths_PN is None else lengths_PN[kept_P],
    )


def judged_by_all(tallies: Sequence[Tally]) -> list[Tally]:
    """Leave out the problems of which a sample of any policy could not be judged.

    Such a sample is neither right nor wrong, and policies are compared on the same problems.
    """
    kept = [all(each) for each in zip(*(tally.judged() for tally in tallies), strict=True)]
    if all(kept):
        return list(tallies)
    if not any(kept):
        raise UserError(
            "evaluate: every problem has a sample that could not be judged, so nothing can be"
            " said of the policies; look at the judge's template and pattern"
        )
    return [tally.of(kept) for tally in tallies]


def _rewards(reward_model: RewardModel, samples: Sequence[ScoredSample]) -> list[float]:
    """Reward of every sample; equal texts are scored once, an empty one ranks last."""

    def answer(made: ScoredSample) -> tuple[str, str, str]:
        return made.problem.prompt, made.sample.text, made.problem.context

    ordered = sorted({answer(made) for made in samples if made.sample.text})
    prompts = in_context([prompt for prompt, _, _ in ordered], [each for _, _, each in ordered])
    scores = reward_model.score(prompts, [text for _, text, _ in ordered]) if ordered else []
    known = dict(zip(ordered, scores, strict=True))
    return [known.get(answer(made), float("-inf")) for made in samples]
