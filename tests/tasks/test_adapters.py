"""Adapters in stages: what they learn, what stays in memory beside them, and an exact resume."""

import gc
import json
from dataclasses import replace

import pytest
import torch

from posttrain.data.schemas import CURVE
from posttrain.data.tables import read_table
from posttrain.learning.models.hold import hold_as
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.reward_head import load_reward_model
from posttrain.learning.preference.frozen_policy import FrozenPolicy
from posttrain.learning.rl.build import build_learner
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.reference_policy import PolicyWithoutAdapters, ReferencePolicy
from posttrain.learning.rl.replay import replay
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.prepare import load_to_train
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.preference import stage as preference
from tasks.preference.config import PreferenceConfig
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.reward.config import RewardConfig
from tasks.reward.stage import run as reward
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run as rl
from tests.quick import first_now

OPTIMIZATION = {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0}
KL = {"advantage": {"scale": "sample"}, "regularizers": {"kl": {"coefficient": 0.1}}}
RL = {
    "algorithm": KL,
    "steps": 4,
    "problems_per_step": 4,
    "group_size": 6,
    "max_tokens": 8,
    "optimization": OPTIMIZATION,
    "checkpoint_every": 2,
}
QLORA = {"weights": "nf4", "lora": {"rank": 2, "dora": True}}


@pytest.fixture(scope="module")
def inputs(guesser, coins_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    outputs = {name: folder / f"{name}.parquet" for name in ("samples", "solve_rates")}
    given = {"policy": guesser, "problems": coins_path}
    probe(ProbeConfig(max_tokens=8), given, outputs, StageContext.quiet(folder / "scratch"))
    return {**given, **outputs}


def train(inputs, folder, *, scratch=None, **config):
    folder.mkdir(exist_ok=True)
    names = ("rollouts.parquet", "curve.parquet", "report.json", "policy")
    outputs = {name.split(".")[0]: folder / name for name in names}
    given = {name: inputs[name] for name in ("policy", "problems", "solve_rates")}
    context = StageContext.quiet(scratch or folder / "scratch")
    rl(RlStageConfig(**RL | config), given, outputs, context)
    return folder


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and "scratch" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def parameters_alive():
    """Elements of all parameters that anything in this process still holds."""
    gc.collect()
    return sum(each.numel() for each in gc.get_objects() if type(each) is torch.nn.Parameter)


def sized(path):
    return sum(parameter.numel() for parameter in load_policy(path).model.parameters())


@pytest.mark.parametrize("learner", first_now([QLORA, {"lora": {"rank": 2}, "weights": "bf16"}]))
def test_rl_on_held_weights_samples_from_what_it_trains_and_resumes_to_equal_bytes(
    inputs, tmp_path, monkeypatch, learner
):
    whole = train(inputs, tmp_path / "whole", learner=learner)
    calls, update = [], PolicyLearner.update

    def fail_later(self, samples, **where):
        calls.append(where)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return update(self, samples, **where)

    monkeypatch.setattr(PolicyLearner, "update", fail_later)
    scratch = tmp_path / "scratch"
    with pytest.raises(KeyboardInterrupt):
        train(inputs, tmp_path / "cut", scratch=scratch, learner=learner)
    monkeypatch.undo()
    cut = train(inputs, tmp_path / "cut", scratch=scratch, learner=learner)
    assert contents(cut) == contents(whole)
    curve = curve_of(whole, "rl/logprob_gap")
    assert max(curve) < 1e-4
    # At the first step the policy is its reference, and at the last no longer.
    divergence = curve_of(whole, "rl/kl")
    assert divergence[0] == pytest.approx(0.0, abs=1e-6)
    assert divergence[-1] > 1e-6
    # What is saved is plain and in float32, and a replay of the rollouts leads there again.
    saved = load_policy(whole / "policy", dtype=None).model
    assert {p.dtype for p in saved.parameters()} == {torch.float32}
    again = replay(
        RlConfig(**RL, learner=learner),
        {"policy": inputs["policy"]},
        whole / "rollouts.parquet",
        StageContext.quiet(tmp_path / "replayed"),
    )
    assert again == weights_digest(saved)


def curve_of(folder, name):
    return read_table(folder / "curve.parquet", CURVE).filter(metric=name)["value"].to_list()


def learner_of(inputs, tmp_path, **settings):
    config = RlConfig(**RL, learner=settings)
    policy = load_to_train(inputs["policy"], config.learner, device="cpu")
    context = StageContext.quiet(tmp_path)
    return build_learner(policy, config, context, inputs={"policy": inputs["policy"]})


@pytest.mark.parametrize("weights", ["fp32", "bf16", "nf4"])
def test_the_reference_of_adapters_is_the_policy_without_them_and_no_copy(
    inputs, tmp_path, weights
):
    size, before = sized(inputs["policy"]), parameters_alive()
    learner = learner_of(inputs, tmp_path, weights=weights, lora={"rank": 2})
    adapters = [p for p in learner.model.parameters() if p.requires_grad]
    packed = sum(b.numel() for n, b in learner.model.named_buffers() if n.endswith("packed"))
    # Weights of 4 bits are buffers, two in a byte.
    assert parameters_alive() - before == size + sum(p.numel() for p in adapters) - 2 * packed
    with torch.no_grad():
        for parameter in adapters:
            parameter.add_(0.05)
    copied = load_policy(inputs["policy"]).model
    hold_as(copied, weights)
    ids = torch.tensor([[1, 7, 30, 12, 2], [1, 9, 31, 2, 0]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 1, 1, 0]]).bool()
    batch = Rows(ids, mask)
    real = replace(
        learner.passes, reference=ReferencePolicy(copied, learner.passes.config.reference)
    )
    found, wanted = (each.reference_logprobs(batch) for each in (learner.passes, real))
    assert torch.allclose(found, wanted, atol=1e-5)
    # The policy is itself again, adapters and gradients on.
    new = learner.passes.policy(learner.model, ids, mask).logprobs_BT
    assert (new - found).abs().max() > 1e-3
    learner.passes.reference_logprobs(batch)
    new.sum().backward()
    assert all(p.requires_grad and p.grad is not None for p in adapters)


