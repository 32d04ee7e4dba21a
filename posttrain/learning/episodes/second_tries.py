"""Second tries: what failed is tried again by a policy that is told something before it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from posttrain.data.contexts import PromptContext
from posttrain.data.plans import told_behind
from posttrain.learning.episodes.guidance.base import FailedTry, Guidance
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, SamplingParams
from posttrain.learning.rollouts.scoring import ScoredSample, make_prompts, sample_and_score_all
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.sampling import PlayingEngine
    from posttrain.learning.rewards.truncated import Truncated
    from posttrain.learning.rewards.verify import VerifierCache


def second_tries(
    engine: "PlayingEngine",
    tokenizer: "PreTrainedTokenizerBase",
    scored: Sequence[ScoredSample],
    guidance: Sequence[Guidance],
    params: SamplingParams,
    *,
    verify: "VerifierCache",
    truncated: "Truncated" = "counts",
) -> list[ScoredSample]:
    """Try once more what failed, each first try by the guidance that it gives rise to.

    What is drawn depends on the seed, the problem and the place of the first try in its group. An
    attempt that nobody could judge has not failed, and an answer is no second try of itself: the
    samples are of the plain problem, and what was told stands in none of them.

    Args:
        engine: Plays, with the problems of `scored`.
        tokenizer: Of the policy.
        scored: First tries.
        guidance: What is told, one line after the other.
        params: How the first tries were sampled.
        verify: Scores the samples.
        truncated: What becomes of a sample that was cut off.

    Returns:
        A sample for each first try that failed and of which something could be told, in order.

    Raises:
        UserError: Tries failed, and nothing could be told of any of them.

    """
    failed = [made for made in scored if made.score.correct is False]
    told = {
        _place(made): text for made in failed if (text := _told(engine, made, guidance, params))
    }
    if failed and not told:
        kinds = ", ".join(each.kind for each in guidance)
        raise UserError(
            f"guidance: {kinds} told nothing of {len(failed)} tries that failed in environment"
            f" {engine.config.environment.kind}; take a world with a script, whose first moves are"
            " a plan, or guidance: [feedback], or leave guidance out"
        )
    again = [made for made in failed if _place(made) in told]
    problems = [_with(made.problem, told[_place(made)]) for made in again]
    prompts = [
        Prompt(_place(made), prompt.token_ids)
        for made, prompt in zip(again, make_prompts(tokenizer, problems), strict=True)
    ]
    known: Mapping[str, Problem] = {
        prompt.id: problem for prompt, problem in zip(prompts, problems, strict=True)
    }
    second = sample_and_score_all(
        replace(engine, problems=known),
        problems,
        prompts,
        replace(params, num_samples=1, seed=purpose_seed(params.seed, "second")),
        verify=verify,
        report=lambda _done: None,
        truncated=truncated,
    )
    return [replace(tried, problem=made.problem) for made, tried in zip(again, second, strict=True)]


def _place(made: ScoredSample) -> str:
    return f"{made.problem.id}/{made.sample.index}"


def _told(
    engine: "PlayingEngine",
    made: ScoredSample,
    guidance: Sequence[Guidance],
    params: SamplingParams,
) -> str:
    if made.sample.finish_reason is FinishReason.FAILED:
        return ""
    played = made.sample.played
    said = (played.said if played else ()) or (("assistant", made.sample.text),)
    failed = FailedTry(made.problem, said, engine.config.environment)
    draw = Random(purpose_seed(params.seed, "guidance", _place(made)))
    return "\n".join(filter(None, (each.tell(failed, draw) for each in guidance)))


def _with(problem: "Problem", text: str) -> "Problem":
    context = PromptContext.read(problem.context)
    told = context.model_copy(update={"after": told_behind(context.after, text)})
    return replace(problem, context=told.written())
