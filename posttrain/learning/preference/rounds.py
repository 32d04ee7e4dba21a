"""On-policy rounds: sample from the policy as it is, judge, build pairs, train, and again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from posttrain.data.pairs import build_pairs
from posttrain.data.schemas import IDENTITY, PAIRS, Problem, completions_table, row_id, with_row_ids
from posttrain.data.tables import read_table, write_table
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import weights_digest
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.preference.training import learn
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rollouts.engines.base import Sampler, SamplingParams
from posttrain.learning.rollouts.engines.config import open_sampler
from posttrain.learning.rollouts.scoring import make_prompts, sample_and_score_all
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.pairwise import with_tokens
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Progress, run_identity
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy


@dataclass
class RoundLog:
    """What each finished round was like, and the steps made so far; part of a checkpoint."""

    rounds: list[dict[str, float]] = field(default_factory=list)
    num_steps: int = 0

    def state_dict(self) -> dict[str, Any]:
        """All rounds so far."""
        return {"rounds": self.rounds, "num_steps": self.num_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from an earlier attempt."""
        self.rounds, self.num_steps = list(state["rounds"]), int(state["num_steps"])


def run_rounds(
    trainable: Trainable,
    policy: "Policy",
    problems: Sequence[Problem],
    *,
    initial: "PreTrainedModel",
    config: PreferenceConfig,
    context: StageContext,
    curve: Curve,
) -> tuple[RoundLog, pl.DataFrame]:
    """All rounds, from the one that a killed attempt was in; returns their log and their pairs."""
    if len(problems) < 2:
        raise UserError(
            "preference: rounds sample problems whose pairs are not held out, and fewer than two"
            " are left; connect more problems, or lower pairs.heldout_fraction"
        )
    log, tables = RoundLog(), [_no_pairs()]
    asked = sha256_of("".join(problem.id for problem in problems))
    weights = weights_digest(policy.model)
    identity = run_identity(config, seed=context.seed, weights=weights, problems=asked)
    progress = Progress(
        trainable.parts() | {"curve": curve, "rounds": log},
        Checkpointer(
            context.scratch / "rounds", every=1, keep=1, identity=identity, note=context.note
        ),
    )
    done = progress.restore(context.device)
    with open_sampler(config.sampling.engine, policy) as sampler:
        for number in range(1, config.rounds + 1):
            inner = replace(
                context,
                scratch=context.scratch / f"round-{number:03d}",
                seed=purpose_seed(context.seed, "round", number),
            )
            if number <= done:
                tables.append(read_table(inner.scratch / "pairs.parquet", PAIRS))
                continue
            reference = initial if config.reference == "initial" else policy.model
            sampler.update(number)
            pairs, facts = _round_pairs(sampler, policy, problems, config=config, context=inner)
            tables.append(pairs.select(list(PAIRS)))
            curve.begin_after(log.num_steps)
            if len(pairs):
                taught = _with_samples(
                    pairs, problems, policy, reference, config=config, context=inner
                )
                log.num_steps += learn(
                    trainable,
                    policy,
                    taught,
                    reference=reference,
                    config=config,
                    context=inner,
                    curve=curve,
                )
            else:
                context.note(f"round {number} gave no pair: no problem was both solved and missed")
            log.rounds.append(facts)
            progress.save(number)
    return log, pl.concat(tables)


def _round_pairs(
    sampler: Sampler,
    policy: "Policy",
    problems: Sequence[Problem],
    *,
    config: PreferenceConfig,
    context: StageContext,
) -> tuple[pl.DataFrame, dict[str, float]]:
    """Pairs of this round's samples, with the tokens that were drawn: text has other spellings.

    Everything random follows from the round's seed.
    """
    drawn = sorted(problems, key=lambda p: row_id("round", context.seed, p.id))
    drawn = drawn[: config.sampling.problems]
    made = sample_and_score_all(
        sampler,
        drawn,
        make_prompts(policy.tokenizer, drawn),
        _params(config, seed=purpose_seed(context.seed, "samples")),
        verify=VerifierCache(),
        report=lambda _done: None,
    )
    generator = weights_digest(policy.model)
    samples = completions_table([each.completion(generator) for each in made])
    samples = with_row_ids(samples, IDENTITY["completions"])
    pairs = build_pairs(
        samples,
        pairs_per_problem=config.pairs.per_problem,
        heldout_fraction=config.pairs.heldout_fraction,
        seed=context.seed,
        max_pairs=config.pairs.limit,
        builder=config.pairs.builder,
    ).with_columns(split=pl.lit("train"))
    context.scratch.mkdir(parents=True, exist_ok=True)
    write_table(pairs, context.scratch / "pairs.parquet", PAIRS)
    judged = [each.score.correct for each in made if each.score.correct is not None]
    tokens = {(each.problem.id, each.sample.text): each.sample.token_ids for each in made}
    for side in ("chosen", "rejected"):
        texts = zip(pairs["problem_id"], pairs[side], strict=True)
        pairs = with_tokens(pairs, side, [tokens[each] for each in texts])
    return pairs, {
        "num_pairs": float(len(pairs)),
        "num_samples": float(len(made)),
        "solve_rate": sum(judged) / len(judged) if judged else 0.0,
    }


def _with_samples(
    pairs: pl.DataFrame,
    problems: Sequence[Problem],
    policy: "Policy",
    reference: "PreTrainedModel",
    *,
    config: PreferenceConfig,
    context: StageContext,
) -> pl.DataFrame:
    """For optimism: each pair with a sample of the reference for the same problem."""
    if not config.algorithm.optimism_coefficient:
        return pairs
    wanted = set(pairs["problem_id"])
    asked = [problem for problem in problems if problem.id in wanted]
    params = _params(config, seed=purpose_seed(context.seed, "reference"))
    prompts, once = make_prompts(policy.tokenizer, asked), replace(params, num_samples=1)
    with open_sampler(config.sampling.engine, replace(policy, model=reference)) as sampler:
        drawn = {sample.prompt_id: sample for sample in sampler.sample(prompts, once)}
    samples = [drawn[name] for name in pairs["problem_id"]]
    pairs = pairs.with_columns(pl.Series("sampled", [sample.text for sample in samples]))
    return with_tokens(pairs, "sampled", [sample.token_ids for sample in samples])


def _params(config: PreferenceConfig, *, seed: int) -> SamplingParams:
    return SamplingParams(
        max_tokens=config.sampling.max_tokens,
        temperature=config.sampling.temperature,
        num_samples=config.sampling.num_samples,
        seed=seed,
    )


def _no_pairs() -> pl.DataFrame:
    return pl.DataFrame(schema=PAIRS)