class Rows:
    """As much of a batch as a pass reads."""

    def __init__(self, ids, mask):
        self.input_ids_BT, self.mask_BT = ids, mask


def test_a_reference_that_is_connected_is_held_as_the_policy_is(inputs, tmp_path):
    config = RlConfig(**RL, learner=QLORA)
    policy = load_to_train(inputs["policy"], config.learner, device="cpu")
    given = {"policy": inputs["policy"], "reference": inputs["policy"]}
    passes = build_learner(policy, config, StageContext.quiet(tmp_path), inputs=given).passes
    assert not isinstance(passes.reference, PolicyWithoutAdapters)
    batch = Rows(torch.tensor([[1, 7, 30, 12, 2]]), torch.tensor([[0, 0, 1, 1, 1]]).bool())
    # DoRA starts at the base but for the rounding of a division.
    found, own = passes.reference_logprobs(batch), passes.present_logprobs(batch)
    assert torch.allclose(found, own, atol=1e-5)


PREFERENCE = {
    "steps": 3,
    "batch_tokens": 300,
    "optimization": OPTIMIZATION,
    "sampling": {"problems": 8, "num_samples": 4, "max_tokens": 8},
}


def prefer(inputs, folder, emit=lambda event: None, **config):
    folder.mkdir()
    names = ("pairs.parquet", "curve.parquet", "report.json", "policy")
    outputs = {name.split(".")[0]: folder / name for name in names}
    given = {name: inputs[name] for name in ("policy", "samples")}
    if config.get("rounds"):
        given["problems"] = inputs["problems"]
    context = replace(StageContext.quiet(folder / "scratch"), emit=emit)
    preference.run(PreferenceConfig(**PREFERENCE | config), given, outputs, context)
    return json.loads(outputs["report"].read_text())


OWN = {"algorithm": {"terms": {"own_divergence": {"coefficient": 0.5}}}}
ROUNDS = {"rounds": 2, "algorithm": "xpo", "opponent": "reference"}
CASES = [
    {},
    {"learner": {"lora": {"rank": 2}}},
    {"learner": {"lora": {"rank": 2}, "weights": "nf4"}},
    {"learner": {"lora": {"rank": 2}}, **OWN},
    {"learner": {"lora": {"rank": 2}}, **ROUNDS},
]


@pytest.mark.parametrize("config", CASES, ids=["full", "lora", "nf4", "own", "rounds"])
def test_preference_holds_no_copy_of_its_start_and_reports_what_one_would(
    inputs, tmp_path, monkeypatch, config
):
    size, before, alive = sized(inputs["policy"]), parameters_alive(), []

    def emit(event):
        if event["kind"] == "progress" and not alive:
            alive.append(parameters_alive() - before)

    found = prefer(inputs, tmp_path / "without", emit, **config)
    # Adapters of rank 2 are a small part of it; a copy would be as much again.
    assert 0 < alive[0] < 1.1 * size
    copied = load_policy(inputs["policy"]).model
    hold_as(copied, config.get("learner", {}).get("weights", "fp32"))
    monkeypatch.setattr(preference, "initial_policy", lambda *_: FrozenPolicy.of(copied))
    wanted = prefer(inputs, tmp_path / "with", **config)
    for name in ("accuracy", "margin", "chosen_reward", "kl", "kl_per_token"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-3, abs=1e-5), name
    assert abs(found["margin"]) > 1e-4


@pytest.mark.parametrize("parameterization", ["head", "likelihood"])
def test_a_reward_model_learns_on_4_bits_and_is_saved_plain(inputs, tmp_path, parameterization):
    stored = load_policy(inputs["policy"])
    save_policy(stored.model.to(torch.bfloat16), stored.tokenizer, tmp_path / "stored")
    outputs = {name: tmp_path / name for name in ("reward_model", "pairs", "curve", "report")}
    config = RewardConfig(
        parameterization=parameterization,
        steps=20,
        batch_tokens=300,
        optimization=OPTIMIZATION,
        learner=QLORA,
    )
    given = {"policy": tmp_path / "stored", "samples": inputs["samples"]}
    measured = reward(config, given, outputs, StageContext.quiet(tmp_path / "scratch"))
    assert measured["reward/accuracy"] > 0.6
    model = load_reward_model(outputs["reward_model"], dtype=None).model
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_rl_refuses_what_does_not_go_with_4_bits(inputs):
    with pytest.raises(UserError, match="nf4 holds weights that are not trained"):
        RlStageConfig.parse(RL | {"learner": {"weights": "nf4"}}, where="rl")
    assert LearnerConfig(**QLORA).packages() == {"bitsandbytes"}
