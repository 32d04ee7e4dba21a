"""Every part of preference optimization that ships: a run of it is exact after kills.

Nothing is replayed here: `posttrain replay` learns again from stored rollouts, which pairs are not.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, get_args

import pytest

from posttrain.data.pair_builders.registry import PAIR_BUILDERS
from posttrain.data.schemas import (
    COMPLETIONS,
    CURVE,
    IDENTITY,
    PAIRS,
    Completion,
    completions_table,
    with_row_ids,
)
from posttrain.data.tables import read_table, write_table
from posttrain.learning.algorithms.pair_losses.registry import LOSSES_ON_PAIRS
from posttrain.learning.algorithms.pair_terms.registry import PAIR_TERMS
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.models.optim import Optimizer
from posttrain.learning.models.pair_model import PairModel, save_pair_model
from posttrain.learning.models.reward_head import save_reward_model, start_reward_model
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.rewards.components.oracles.registry import PAIR_ORACLES
from posttrain.stage.context import StageContext
from tasks.preference.stage import run

BASE = {
    "steps": 4,
    "batch_tokens": 200,
    "optimization": {"learning_rate": 3e-3, "warmup_steps": 0},
    "sampling": {"problems": 10, "num_samples": 4, "max_tokens": 6},
    "checkpoint_every": 1,
}


class Case(NamedTuple):
    """What a kind needs beside it."""

    said: Mapping[str, Any]
    """Of the config, over `BASE`."""
    ports: Sequence[str] = ("samples",)
    """What is connected beside the policy."""


def offline(*ports, **said):
    return Case(said, ("samples", *ports))


def builder(said, *ports):
    return offline(*ports, pairs={"builder": said})


def rounds(*ports, **said):
    """Two rounds of two steps."""
    return Case({"rounds": 2, "steps": 2, **said}, ("samples", "problems", *ports))


WIN_RATES = {"kind": "verifier", "label": "win_rates"}
CASES = {
    "pair_loss": {
        "contrastive": offline(algorithm={"loss": "contrastive"}),
        "advantage_margin": offline(algorithm={"loss": "advantage_margin"}),
        "score_difference": offline(algorithm={"loss": "score_difference"}),
    },
    "pair_term": {
        "own_divergence": offline(algorithm={"terms": {"own_divergence": {"coefficient": 0.5}}})
    },
    "pair_builder": {
        "verifier": builder("verifier"),
        "best_worst": builder("best_worst"),
        "length_balanced": builder("length_balanced"),
        "margin": builder("margin"),
        "policy_vs_reference": builder("policy_vs_reference", "reference_samples"),
        "reward_augmented": builder("reward_augmented"),
        "steps": builder("steps"),
    },
    "pair_oracle": {
        "verifier": rounds(oracle="verifier"),
        "model": rounds("reward_models.one", oracle={"kind": "model", "model": "one"}),
        "pair_model": rounds("reward_models.both", oracle={"kind": "pair_model", "model": "both"}),
        "latent_game": rounds(oracle={"kind": "latent_game", "asks": "verifier"}),
    },
    "opponent": {
        "policy": rounds(reference="round"),
        "reference": rounds(algorithm="xpo", opponent="reference", accumulate=True),
        "mixture": rounds(oracle=WIN_RATES, opponent="mixture", reference={"initial": 0.25}),
        "teacher": rounds("reference_samples", opponent="teacher"),
    },
}
EXEMPT = {
    "pair_oracle": {"judge": "asks a model behind an endpoint, which need not say the same again"}
}
KINDS = {
    **{
        slot.name: {*slot.parts}
        for slot in (LOSSES_ON_PAIRS, PAIR_TERMS, PAIR_BUILDERS, PAIR_ORACLES)
    },
    "opponent": {*get_args(PreferenceConfig.model_fields["opponent"].annotation)},
}
QUICK = {("pair_loss", "contrastive")}
EVERY = [
    pytest.param(slot, kind, marks=() if (slot, kind) in QUICK else pytest.mark.slow)
    for slot, cases in CASES.items()
    for kind in cases
]


@pytest.fixture(scope="module")
def connected(guesser, coins, coins_path, tmp_path_factory):
    """What can be connected, by port: right and wrong answers, each of two lines or of one."""
    folder = tmp_path_factory.mktemp("connected")
    samples = [
        Completion(coin, f"{before}#### {said}", "policy", float(right), right, "")
        for coin in coins[:20]
        for before in ("up down\n", "up\n", "")
        for said in ("1", "2")
        for right in [said == coin.answer]
    ]
    others = [
        Completion(coin, f"down\n#### {coin.answer}", "teacher", 1.0, True, "")
        for coin in coins[:20]
    ]
    for name, rows in {"samples": samples, "reference_samples": others}.items():
        table = with_row_ids(completions_table(rows), IDENTITY["completions"])
        write_table(table, folder / name, COMPLETIONS)
    model = start_reward_model(guesser, parameterization="likelihood", scale=2.0)
    save_reward_model(model, folder / "one")
    save_pair_model(PairModel(model), folder / "both")
    return {
        "policy": guesser,
        "problems": coins_path,
        "samples": folder / "samples",
        "reference_samples": folder / "reference_samples",
        "reward_models.one": folder / "one",
        "reward_models.both": folder / "both",
    }


def trained(case, given, folder):
    """What is to be the same: the weights, the pairs, the curve and the report."""
    config = PreferenceConfig.parse(BASE | case.said, where="preference")
    folder.mkdir(exist_ok=True)
    outputs = {name: folder / name for name in ("policy", "pairs", "curve", "report")}
    run(config, given, outputs, StageContext.quiet(folder / "scratch", seed=3))
    digest = weights_digest(load_policy(outputs["policy"]).model)
    tables = [read_table(outputs["pairs"], PAIRS), read_table(outputs["curve"], CURVE)]
    return digest, *tables, json.loads(outputs["report"].read_text())


def broken_off(train):
    """Train four steps, broken off in the second and in the last one, then to the end."""
    counts, step = [], Optimizer.step

    def ends(self, **given):
        counts[-1] += 1
        if (len(counts), counts[-1]) in ((1, 2), (2, 3)):
            raise ConnectionError
        return step(self, **given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Optimizer, "step", ends)
        for _ in range(2):
            counts.append(0)
            with pytest.raises(ConnectionError):
                train()
        counts.append(0)
        ended = train()
    assert counts == [2, 3, 1]
    return ended


@pytest.mark.parametrize("slot", KINDS)
def test_every_kind_has_a_case_or_says_why_not(slot):
    exempt = EXEMPT.get(slot, {})
    assert not exempt.keys() & CASES[slot].keys()
    assert {*CASES[slot], *exempt} == KINDS[slot]
    assert all(len(reason.split()) > 3 for reason in exempt.values())


@pytest.mark.parametrize(("slot", "kind"), EVERY)
def test_a_run_is_exact_after_kills(slot, kind, connected, tmp_path):
    case = CASES[slot][kind]
    given = {name: connected[name] for name in ("policy", *case.ports)}
    digest, pairs, curve, report = trained(case, given, tmp_path / "whole")
    assert report["num_steps"] == 4
    resumed, *tables, told = broken_off(partial(trained, case, given, tmp_path / "broken"))
    assert resumed == digest != weights_digest(load_policy(given["policy"]).model)
    assert all(table.equals(one) for table, one in zip(tables, (pairs, curve), strict=True))
    assert told == report
