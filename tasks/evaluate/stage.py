"""Sample every policy on the same held-out problems, and report what changed."""

from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posttrain.data.schemas import COMPLETIONS, Problem, completions_table
from posttrain.data.tables import write_table
from posttrain.learning.episodes.sampling import open_playing
from posttrain.learning.models.load import Policy, load_policy, load_tokenizer, weights_digest
from posttrain.learning.models.reward_head import RewardModel, load_reward_model
from posttrain.learning.models.tokenizer import check_same_tokenizer
from posttrain.learning.rollouts.limits import tell_no_room, tokens_for_stored
from posttrain.learning.rollouts.scoring import (
    make_prompts,
    read_problems,
    sample_and_score_all,
    share_unjudged,
    verifying,
)
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed
from tasks.evaluate.config import EvaluateConfig
from tasks.evaluate.report import Report, write_report
from tasks.evaluate.summary import summarize
from tasks.evaluate.tally import (
    Tally,
    asked_otherwise,
    judged_by_all,
    tally,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PORT = "policies."


def run(
    config: EvaluateConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Load each policy in its turn, sample, score; summarize."""
    problems = _problems(config, inputs)
    paths = _policies(inputs)
    tokenizer = _shared_tokenizer(paths)
    reward_model = _reward_model(inputs, tokenizer, context.device)
    reward_digest = None if reward_model is None else weights_digest(reward_model.model)
    # One limit for all policies, and one seed: what they draw is paired, so that their differences
    # vary less.
    limit = tokens_for_stored(config.max_tokens, *paths.values(), note=context.note)
    params = config.params(purpose_seed(context.seed, "evaluate"), max_tokens=limit)
    tallies, total = [], len(paths) * len(problems)
    unjudged: dict[str, float] = {}
    first: Policy | None = None
    with verifying(context.ray) as verify:
        for place, (name, path) in enumerate(paths.items()):
            # One at a time: several of a real size would not fit beside what draws.
            policy = load_policy(path, device=context.device)
            first = policy if first is None else first
            with open_playing(
                config,
                policy,
                problems,
                ray=context.ray,
                inputs=inputs,
                device=context.device,
            ) as engine:
                # By its own template: training may have given it one that its parent lacks.
                prompts = make_prompts(policy.tokenizer, problems)
                tell_no_room(
                    prompts,
                    engine.context_length,
                    of=f"policy '{name}'",
                    then="they count as cut off",
                    note=context.note,
                )
                score = partial(
                    sample_and_score_all,
                    verify=verify,
                    truncated=config.truncated,
                    report=partial(_progress, context, place * len(problems), total),
                )
                scored = score(engine, problems, prompts, params)
                asked = asked_otherwise(config, (policy, first), engine, (problems, params))
                varied = {variant: score(*each) for variant, each in asked.items()}
            unjudged[name] = share_unjudged(scored, of=f"policy '{name}'", note=context.note)
            tallied = tally(
                name,
                policy.model,
                scored,
                num_samples=config.num_samples,
                reward_model=reward_model,
                varied=varied,
            )
            tallies.append(tallied)
            del policy, engine, asked
            if not config.variants:
                first = None

    judged = judged_by_all(tallies)
    report = summarize(
        judged, config=config, limit=limit, seed=context.seed, reward_model=reward_digest
    )
    for sentence in chain.from_iterable(each.warnings for each in report.policies):
        context.note(sentence)
    write_report(report, outputs["report"])
    write_table(_completions(tallies), outputs["completions"], COMPLETIONS)
    lost = len(problems) - len(judged[0].problems)
    shares = {f"evaluate/{name}/unjudged": share for name, share in unjudged.items() if share}
    if config.environment.authors():
        shares |= _played(tallies)
    return _metrics(report) | shares | ({"evaluate/num_unjudged": float(lost)} if lost else {})


def _problems(config: EvaluateConfig, inputs: Mapping[str, Path]) -> list[Problem]:
    """The problems of the part that is evaluated."""
    read = read_problems(inputs["problems"], inputs.get("verifiers"))
    kept = [problem for problem in read if config.has(problem.id)]
    if not kept:
        raise UserError(f"evaluate: none of {len(read)} problems is {config.part}; hold out more")
    return kept


def _policies(inputs: Mapping[str, Path]) -> dict[str, Path]:
    """Folders of the policies by name, in the order of the ports."""
    paths = {
        role.removeprefix(_PORT): path for role, path in inputs.items() if role.startswith(_PORT)
    }
    if not paths:
        raise UserError("evaluate: no policy is connected; give evaluate.inputs.policies a mapping")
    return paths


def _shared_tokenizer(paths: Mapping[str, Path]) -> "PreTrainedTokenizerBase":
    """The tokenizer of all policies: they share it, and not a template."""
    tokenizers = {name: load_tokenizer(path) for name, path in paths.items()}
    first = next(iter(tokenizers))
    for name, tokenizer in tokenizers.items():
        where = f"evaluate: policies '{first}' and '{name}'"
        check_same_tokenizer(tokenizers[first], tokenizer, where=where)
    return tokenizers[first]


def _reward_model(
    inputs: Mapping[str, Path], tokenizer: "PreTrainedTokenizerBase", device: str
) -> RewardModel | None:
    """The one that is connected, if any; it reads the policies' tokens, or has its own."""
    if "reward_model" not in inputs:
        return None
    reward_model = load_reward_model(inputs["reward_model"], device=device)
    if not reward_model.own_tokenizer:
        check_same_tokenizer(tokenizer, reward_model.tokenizer, where="evaluate: the reward model")
    return reward_model


def _progress(context: StageContext, before: int, total: int, done: int) -> None:
    """Count attempted problems over all policies, `before` of them by earlier ones."""
    context.progress(before + done, total, unit="problem")


def _completions(tallies: list[Tally]) -> pl.DataFrame:
    """All samples of all policies, each named by the digest of its policy."""
    rows = [
        made.completion(tally.digest)
        for tally in tallies
        for group in tally.samples
        for made in group
    ]
    return completions_table(rows)


def _played(tallies: list[Tally]) -> dict[str, float]:
    """Means of the episodes of every policy."""
    return {
        f"evaluate/{tally.name}/{what}": value
        for tally in tallies
        for what, value in tally.episodes.named()
    }


def _metrics(report: Report) -> dict[str, float]:
    """pass@1, the largest pass@k and best-of-k of every policy, and what it gained."""
    metrics: dict[str, float] = {"evaluate/num_problems": float(report.num_problems)}
    for policy in report.policies:
        prefix = f"evaluate/{policy.name}"
        metrics[f"{prefix}/pass_at_1"] = policy.pass_at[0].value
        metrics[f"{prefix}/pass_at_{policy.pass_at[-1].k}"] = policy.pass_at[-1].value
        metrics[f"{prefix}/majority"] = policy.majority.value
        metrics[f"{prefix}/mean_length"] = policy.mean_length
        if policy.best_of:
            best = policy.best_of[-1]
            metrics[f"{prefix}/best_of_{best.k}"] = best.value
        for name, figures in policy.variants.items():
            metrics |= {f"{prefix}/{name}/{key}": each.value for key, each in figures.items()}
        for kind, graded in policy.strategies.items():
            metrics |= {f"{prefix}/{kind}_at_{each.k}": each.value for each in graded}
        if policy.change:
            metrics[f"{prefix}/gain"] = policy.change.difference.value
    return metrics
