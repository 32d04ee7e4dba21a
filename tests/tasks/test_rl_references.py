"""A reference that begins anew with the optimizer; and the policy before a step as an anchor."""

import pytest

from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.references.restart import Restart
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tests.tasks.exact import trained_on_coins

SETTINGS = {
    "steps": 5,
    "problems_per_step": 8,
    "group_size": 4,
    "max_tokens": 6,
    "optimization": {
        "optimizer": "adamw",
        "learning_rate": 5e-3,
        "warmup_steps": 0,
        "lr_schedule": "constant",
    },
    "updates": {"minibatches": 2},
    "algorithm": {"regularizers": {"kl": {"coefficient": 0.1}}},
    "reference": {"kind": "restart", "every": 2},
    "checkpoint_every": 1,
}


def test_it_restarts_by_step_and_where_the_metric_has_stalled_since_the_last_time():
    rule = Restart(every=4, at=3, metric="rl/reward", patience=2).start()
    rewards = [0.1, 0.2, 0.3, 0.4, 0.2, 0.2, 0.2, 0.5]
    # Behind 3 as said, behind 4 by its number; 5 is the best since then, and 6 and 7 are no better.
    found = [rule.observe({"rl/reward": r}, step=step) for step, r in enumerate(rewards)]
    assert [step + 1 for step, due in enumerate(found) if due] == [3, 4, 7, 8]
    down = Restart(metric="rl/kl", better="lower", patience=1).start()
    assert [down.observe({"rl/kl": k}, step=0) for k in (0.3, 0.2)] == [False, False]
    again = Restart(metric="rl/kl", better="lower", patience=1).start()
    again.load_state_dict(down.state_dict())
    assert not again.observe({}, step=0)
    assert again.observe({"rl/kl": 0.25}, step=0)


def trained(policy, problems, folder, **settings):
    return trained_on_coins(SETTINGS | settings, policy, problems, folder)


@pytest.mark.slow
def test_after_a_restart_nothing_is_left_of_what_was_before(
    guesser, coins_path, tmp_path, monkeypatch
):
    given, values, digest = trained(guesser, coins_path, tmp_path / "whole")
    assert values["rl/reference_restarts"] == [0, 0, 1, 1, 2]
    # The first of two updates measures the reference's own tokens: the mean is that of the second.
    kl = values["rl/kl"]
    assert kl[1] > kl[2]
    config, inputs, outputs = given
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    assert replay(config, inputs, outputs["rollouts"], context) == digest

    sizes, update = [], PolicyLearner.update

    def counted(self, samples, **given):
        sizes.append(sum(len(part.state) for part in self.optimizer.parts.values()))
        if (given["step"], given["index"]) == (2, 1) and len(sizes) < 8:
            raise ConnectionError
        return update(self, samples, **given)

    monkeypatch.setattr(PolicyLearner, "update", counted)
    with pytest.raises(ConnectionError):
        trained(guesser, coins_path, tmp_path / "twice")
    # Two steps of two updates, then one that begins without any moments.
    assert [size > 0 for size in sizes] == [False, True, True, True, False, True]
    sizes += [0, 0]
    _, _, resumed = trained(guesser, coins_path, tmp_path / "twice")
    assert resumed == digest


def test_the_policy_before_the_step_is_an_anchor_of_its_own(guesser, coins_path, tmp_path):
    both = {
        "kl": {"coefficient": 0.1},
        "before": {"kind": "kl", "anchor": "before", "coefficient": 0.1},
    }
    _, values, _ = trained(
        guesser,
        coins_path,
        tmp_path / "run",
        steps=2,
        algorithm={"regularizers": both},
        reference="frozen",
    )
    base, before = values["rl/kl/kl"], values["rl/before/kl"]
    # In the first step they are one policy, and in the second the one before it has moved on.
    assert base[0] == pytest.approx(before[0], abs=1e-6)
    assert before[0] > 0
    assert base[1] > before[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reference": "restart"}, "needs to know when"),
        ({"reference": {"kind": "restart", "metric": "rl/rewards"}}, "reference.metric.*rl/reward"),
        (
            {
                "algorithm": {
                    "regularizers": {
                        "kl": {
                            "coefficient": 1,
                            "anchor": "before",
                            "place": "reward",
                            "estimator": "k1",
                        }
                    }
                },
                "reference": "frozen",
            },
            "divergence from anchor before is 0",
        ),
    ],
)
def test_what_could_not_act_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        RlStageConfig.parse(SETTINGS | settings, where="rl")
