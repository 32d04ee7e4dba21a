"""RL: it learns, it is exact, it counts honestly, and it refuses nonsense."""

import json
import re

import polars as pl
import pytest
import torch

from posttrain.data.schemas import CURVE, ROLLOUTS, SOLVE_RATES
from posttrain.data.tables import read_table, write_table
from posttrain.learning.algorithms.identity import digest
from posttrain.learning.algorithms.presets import PRESETS
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rewards.verify import verify
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run
from tests.learning.episodes.test_contexts import Reading
from tests.quick import first_now, one_now_in

SMALL = {
    "algorithm": {"advantage": {"scale": "sample"}},
    "steps": 12,
    "problems_per_step": 8,
    "group_size": 6,
    "max_tokens": 8,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "checkpoint_every": 5,
}

KL = {"regularizers": {"kl": {"coefficient": 0.1}}}


@pytest.fixture(scope="session")
def inputs(guesser, coins_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    outputs = {name: folder / f"{name}.parquet" for name in ("samples", "solve_rates")}
    given = {"policy": guesser, "problems": coins_path}
    probe(ProbeConfig(max_tokens=8), given, outputs, StageContext.quiet(folder / "scratch"))
    return {**given, "solve_rates": outputs["solve_rates"]}


def train(inputs, folder, *, scratch=None, seed=0, **config):
    folder.mkdir(exist_ok=True)
    outputs = {
        "policy": folder / "policy",
        "rollouts": folder / "rollouts.parquet",
        "curve": folder / "curve.parquet",
        "report": folder / "report.json",
    }
    context = StageContext.quiet(scratch or folder / "scratch", seed=seed)
    optimization = SMALL["optimization"] | config.pop("optimization", {})
    settings = {**SMALL, **config, "optimization": optimization}
    return run(RlStageConfig(**settings), inputs, outputs, context)


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rl") / "run"
    return folder, train(inputs, folder)


def curve_of(folder, metric):
    return read_table(folder / "curve.parquet", CURVE).filter(metric=f"rl/{metric}")["value"]


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and "scratch" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_it_learns_what_is_rewarded(inputs, tmp_path):
    train(
        inputs,
        tmp_path / "run",
        steps=40,
        problems_per_step=16,
        optimization={"learning_rate": 3e-3},
    )
    reward = curve_of(tmp_path / "run", "reward")
    # The curriculum prefers what is not yet learned, so judge the policy by probing all problems.
    outputs = {name: tmp_path / f"{name}.parquet" for name in ("samples", "solve_rates")}
    after = probe(
        ProbeConfig(max_tokens=8),
        {"policy": tmp_path / "run" / "policy", "problems": inputs["problems"]},
        outputs,
        StageContext.quiet(tmp_path / "scratch"),
    )
    assert reward[0] < 0.7
    assert after["probe/solve_rate"] > 0.9


def test_rollouts_hold_what_the_learner_saw(trained, inputs, coins):
    folder, metrics = trained
    rollouts = read_table(folder / "rollouts.parquet", ROLLOUTS)
    assert len(rollouts) == 12 * 8 * 6 == metrics["rl/num_rollouts"]
    assert rollouts["step"].to_list() == [step for step in range(1, 13) for _ in range(48)]
    assert rollouts["versions"].to_list() == [[step - 1] for step in rollouts["step"]]
    known = {problem.id: problem for problem in coins}
    for group in rollouts.partition_by("step", "problem_id", maintain_order=True):
        rewards = torch.tensor(group["reward"].to_list(), dtype=torch.float64)
        centred = rewards - rewards.mean()
        expected = centred / (rewards.std() + 1e-6) if centred.any() else centred
        found = [row[0] if row else 0.0 for row in group["advantages"].to_list()]
        assert found == pytest.approx(expected.tolist(), abs=1e-6)
        problem = known[group["problem_id"][0]]
        for row in group.iter_rows(named=True):
            assert row["reward"] == verify(row["text"], problem).value
            assert row["components"] == [{"name": "correct", "value": row["reward"]}]
            assert row["solved"] == (row["reward"] == 1)
            read, drawn = row["spans"]
            assert (read["begin"], read["end"], drawn["end"]) == (
                0, drawn["begin"], len(row["token_ids"])
            )  # fmt: skip
            assert len(row["logprobs"]) == drawn["end"] - drawn["begin"]
    first = rollouts.filter(step=1)
    policy = load_policy(inputs["policy"])
    for row in first.head(6).iter_rows(named=True):
        ids = torch.tensor([row["token_ids"]])
        start = row["spans"][1]["begin"]
        wanted = torch.arange(ids.shape[1])[None] >= start
        with torch.no_grad():
            expected = token_logprobs(policy.model, ids, wanted_BT=wanted).logprobs_BT[0, start:]
        torch.testing.assert_close(torch.tensor(row["logprobs"]), expected, atol=1e-4, rtol=0)


def test_curve_counts_every_rollout(trained):
    folder, _ = trained
    rollouts = read_table(folder / "rollouts.parquet", ROLLOUTS)
    by_step = rollouts.group_by("step", maintain_order=True)
    rewards = by_step.agg(pl.col("reward").mean())["reward"]
    assert curve_of(folder, "reward").to_list() == pytest.approx(rewards.to_list())
    groups = rollouts.group_by("step", "problem_id", maintain_order=True).agg(
        (pl.col("reward").n_unique() > 1).alias("mixed")
    )
    yields = groups.group_by("step", maintain_order=True).agg(pl.col("mixed").mean())["mixed"]
    assert curve_of(folder, "yield").to_list() == pytest.approx(yields.to_list())
    assert curve_of(folder, "logprob_gap").max() < 1e-4


def test_the_same_run_twice_has_the_same_bytes(trained, inputs, tmp_path):
    folder, _ = trained
    train(inputs, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(folder)
    train(inputs, tmp_path / "other", seed=1)
    assert contents(tmp_path / "other") != contents(folder)


def test_how_often_it_is_saved_changes_nothing_but_the_scratch(trained, inputs, tmp_path):
    folder, _ = trained
    train(inputs, tmp_path / "never", checkpoint_every=0)
    assert contents(tmp_path / "never") == contents(folder)


@pytest.mark.slow
def test_minibatches_and_epochs_leave_the_engine_and_are_clipped(inputs, tmp_path):
    assert policy_bytes(
        inputs,
        tmp_path / "several",
        optimization={"warmup_steps": 0},
        updates={"epochs": 2, "minibatches": 3},
    ) != policy_bytes(inputs, tmp_path / "once")
    assert curve_of(tmp_path / "once", "clip_fraction").max() == 0
    assert curve_of(tmp_path / "several", "clip_fraction").max() > 0
    # The gap is that of the first update, before the policy leaves the engine.
    assert curve_of(tmp_path / "several", "logprob_gap").max() < 1e-4
    assert curve_of(tmp_path / "several", "approx_kl_k3").max() > 1e-3


def test_engine_and_trainer_agree_at_another_temperature(inputs, tmp_path):
    train(inputs, tmp_path / "cool", temperature=0.7)
    assert curve_of(tmp_path / "cool", "logprob_gap").max() < 1e-4


def test_an_entropy_bonus_keeps_entropy_up(inputs, tmp_path):
    for name, coefficient in (("without", 0.0), ("with", 0.3)):
        entropy = {"coefficient": coefficient} if coefficient else None
        scaled = {"advantage": {"scale": "sample"}, "regularizers": {"entropy": entropy}}
        train(inputs, tmp_path / name, algorithm=scaled)
    without, kept = (curve_of(tmp_path / name, "entropy") for name in ("without", "with"))
    assert without[0] == kept[0]
    assert kept[-1] > 1.2 * without[-1]


def test_stored_advantages_are_those_before_a_bonus(inputs, tmp_path):
    """Equal draws and rewards in the first step: the bonus is in the weights, not in the rows."""
    stored, weights = [], []
    for name, entropy in (("without", None), ("with", {"coefficient": 0.3, "place": "advantage"})):
        algorithm = {"advantage": {"scale": "sample"}, "regularizers": {"entropy": entropy}}
        train(inputs, tmp_path / name, steps=1, algorithm=algorithm)
        stored.append(read_table(tmp_path / name / "rollouts.parquet", ROLLOUTS)["advantages"])
        weights.append((tmp_path / name / "policy" / "model.safetensors").read_bytes())
    assert stored[0].equals(stored[1])
    assert weights[0] != weights[1]


def test_a_divergence_penalty_keeps_the_policy_near(inputs, tmp_path):
    for name, coefficient in (("loose", 1e-9), ("tight", 10.0)):
        train(
            inputs,
            tmp_path / name,
            algorithm={"regularizers": {"kl": {"coefficient": coefficient}}},
        )
    loose, tight = (curve_of(tmp_path / name, "kl") for name in ("loose", "tight"))
    assert loose[0] == tight[0] == 0
    assert tight[-1] < 0.3 * loose[-1]


def policy_bytes(inputs, folder, **config):
    train(inputs, folder, **config)
    return (folder / "policy" / "model.safetensors").read_bytes()


def test_rates_of_another_policy_or_other_problems_are_refused(inputs, tmp_path):
    rates = read_table(inputs["solve_rates"], SOLVE_RATES)
    for column, value, message in (
        ("policy", "0" * 64, "the solve rates are those of policy 000000000000"),
        ("problem_id", "f" * 16, "none of the 40 problems was probed"),
        ("solved", 0, "all 320 probed attempts failed, .* take easier .* starts with '####'"),
        ("solved", 8, "all 320 probed attempts succeeded, .* take harder problems"),
    ):
        path = tmp_path / f"{column}.parquet"
        changed = rates.with_columns(pl.lit(value).cast(rates.schema[column]).alias(column))
        write_table(changed, path, SOLVE_RATES)
        probed = {**inputs, "solve_rates": path}
        with pytest.raises(UserError, match=message):
            train(probed, tmp_path / "run", draw={"sampler": "solve_rate"})


def test_a_pool_is_too_small_for_what_a_schedule_grows_to(inputs, tmp_path):
    growing = {"from": 8, "to": 41, "over": 4}
    with pytest.raises(UserError, match="there are 40 problems, but every step draws 41"):
        train(inputs, tmp_path / "run", problems_per_step=growing)


def test_a_reference_with_another_tokenizer_is_refused(inputs, tmp_path):
    model = load_policy(inputs["policy"]).model
    save_policy(model, train_tokenizer(["other 1 2"], vocab_size=262), tmp_path / "other")
    with pytest.raises(UserError, match="rl.inputs.reference: the tokenizers differ"):
        train({**inputs, "reference": tmp_path / "other"}, tmp_path / "run", algorithm=KL)
    assert not (tmp_path / "run/policy").exists()


def test_a_reference_of_another_shape_cannot_follow(inputs, tmp_path):
    tokenizer = load_policy(inputs["policy"]).tokenizer
    other = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0, max_length=64)
    save_policy(other, tokenizer, tmp_path / "other")
    moving = {"algorithm": KL, "reference": {"kind": "periodic", "every": 2}}
    with pytest.raises(UserError, match="rl.reference.kind periodic: .* another shape"):
        train({**inputs, "reference": tmp_path / "other"}, tmp_path / "run", **moving)


def test_a_reference_without_a_weight_is_refused(inputs, tmp_path):
    with pytest.raises(UserError, match="a reference is connected but the algorithm has no kl"):
        train({**inputs, "reference": inputs["policy"]}, tmp_path / "run")


def test_a_run_that_taught_nothing_is_refused(inputs, tmp_path):
    """The right answer does not fit into two tokens, so every reward is 0."""
    with pytest.raises(UserError, match="the policy is unchanged after 2 steps"):
        train(inputs, tmp_path / "run", steps=2, max_tokens=1)


def test_a_checkpoint_of_another_configuration_is_refused(inputs, tmp_path):
    train(inputs, tmp_path / "one", steps=5, scratch=tmp_path / "scratch")
    with pytest.raises(UserError, match="was made with config.steps=5, now it is 6"):
        train(inputs, tmp_path / "two", steps=6, scratch=tmp_path / "scratch")


def test_policy_changes_and_says_so(trained, inputs):
    folder, _ = trained
    assert weights_digest(load_policy(folder / "policy").model) != weights_digest(
        load_policy(inputs["policy"]).model
    )


def test_every_metric_has_a_stable_name_and_a_meaning(inputs, tmp_path):
    everything = {
        "advantage": {"kind": "gae"},
        "critic": {},
        "regularizers": {
            "kl": {"coefficient": 0.1},
            "entropy": {"coefficient": 0.01, "place": "loss"},
        },
        "old_policy": "recomputed",
        "token_weights": {"importance": {"bound": "truncate", "high": 2.0}},
    }
    train(inputs, tmp_path / "run", steps=3, staleness=1, algorithm=everything)
    found = set(read_table(tmp_path / "run" / "curve.parquet", CURVE)["metric"])
    config = RlStageConfig.parse({"algorithm": everything, "staleness": 1}, where="rl")
    assert found <= config.metrics().keys()
    assert config.part_metrics.keys() <= found
    assert {"rl/kl", "rl/value_loss", "rl/entropy_exact", "rl/drift", "rl/logprob_gap"} <= found


@pytest.mark.parametrize("name", one_now_in(4, PRESETS))
def test_every_preset_trains(inputs, tmp_path, name):
    settings = {}
    if "states" in PRESETS[name].algorithm.needs:
        settings["producer"] = {"kind": "episodes", "environment": Reading(rounds=2)}
    metrics = train(inputs, tmp_path / "run", steps=2, algorithm=name, **settings)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["algorithm"]["digest"] == digest(PRESETS[name].algorithm)
    assert report["policy"]["after"] == weights_digest(load_policy(tmp_path / "run/policy").model)
    assert report["metrics"] == metrics
    assert metrics["rl/num_updates"] == 2


def test_an_update_that_moves_nothing_stops_the_run(inputs, tmp_path):
    """A rate so small that the weights' float32 swallows the whole update."""
    with pytest.raises(UserError, match="update 1 left the policy exactly as it was"):
        train(inputs, tmp_path / "run", optimization={"learning_rate": 1e-30})


def test_a_limit_that_masks_every_rollout_is_refused_before_the_first_update(inputs, tmp_path):
    masked = {"advantage": {"truncated": "mask"}}
    with pytest.raises(UserError, match="cut off at max_tokens 2, and .* raise max_tokens"):
        train(inputs, tmp_path / "run", max_tokens=2, algorithm=masked, draw={"train_on": "all"})


def test_weights_that_an_update_has_broken_are_refused_in_one_sentence(inputs, tmp_path):
    with pytest.raises(UserError, match="logits are not finite, so nothing can be drawn"):
        train(inputs, tmp_path / "run", steps=3, optimization={"learning_rate": 1e30})


def test_an_early_stop_is_recorded_and_what_was_sampled_ahead_is_stored(inputs, tmp_path):
    stop = {"metric": "rl/reward", "target": 0.0}
    metrics = train(inputs, tmp_path / "run", staleness=1, stop=stop)
    assert (metrics["rl/steps"], metrics["rl/stopped_early"]) == (1.0, 1.0)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert re.fullmatch(r"rl/reward is 0\.\d+, which meets the target 0", report["stopped"])
    rollouts = read_table(tmp_path / "run" / "rollouts.parquet", ROLLOUTS)
    assert rollouts["step"].unique().sort().to_list() == [1, 2]
    assert not rollouts.filter(step=2)["trained"].any()


def test_checkpoint_in_the_middle_of_a_buffer_names_the_update(inputs, tmp_path, monkeypatch):
    """Stopped by an error after the fourth of six updates; the checkpoint is that of the third."""
    several = {"optimization": {"warmup_steps": 0}, "updates": {"epochs": 2, "minibatches": 3}}
    train(inputs, tmp_path / "whole", steps=3, **several)
    calls = []

    def fail_later(self, samples, **where):
        calls.append(where["index"])
        if len(calls) == 5:
            raise KeyboardInterrupt
        return update(self, samples, **where)

    update = PolicyLearner.update
    monkeypatch.setattr(PolicyLearner, "update", fail_later)
    scratch = tmp_path / "scratch"
    given = {"steps": 3, "checkpoint_every": 3, **several}
    with pytest.raises(KeyboardInterrupt):
        train(inputs, tmp_path / "cut", scratch=scratch, **given)
    monkeypatch.undo()
    notes = []
    monkeypatch.setattr(StageContext, "note", lambda self, line: notes.append(line))
    train(inputs, tmp_path / "cut", scratch=scratch, **given)
    assert "resuming after step 0 of 3 and 3 updates" in notes
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"algorithm": {"surrogate": {"high": 0.3}}}, "config.algorithm.surrogate.high=0.28"),
        ({"seed": 1}, "seed=0"),
        ({"draw": {"train_on": "signal"}}, 'config.draw.train_on="all"'),
    ],
)
def test_a_resume_names_the_field_that_differs(inputs, tmp_path, changed, field):
    scratch = tmp_path / "scratch"
    given = {"algorithm": "default", "steps": 5}
    train(inputs, tmp_path / "one", scratch=scratch, **given)
    with pytest.raises(UserError, match=f"made with {re.escape(field)}, now it is"):
        train(inputs, tmp_path / "two", scratch=scratch, **given | changed)


