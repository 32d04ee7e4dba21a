"""Every part of an RL run that ships: a run of it is exact after a kill and in a replay.

What every slot promises, whatever stands in it. A case is the smallest config that has its kind at
work; what has none says why.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import polars as pl
import pytest
import torch

from posttrain.data.schemas import (
    COMPLETIONS,
    CURVE,
    IDENTITY,
    PROBLEMS,
    ROLLOUTS,
    VERDICTS,
    Completion,
    completions_table,
    problems_table,
    with_row_ids,
)
from posttrain.data.sources.opinions import VIEW
from posttrain.data.tables import read_table, write_table
from posttrain.learning.algorithms.advantages.registry import ADVANTAGES
from posttrain.learning.algorithms.foreign_losses.registry import FOREIGN_LOSSES
from posttrain.learning.algorithms.regularizers.registry import REGULARIZERS
from posttrain.learning.algorithms.surrogates.registry import SURROGATES
from posttrain.learning.algorithms.token_weights.registry import TOKEN_WEIGHTS
from posttrain.learning.algorithms.turn_values.registry import TURN_VALUES
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.reward_head import save_reward_model, start_reward_model
from posttrain.learning.rewards.combines.registry import COMBINES
from posttrain.learning.rewards.components.registry import COMPONENTS
from posttrain.learning.rewards.port_tables import subject_of
from posttrain.learning.rl.action_masks.registry import ACTION_MASKS
from posttrain.learning.rl.additions.registry import ADDITIONS
from posttrain.learning.rl.hints.registry import HINT_LAWS
from posttrain.learning.rl.producers.registry import PRODUCERS
from posttrain.learning.rl.references.registry import REFERENCES
from posttrain.learning.rl.replay import replay
from posttrain.learning.rl.replays.registry import ROLLOUT_REPLAYS
from posttrain.learning.rl.selections.registry import SELECTIONS
from posttrain.stage.context import StageContext
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run
from tests.tasks.exact import broken_off, watched
from tests.tasks.test_denoise import taught

BASE = {
    "steps": 3,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 6,
    "optimization": {
        "optimizer": "adamw",
        "learning_rate": 5e-3,
        "warmup_steps": 0,
        "lr_schedule": "constant",
    },
    "updates": {"minibatches": 2},
    "checkpoint_every": 1,
}


def over(base, said):
    """One mapping over another, section by section."""
    both = {**base, **said}
    for name in base.keys() & said.keys():
        if isinstance(base[name], Mapping) and isinstance(said[name], Mapping):
            both[name] = over(base[name], said[name])
    return both


class Case(NamedTuple):
    """What a kind needs beside it."""

    said: Mapping[str, Any]
    """Of the config, over `BASE`; sections are merged."""
    ports: Sequence[str] = ()
    """What is connected beside policy and problems."""
    world: str = "coins"
    """Whose policy and problems: a fixture `of_...`."""


def played(said=None, **of):
    """A case of bandits, whose presses are paid turn by turn."""
    return Case(over(PLAYED, said or {}), world="bandits", **of)


def surrogate(said, *ports, **algorithm):
    return Case({"algorithm": {"surrogate": said, **algorithm}}, ports)


BY_SEQUENCE = {"aggregation": {"kind": "sequence_mean_token_mean"}}
ONCE = {"updates": {"minibatches": 1}}
SURROGATE = {
    "clip": surrogate("clip"),
    "cispo": surrogate({"kind": "cispo", "low": 0.2}),
    "sapo": surrogate("sapo"),
    "gmpo": surrogate("gmpo", **BY_SEQUENCE),
    "squared": surrogate({"kind": "squared", "tau": 0.1}),
    "regression": surrogate("regression", aggregation={"kind": "sequence_mean_token_sum"}),
    "reinforce": Case({"algorithm": {"surrogate": "reinforce"}, **ONCE}),
    "implicit_negative": surrogate("implicit_negative", advantage={"baseline": "none"}),
    "outcome_label": surrogate("outcome_label", advantage={"baseline": "none"}, **BY_SEQUENCE),
    "contrastive": surrogate("contrastive", **BY_SEQUENCE),
    "discriminative": surrogate("discriminative", advantage={"baseline": "none"}, **BY_SEQUENCE),
    "uniform_value": surrogate("uniform_value"),
    "linear_bound": surrogate("linear_bound", **BY_SEQUENCE),
    "by_phase": surrogate(
        {
            "kind": "by_phase",
            "first": "clip",
            "second": "sapo",
            "phase": {"from": 0.0, "to": 1.0, "over": 2},
        }
    ),
}


PLAYED = {
    "producer": {"kind": "episodes", "environment": "bandit", "most_turns": 4},
    "max_tokens": 3,
    "reward": {"components": {"earned": "earned"}},
    "algorithm": {"advantage": "turns"},
}
WHOLE = {name: PLAYED[name] for name in ("producer", "max_tokens")}


def token_weight(said, **algorithm):
    return {"algorithm": {"token_weights": {"it": said}, **algorithm}}


TOKEN_WEIGHT = {
    "importance": Case(
        token_weight(
            {"kind": "importance", "bound": "truncate", "high": 2.0}, old_policy="recomputed"
        )
    ),
    "band": Case(token_weight({"kind": "band", "low": 0.9, "high": 1.1}, old_policy="recomputed")),
    "drift": Case(token_weight({"kind": "drift", "threshold": 0.01})),
    "turn": played(token_weight({"kind": "turn"})),
    "entropy": Case(token_weight({"kind": "entropy"})),
    "divergence": Case(token_weight({"kind": "divergence"})),
    "outcome": Case(token_weight({"kind": "outcome", "right": 2.0})),
    "long_failures": Case(token_weight({"kind": "long_failures", "base": 2.0})),
    "planning_grams": Case(token_weight({"kind": "planning_grams"})),
    "covariance": Case(token_weight({"kind": "covariance", "share": 0.2, "low": 0.0})),
    "likely_by_reference": Case(token_weight({"kind": "likely_by_reference", "least": 0.2})),
}

REFERENCE = {"reference": {"kind": "ema", "decay": 0.5}}


def regularizer(said, **more):
    return Case({"algorithm": {"regularizers": {"it": {"coefficient": 0.5, **said}}}, **more})


REGULARIZER = {
    "distillation": regularizer({"kind": "distillation"}, **REFERENCE),
    "kl": regularizer({"kind": "kl"}, **REFERENCE),
    "entropy": regularizer({"kind": "entropy"}),
    "imitation": regularizer({"kind": "imitation"}),
    "kl_limit": regularizer({"kind": "kl_limit"}),
    "sequence_chi_squared": regularizer({"kind": "sequence_chi_squared"}, **REFERENCE),
    "entropy_band": regularizer({"kind": "entropy_band"}),
    "nucleus_entropy": regularizer({"kind": "nucleus_entropy"}),
    "low_probability": regularizer({"kind": "low_probability", "share": 0.3, "floor": 0.5}),
    "kl_by_outcome": regularizer({"kind": "kl_by_outcome"}, **REFERENCE),
    "kl_covariance": regularizer({"kind": "kl_covariance", "share": 0.2}),
}


def advantage(said, **algorithm):
    return {"algorithm": {"advantage": said, **algorithm}}


LEARNED = {
    "kind": "td",
    "updates": 2,
    "episodes": 6,
    "capacity": 40,
    "teach": "both",
    "recalled": 5,
}
ADVANTAGE = {
    "group": Case(advantage({"kind": "group", "scale": "sample", "whiten": "sample"})),
    "turns": played(advantage({"kind": "turns", "like": "state"})),
    "returns": played(advantage({"kind": "returns", "gamma": 0.9})),
    "gae": Case(advantage({"kind": "gae", "lam": 0.9}, critic={})),
    "egae": Case(advantage({"kind": "egae"}, critic={}) | {"producer": "windows"}),
    "learned": played(advantage({"kind": "learned", "values": LEARNED})),
    "entropy_modulated": Case(
        {**WHOLE, **advantage({"kind": "entropy_modulated"})}, world="bandits"
    ),
    "outcome_credit": Case(advantage({"kind": "outcome_credit"}, critic={"target": "outcome"})),
}


def hinted(law, **more):
    return Case({"producer": {"kind": "hinted", "law": law}, **more}, ("traces",))


HINT_LAW = {
    "fixed": hinted("fixed"),
    "growth": hinted({"kind": "growth", "shares": [0.5, 0.9]}),
    "item_response": hinted({"kind": "item_response", "rounds": 2, "first": 0.3, "memory": 3}),
    "retreating": hinted("retreating"),
    "scattered": hinted("scattered"),
}
ORDERS = {
    "producer": "two_orders",
    "draw": {"select": "told_in_order"},
    "reward": {"components": {"correct": "verifier", "it": "order"}, "bonus_may_outweigh": True},
}
SELECTION = {
    "every": Case({"draw": {"select": "every"}}),
    "clean_calls": played({"draw": {"select": {"kind": "clean_calls", "share": 0.1}}}),
    "greedy_failed": Case(
        {"producer": "greedy_first", "draw": {"select": "greedy_failed"}}, world="contrary"
    ),
    "resample_on_correct": played({"draw": {"select": "resample_on_correct"}}),
    "solved_band": Case({"draw": {"select": "solved_band"}}),
    "last_hint": hinted({"kind": "growth", "shares": [0.5, 0.9]}, draw={"select": "last_hint"}),
    "brief_successes": Case({"draw": {"select": "brief_successes"}}),
    "told_in_order": Case(ORDERS),
}
# Carried over, a token has the probability of whichever policy drew it.
PARTIAL = {"kind": "partial", "rounds": 2, "at_once": 2}
PRODUCER = {
    "plain": Case({"producer": "plain"}),
    "episodes": played(),
    "partial": played({"producer": PARTIAL, "problems_per_step": 6}),
    "greedy_first": Case({"producer": "greedy_first"}),
    "hinted": hinted(
        {"kind": "item_response", "rounds": 2, "memory": 3}, draw={"sampler": "uniform"}
    ),
    "before_failure": Case({"producer": {"kind": "before_failure", "share": 1.0}}),
    "branched": Case({"producer": {"kind": "branched", "each": 1, "shortest": 1}}),
    "guided": Case(
        {"producer": {"kind": "guided", "begins": {"from": 0.0, "to": 1.0, "over": 2}}},
        ("players.guide",),
    ),
    "two_orders": Case(ORDERS),
    "windows": Case({"producer": "windows", **advantage({"kind": "egae"}, critic={})}),
    "noised": Case(
        {
            "producer": {"kind": "noised", "draws": 2},
            "engine": "masked_diffusion",
            "algorithm": {"surrogate": "linear_bound", **BY_SEQUENCE},
        },
        world="masks",
    ),
}
ACTION_MASK = {
    "nucleus": Case(
        {"draw": {"mask": {"kind": "nucleus", "top_p": 0.7, "every": 2}}, "temperature": 1.8}
    )
}
ASKED = {"prompt": "{problem}{solution}{critique}"}


def addition(kind, *ports, foreign="shaped", **said):
    added = {"draw": {"additions": {"kind": kind, **said}}, "algorithm": {"foreign": foreign}}
    return Case(added | {"max_tokens": 4}, ports)


ADDITION = {
    "traces": addition("traces", "solutions"),
    "stored": addition("stored", "stored", foreign="importance"),
    "refinements": addition("refinements", **ASKED),
    "criticized": addition("criticized", **ASKED, ask="{problem}{solution}", max_tokens=4),
    "rethought": addition(
        "rethought", foreign="cloned", samples=4, decompose="{problem}", refine=None
    ),
    "tempered": addition("tempered", foreign="cloned", target=100.0, high=2.0, low=0.5, share=0.5),
}
REPLAY = {
    "recent": Case({"updates": {"replay": {"kind": "recent", "share": 0.5, "window": 2}}}),
    "left_over": Case(
        {
            "updates": {"replay": {"kind": "left_over", "every": 2}},
            "draw": {"select": "brief_successes"},
        }
    ),
}


def component(kind, *ports, world="coins", solver="verifier", more=None, **said):
    parts = {"correct": solver, "it": {"kind": kind, **said}}
    reward = {"components": parts, "bonus_may_outweigh": True}
    return Case({"reward": reward, **(more or {})}, ports, world)


COMPONENT = {
    "verifier": Case({"reward": {"components": {"it": "verifier"}}}),
    "format": component("format", pattern="#### .*"),
    "brier": component("brier", pattern=r"(\d)", scale=0.1),
    "self_report": component("self_report", pattern=r"(\d)"),
    "agreement": component("agreement", world="contrary"),
    "majority": component("majority"),
    "teacher": component("teacher", "references.tuned", of="tuned", more=advantage("returns")),
    "model": component("model", "reward_models.one", models=["one"], squash="sigmoid"),
    "log_ratio": component(
        "log_ratio", "references.start", "references.tuned", of="tuned", against="start"
    ),
    "token_log_ratio": component(
        "token_log_ratio",
        "references.start",
        "references.tuned",
        of="tuned",
        against="start",
        more=advantage("returns"),
    ),
    "win_rate": component("win_rate", oracle="verifier"),
    "earned": played(),
    "moving_average": component("moving_average", of="correct", decay=0.5),
    "embedding": component("embedding", "references.start", model="start", to="group"),
    "banded_novelty": component("banded_novelty", "references.start", model="start", of="correct"),
    "information_gain": component("information_gain", "references.start", model="start"),
    "turn_information_gain": component(
        "turn_information_gain",
        "references.start",
        world="bandits",
        model="start",
        fact="presses",
        more=WHOLE | advantage("turns"),
    ),
    "repetition": component("repetition", n=2),
    "repeated_ngrams": component("repeated_ngrams", n=2, more=advantage("returns")),
    "critiqued_spans": component("critiqued_spans", more=advantage("returns")),
    "stored": component("stored", "verdicts", verdict="said"),
    "subgoals": component("subgoals", "traces"),
    "trace_likeness": component("trace_likeness", "traces"),
    "tokens": Case(
        {
            "reward": {
                "components": {"correct": "verifier", "it": "tokens"},
                "combine": {
                    "kind": "lagrangian",
                    "maximize": {"correct": 1.0},
                    "limits": {"it": {"at_most": 1.0}},
                },
                "bonus_may_outweigh": True,
            }
        }
    ),
    "target_length": component("target_length", target=4),
    "overlong_length": component("overlong_length", share=0.5),
    "cosine_length": component("cosine_length"),
    "shortness": component("shortness", scale=1.0),
    "group_length": component("group_length"),
    "best_length": component("best_length"),
    "solved_length": component("solved_length", share=1.0),
    "told_length": component("told_length", costs={"": 0.5}),
    "order": Case(ORDERS),
}


def turn_value(kind, **more):
    return played(advantage({"kind": "learned", "values": {**LEARNED, "kind": kind, **more}}))


TURN_VALUE = {
    kind: turn_value(kind)
    for kind in ("td", "implicit", "returns", "options", "success", "outcome")
}
FOREIGN_LOSS = {
    kind: addition("traces", "solutions", foreign=kind) for kind in ("shaped", "balanced", "cloned")
}
FOREIGN_LOSS["importance"] = addition("stored", "stored", foreign="importance")


def reference(said):
    return Case({"algorithm": {"regularizers": {"kl": {"coefficient": 0.5}}}, "reference": said})


REFERENCE_POLICY = {
    "frozen": reference("frozen"),
    "ema": reference({"kind": "ema", "decay": 0.5}),
    "periodic": reference({"kind": "periodic", "every": 2}),
    "restart": reference({"kind": "restart", "metric": "rl/reward", "patience": 1}),
}


def combine(kind, **said):
    parts = {"correct": "verifier", "near": {"kind": "target_length", "target": 4}}
    reward = {"components": parts, "combine": {"kind": kind, **said}, "bonus_may_outweigh": True}
    return Case({"reward": reward})


COMBINE = {
    "sum": combine("sum", weights={"near": {"from": 0.5, "to": 0.1, "over": 2}}),
    "gated": combine("gated", gates=[{"component": "near", "least": -0.5}], sum={"correct": 1.0}),
    "product": combine("product", times=["correct"]),
    "lagrangian": combine(
        "lagrangian", maximize={"correct": 1.0}, limits={"near": {"at_least": 0.0}}
    ),
    "advantages": combine("advantages", weights={"near": 0.5}),
}

CASES = {
    "surrogate": SURROGATE,
    "token_weight": TOKEN_WEIGHT,
    "regularizer": REGULARIZER,
    "advantage": ADVANTAGE,
    "hint_law": HINT_LAW,
    "selection": SELECTION,
    "producer": PRODUCER,
    "action_mask": ACTION_MASK,
    "addition": ADDITION,
    "replay": REPLAY,
    "component": COMPONENT,
    "turn_value": TURN_VALUE,
    "foreign_loss": FOREIGN_LOSS,
    "reference": REFERENCE_POLICY,
    "combine": COMBINE,
}
EXEMPT = {
    "component": {
        "pairwise": "asks a model behind an endpoint, which need not say the same again",
        "judged_spans": "asks a model behind an endpoint, which need not say the same again",
        "unaligned_spans": "counts what the endpoint of judged_spans has quoted",
    }
}
SLOTS = {
    slot.name: slot
    for slot in (
        SURROGATES,
        TOKEN_WEIGHTS,
        REGULARIZERS,
        ADVANTAGES,
        HINT_LAWS,
        SELECTIONS,
        PRODUCERS,
        ACTION_MASKS,
        ADDITIONS,
        ROLLOUT_REPLAYS,
        COMPONENTS,
        TURN_VALUES,
        FOREIGN_LOSSES,
        REFERENCES,
        COMBINES,
    )
}
QUICK = {
    ("surrogate", "clip"),
    ("token_weight", "covariance"),
    ("regularizer", "entropy_band"),
    ("advantage", "gae"),
    ("hint_law", "item_response"),
    ("selection", "brief_successes"),
    ("producer", "before_failure"),
    ("action_mask", "nucleus"),
    ("addition", "traces"),
    ("replay", "left_over"),
    ("component", "best_length"),
}


@pytest.fixture(scope="session")
def tuned(guesser, tmp_path_factory):
    """The guesser, a little away from where it was."""
    policy = load_policy(guesser)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=generator)
    path = tmp_path_factory.mktemp("tuned") / "policy"
    save_policy(policy.model, policy.tokenizer, path)
    return path


@pytest.fixture(scope="session")
def tables(coins, tmp_path_factory):
    """Two solutions of all but the first problem; and what a judge said of short answers."""
    folder = tmp_path_factory.mktemp("tables")
    said = [
        Completion(coin, f"{text}#### {coin.answer}", "teacher", 1.0, True, "correct")
        for coin in coins[1:]
        for text in ("up down\n", "")
    ]
    solved = with_row_ids(completions_table(said), IDENTITY["completions"])
    write_table(solved, folder / "solutions", COMPLETIONS)
    empty = dict.fromkeys(("criterion", "judge", "reason", "text"), "")
    judged = [
        {"subject": subject_of(coin.id, f"#### {n}"), "component": "said", "score": 0.5 * n}
        | {"parents": [coin.id], "draw": 0, **empty}
        for coin in coins
        for n in (1, 2)
    ]
    schema = {name: kind for name, kind in VERDICTS.items() if name != "id"}
    verdicts = with_row_ids(pl.DataFrame(judged, schema=schema), IDENTITY["verdicts"])
    write_table(verdicts, folder / "verdicts", VERDICTS)
    return {
        "traces": folder / "solutions",
        "solutions": folder / "solutions",
        "verdicts": folder / "verdicts",
    }


@pytest.fixture(scope="session")
def few(coins, tmp_path_factory):
    """So few problems that each comes again within three steps: what is remembered of it counts."""
    path = tmp_path_factory.mktemp("few") / "problems.parquet"
    write_table(with_row_ids(problems_table(coins[:6]), IDENTITY["problems"]), path, PROBLEMS)
    return path


@pytest.fixture(scope="session")
def rollouts(guesser, few, tmp_path_factory):
    """What another run of the guesser drew."""
    given = {"policy": guesser, "problems": few}
    return trained(Case({}), given, tmp_path_factory.mktemp("stored"))[1]["rollouts"]


@pytest.fixture(scope="session")
def of_coins(guesser, tuned, tables, rollouts, few, tmp_path_factory):
    """What can be connected, by port, where coins are guessed."""
    liked = tmp_path_factory.mktemp("liked") / "model"
    made = start_reward_model(guesser, parameterization="likelihood", scale=2.0)
    save_reward_model(made, liked)
    models = {
        "players.guide": tuned,
        "references.start": guesser,
        "references.tuned": tuned,
        "reward_models.one": liked,
    }
    return {"policy": guesser, "problems": few, "stored": rollouts, **tables, **models}


@pytest.fixture(scope="session")
def of_contrary(of_coins, coins, tmp_path_factory):
    """The same where what the guesser says more often is wrong, and who asks has a view."""
    turned = [
        replace(coin, answer=str(3 - int(coin.answer)), metadata=json.dumps({VIEW: "1"}))
        for coin in coins[:6]
    ]
    path = tmp_path_factory.mktemp("contrary") / "problems.parquet"
    write_table(with_row_ids(problems_table(turned), IDENTITY["problems"]), path, PROBLEMS)
    return of_coins | {"problems": path}


@pytest.fixture(scope="session")
def of_masks(of_coins, coins, tmp_path_factory):
    """The same with a policy that unmasks."""
    folder = tmp_path_factory.mktemp("masks")
    said = [
        Completion(coin, f"#### {said}", "teacher", 1.0, True, "")
        for coin in coins
        for said in "12"
    ]
    write_table(completions_table(said), folder / "said.parquet", COMPLETIONS)
    policy, _ = taught(folder / "said.parquet", folder / "taught")
    return of_coins | {"policy": policy}


@pytest.fixture(scope="session")
def of_bandits(bandits):
    """What can be connected where buttons are pressed."""
    return bandits | {"references.start": bandits["policy"]}


def trained(case, given, folder):
    """Run RL; config and outputs, and what is to be the same: weights, curve and rollouts."""
    config = RlStageConfig.parse(over(BASE, case.said), where="rl")
    folder.mkdir(exist_ok=True)
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    run(config, given, outputs, StageContext.quiet(folder / "scratch", seed=3))
    digest = weights_digest(load_policy(outputs["policy"]).model)
    curve, rows = read_table(outputs["curve"], CURVE), read_table(outputs["rollouts"], ROLLOUTS)
    return config, outputs, (digest, curve, rows)


EVERY = [
    pytest.param(slot, kind, marks=() if (slot, kind) in QUICK else pytest.mark.slow)
    for slot, cases in CASES.items()
    for kind in cases
]


@pytest.mark.parametrize("slot", SLOTS)
def test_every_kind_has_a_case_or_says_why_not(slot):
    exempt = EXEMPT.get(slot, {})
    assert not exempt.keys() & CASES[slot].keys()
    assert {*CASES[slot], *exempt} == {*SLOTS[slot].parts}
    assert all(len(reason.split()) > 3 for reason in exempt.values())


@pytest.mark.parametrize(("slot", "kind"), EVERY)
def test_a_run_is_exact_after_kills_and_in_a_replay(slot, kind, request, tmp_path):
    case = CASES[slot][kind]
    there = request.getfixturevalue(f"of_{case.world}")
    given = {name: there[name] for name in ("policy", "problems", *case.ports)}
    updates, whole = watched(partial(trained, case, given, tmp_path / "whole"))
    config, outputs, (digest, curve, rows) = whole

    # Of two updates in each of three steps: within the first and the second, and after that.
    count = len(updates)
    places = [updates[at] for at in sorted({1, count // 2, 2 * count // 3})]
    again = partial(trained, case, given, tmp_path / "broken")
    _, _, (resumed, curve_after, rows_after) = broken_off(again, places)
    assert resumed == digest
    assert curve_after.equals(curve)
    assert rows_after.equals(rows)

    context = StageContext.quiet(tmp_path / "replay", seed=3)
    only = {"policy": given["policy"]}
    assert replay(config, only, outputs["rollouts"], context) == digest
