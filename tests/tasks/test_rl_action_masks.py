"""RL under a mask: engine and trainer agree, it is renewed, and a run of it is exact."""

from functools import partial

import pytest
import torch

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy
from posttrain.learning.rl import credit
from posttrain.learning.rl.action_masks.nucleus import EarlierNucleus, likeliest_set
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tests.tasks.exact import killed_before_an_update, trained_on_coins

SETTINGS = {
    "steps": 5,
    "problems_per_step": 8,
    "group_size": 4,
    "max_tokens": 6,
    # Hot enough that both answers are in the set, and much else would be drawn without it.
    "temperature": 1.8,
    "optimization": {
        "optimizer": "adamw",
        "learning_rate": 5e-3,
        "warmup_steps": 0,
        "lr_schedule": "constant",
    },
    "updates": {"epochs": 2},
    "draw": {"mask": {"kind": "nucleus", "top_p": 0.7, "every": 2}},
    "algorithm": {
        "old_policy": "recomputed",
        "regularizers": {
            "kl": {"coefficient": 0.1, "place": "reward", "estimator": "k1"},
        },
    },
    "checkpoint_every": 1,
}


def trained(policy, problems, folder, **settings):
    return trained_on_coins(SETTINGS | settings, policy, problems, folder)


@pytest.mark.slow
def test_engine_and_trainer_hold_to_one_mask_and_a_run_is_exact(
    guesser, coins_path, tmp_path, monkeypatch
):
    renewed, observe = [], EarlierNucleus.observe

    def watched(self, policy, *, step):
        before = [each.clone() for each in self.model.parameters()]
        observe(self, policy, step=step)
        pairs = zip(before, self.model.parameters(), strict=True)
        renewed.append(any(not torch.equal(old, new) for old, new in pairs))

    monkeypatch.setattr(EarlierNucleus, "observe", watched)
    given, values, digest = trained(guesser, coins_path, tmp_path / "whole")
    assert renewed == [False, True, False, True, False]
    assert max(values["rl/logprob_gap_max"]) < 1e-4
    config, inputs, outputs = given
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    assert replay(config, inputs, outputs["rollouts"], context) == digest

    # The mask was renewed once by then, and is that of no step's policy any more.
    since, (_, _, resumed) = killed_before_an_update(
        partial(trained, guesser, coins_path, tmp_path / "twice"), (3, 1), monkeypatch
    )
    assert since == [(3, 1), (4, 0), (4, 1)]
    assert resumed == digest


@pytest.mark.slow
def test_nothing_outside_the_first_policys_nucleus_is_drawn_before_it_is_renewed(
    guesser, coins_path, tmp_path
):
    (_, _, outputs), _, _ = trained(guesser, coins_path, tmp_path / "run")
    first = load_policy(guesser).model
    table = read_table(outputs["rollouts"], ROLLOUTS)
    rows = [row for row in table.to_dicts() if row["step"] <= 2]
    assert len(rows) == 64
    for row in rows:
        ids = torch.tensor([row["token_ids"]])
        with torch.no_grad():
            allowed = likeliest_set(first(input_ids=ids).logits[0] / 1.8, top_p=0.7)
        for span in row["spans"]:
            for place in range(span["begin"], span["end"]) if span["drawn"] else ():
                token = row["token_ids"][place]
                assert token < 3 or allowed[place - 1, token]


def test_a_divergence_in_the_reward_is_that_of_the_whole_policy(
    guesser, coins_path, tmp_path, monkeypatch
):
    seen, plain = [], credit.rollout_batch

    def looked_at(rollouts, **given):
        batch = plain(rollouts, **given)
        seen.append((rollouts, batch))
        return batch

    monkeypatch.setattr(credit, "rollout_batch", looked_at)
    trained(guesser, coins_path, tmp_path / "run", steps=1)
    ((rollouts, batch),) = seen
    # Before the first update policy and reference are one.
    assert torch.allclose(batch.sampled_logprobs_BT, batch.reference_logprobs_BT, atol=1e-5)
    masked = torch.tensor([value for each in rollouts for value in each.logprobs])
    whole = batch.sampled_logprobs_BT[batch.mask_BT]
    # What is left has more than 0.7 of the mass, so that renormalizing adds at most -log 0.7.
    assert bool((masked >= whole - 1e-5).all())
    assert float((masked - whole).max()) < 0.357
    assert float((masked - whole).mean()) > 0.01


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"staleness": 1}, "rollouts of earlier steps are learned from; set staleness to 0"),
        (
            {"algorithm": {"regularizers": {"entropy": {"coefficient": 0.1, "place": "loss"}}}},
            "draw.mask nucleus renormalizes the policy, but the algorithm goes by entropy_gradient",
        ),
        (
            {"updates": {"replay": {"kind": "recent"}}},
            "updates.replay learns from tokens that were not drawn under it",
        ),
        ({"learner": {"lora": {"rank": 2}}}, "follows whole weights, but learner.lora"),
        ({"draw": {"mask": {"kind": "nucleus", "top_p": 1.5}}}, "top_p"),
    ],
)
def test_what_does_not_go_under_a_mask_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        RlStageConfig.parse(SETTINGS | settings, where="rl")


def test_only_the_engine_of_the_learners_process_can_ask_it(guesser, coins_path, tmp_path):
    with pytest.raises(UserError, match="draw.mask is asked at every token"):
        trained(guesser, coins_path, tmp_path / "run", engine="vllm")


def test_a_config_without_one_says_nothing_of_it():
    plain = RlStageConfig.parse({}, where="rl")
    assert "mask" not in plain.keyed()["draw"]
    masked = RlStageConfig.parse({"draw": SETTINGS["draw"]}, where="rl")
    assert masked.keyed()["draw"]["mask"] == SETTINGS["draw"]["mask"] | {"least": 1}
    assert RlStageConfig.parse(masked.model_dump(), where="rl") == masked