def test_adapters_leave_every_other_weight_as_it_was(inputs, tmp_path):
    """Only the adapted projections differ from the start; the file is a plain checkpoint."""
    lora = {"rank": 2, "targets": ["q_proj", "v_proj"]}
    train(inputs, tmp_path / "run", steps=3, learner={"lora": lora})
    before = load_policy(inputs["policy"]).model.state_dict()
    after = load_policy(tmp_path / "run" / "policy").model.state_dict()
    changed = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    assert changed == {name for name in before if "q_proj" in name or "v_proj" in name}
    assert curve_of(tmp_path / "run", "logprob_gap").max() < 1e-4


def test_recomputed_activations_change_no_gradient(inputs, tmp_path):
    train(inputs, tmp_path / "kept", steps=3)
    train(inputs, tmp_path / "again", steps=3, learner={"activation_checkpointing": True})
    one, two = (
        (tmp_path / name / "policy/model.safetensors").read_bytes() for name in ("kept", "again")
    )
    assert one == two


def test_rollouts_that_went_missing_beside_a_checkpoint_are_not_passed_over(inputs, tmp_path):
    scratch = tmp_path / "scratch"
    train(inputs, tmp_path / "one", scratch=scratch, steps=6)
    (shard,) = (scratch / "rollouts").iterdir()
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(UserError, match="000000005.parquet: these rollouts .* damaged"):
        train(inputs, tmp_path / "two", scratch=scratch, steps=6)


