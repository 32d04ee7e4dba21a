"""Optimize a policy on preference pairs, offline or in on-policy rounds, and grade it."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import polars as pl

from posttrain.data.pair_inputs import read_pair_inputs
from posttrain.data.schemas import COMPLETIONS, PAIRS
from posttrain.data.source_verifiers import read_scored_problems
from posttrain.data.tables import read_table, write_table
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.preference.frozen_policy import FrozenPolicy, initial_policy
from posttrain.learning.preference.heldout import keep_values, report_of
from posttrain.learning.preference.lone_answers import count_lone, encode_opposed, opposed
from posttrain.learning.preference.rounds import RoundLog, RoundQuestions, asking, run_rounds
from posttrain.learning.preference.training import PairReference, learn
from posttrain.learning.rollouts.scoring import problems_of
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.prepare import (
    check_quiet,
    load_to_train,
    prepare_for_training,
    without_dropout,
)
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError


def run(
    config: PreferenceConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Take or build pairs, train on one split, grade on the other, save."""
    pairs = _given_pairs(config, inputs, context)
    load = partial(load_to_train, inputs["policy"], config.learner, device=context.device)
    policy = load(processes=context.processes)
    heldout = pairs.filter(split="heldout")
    both_sided = opposed(pairs, config.algorithm, where="preference")
    graded = both_sided.filter(split="heldout")
    options = {"config": config, "context": context, "where": "preference", "turns": config.turns}
    rows = encode_opposed(policy, graded, **options)
    without_dropout(policy.model)
    check_quiet(policy.model)
    trainable = prepare_for_training(policy.model, config.learner, seed=context.seed)
    initial = initial_policy(trainable, config, lambda: load().model)
    if context.processes == 1:
        # Of several processes the main one alone makes a report; it reads the policy again.
        keep_values(policy, initial, rows, config=config, scratch=context.scratch)
    curve, log = Curve(context), RoundLog()
    if config.rounds:
        seen = set(heldout["problem_id"])
        problems = [p for p in problems_of(_problems(inputs)) if p.id not in seen]
        log, drawn = run_rounds(
            trainable,
            policy,
            RoundQuestions(problems, _teacher(config, inputs)),
            initial=initial,
            config=asking(config, inputs, context),
            context=context,
            curve=curve,
        )
        pairs = pl.concat([drawn, heldout])
    else:
        log.num_steps = learn(
            trainable,
            policy,
            both_sided.filter(split="train"),
            # Read before the first step, or at every one of own samples.
            reference=PairReference(
                initial if config.algorithm.draws_own else FrozenPolicy.of(policy.model)
            ),
            config=config,
            context=context,
            curve=curve,
        )
    if not log.num_steps:
        raise UserError(
            "preference: no round gave a pair, so the policy is unchanged; take problems that it"
            " solves sometimes, or more sampling.num_samples"
        )
    report = report_of(policy, initial, rows, graded, config=config, context=context)
    report |= {"num_steps": log.num_steps, "rounds": log.rounds}
    if lone := count_lone(pairs):
        report["judged_alone"] = lone
    trainable.save(policy.tokenizer, outputs["policy"])
    write_table(pairs, outputs["pairs"], PAIRS)
    curve.write(outputs["curve"])
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    names = ("accuracy", "accuracy_low", "margin", "kl", "kl_per_token")
    # Answers that were judged alone have no order that could be right.
    measured = {f"preference/{name}": float(report[name]) for name in names if name in report}
    return measured | {
        "preference/num_pairs": float(len(pairs)),
        "preference/num_steps": float(log.num_steps),
    }


def _given_pairs(
    config: PreferenceConfig, inputs: Mapping[str, Path], context: StageContext
) -> pl.DataFrame:
    """PAIRS with a split, from the pairs or the samples that are connected."""
    if ("samples" in inputs) == ("pairs" in inputs):
        which = "both are" if "samples" in inputs else "neither is"
        raise UserError(
            f"preference: pairs come from inputs.samples or from inputs.pairs, but {which}"
            " connected; connect one"
        )
    wanted = config.pairs
    source = inputs["pairs" if "pairs" in inputs else "samples"]
    pairs = read_pair_inputs(
        inputs,
        builder=wanted.builder,
        pairs_per_problem=wanted.per_problem,
        max_pairs=wanted.limit,
        heldout_fraction=wanted.heldout_fraction,
        seed=context.seed,
    )
    usable = pairs["problem_id"].n_unique()
    if usable < 2:
        raise UserError(
            f"{source}: {usable or 'no'} problem gives a pair, but training and held-out pairs need"
            " one each; draw more samples per problem, or take problems of middling difficulty"
        )
    return pairs


def _teacher(config: PreferenceConfig, inputs: Mapping[str, Path]) -> pl.DataFrame | None:
    """COMPLETIONS that join the policy's samples in rounds."""
    if config.opponent != "teacher":
        return None
    return read_table(inputs["reference_samples"], COMPLETIONS)


def _problems(inputs: Mapping[str, Path]) -> pl.DataFrame:
    if "problems" not in inputs:
        raise UserError(
            "preference: rounds sample problems, and none are connected; connect inputs.problems,"
            " or set rounds to 0"
        )
    return read_scored_problems(inputs["problems"], inputs.get("verifiers"))