@pytest.mark.parametrize("last", first_now([3, 1, 5]))
def test_a_run_that_a_rule_stops_is_resumed_to_the_same_end(inputs, tmp_path, monkeypatch, last):
    """No reward is 1 better than another, so patience 5 ends the run after 6 steps."""
    given = {"staleness": 1, "stop": {"patience": 5, "min_improvement": 1.0}}
    given |= {"checkpoint_every": 1}
    assert train(inputs, tmp_path / "whole", **given)["rl/steps"] == 6
    calls, update = [], PolicyLearner.update

    def fail_later(self, samples, **where):
        calls.append(where)
        if len(calls) > last:
            raise KeyboardInterrupt
        return update(self, samples, **where)

    monkeypatch.setattr(PolicyLearner, "update", fail_later)
    scratch = tmp_path / "scratch"
    with pytest.raises(KeyboardInterrupt):
        train(inputs, tmp_path / "cut", scratch=scratch, **given)
    monkeypatch.undo()
    train(inputs, tmp_path / "cut", scratch=scratch, **given)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_the_stored_advantages_are_what_was_learned_from(inputs, tmp_path):
    """REINFORCE++ whitens over all tokens of the step, which no rollout's own reward says."""
    algorithm = {"preset": "reinforce_plus_plus", "regularizers": {"kl": None}}
    train(inputs, tmp_path / "run", steps=2, algorithm=algorithm)
    rollouts = read_table(tmp_path / "run" / "rollouts.parquet", ROLLOUTS)
    assert rollouts["trained"].all()
    for step in rollouts.partition_by("step"):
        lengths = torch.tensor([len(row) for row in step["logprobs"]])
        rewards = torch.tensor(step["reward"].to_list()).repeat_interleave(lengths)
        expected = (rewards - rewards.mean()) / rewards.std(correction=0)
        stored = step["advantages"].explode().to_list()
        assert stored == pytest.approx(expected.tolist(), abs=1e-5)


def test_what_was_not_learned_from_has_no_advantage(inputs, tmp_path):
    train(inputs, tmp_path / "run", steps=2, draw={"train_on": "signal"})
    rollouts = read_table(tmp_path / "run" / "rollouts.parquet", ROLLOUTS)
    has = rollouts["advantages"].list.len() > 0
    assert 0 < rollouts["trained"].sum() < len(rollouts)
    assert has.to_list() == rollouts["trained"].to_list()
