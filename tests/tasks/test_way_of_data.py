"""The ways of a score and of a learning rate through the learner, followed in a real update.

A file is on the way of a value where a frame of its code has the value in hand (`tests.way`): as
the number itself, in a tensor, or as a field of a record (a score, a rollout, a batch, a section of
the recipe), alone or in lists and mappings of any depth. A record of records does not count:
whatever is given the parameters of a stage, or the whole state of a run, would be on every way.
"""

import dataclasses

import pytest
import torch

from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.exact import ExactVerifier
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.context import StageContext
from tasks.rl.stage import run
from tests.way import ROOT, Way, in_hand

# Numbers that nothing else comes to; float32 holds the score exactly.
SCORE = 0.75 + 2**-12
RATE = 3.1415926e-3

# Without a baseline, so that the score is the advantage.
RECIPE = f"""\
format: 3
flow: flows.post_training
rl:
  steps: 1
  problems_per_step: 3
  group_size: 2
  max_tokens: 8
  algorithm: {{advantage: {{baseline: none}}}}
  reward: {{components: {{correct: {{kind: verifier, graded: true}}}}}}
  draw: {{sampler: uniform}}
  optimization: {{learning_rate: {RATE}, warmup_steps: 0}}
  checkpoint_every: 0
"""


@pytest.fixture
def update(guesser, coins_path, tmp_path):
    """Read a recipe and make its one update."""
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE)

    def make():
        config = load_recipe(file).resolve(ROOT).stages["rl"].config
        outputs = {name: tmp_path / name for name in ("policy", "rollouts", "curve", "report")}
        given = {"policy": guesser, "problems": coins_path}
        run(config, given, outputs, StageContext.quiet(tmp_path / "scratch", seed=0))

    return make


def test_what_is_in_hand():
    @dataclasses.dataclass
    class Row:
        reward: object

    assert in_hand([[Row(SCORE)]], SCORE)
    assert in_hand({"a": torch.tensor([0.0, SCORE])}, SCORE)
    # A loss goes down where a score goes up.
    assert in_hand([-SCORE], SCORE)
    assert in_hand(-torch.tensor([0.0, SCORE]), SCORE)
    assert not in_hand(Row(Row(SCORE)), SCORE)
    assert not in_hand([Row(0.5), "0.75"], SCORE)


def test_a_score_is_in_the_loss_after_at_most_twenty_four_files(update, monkeypatch):
    """From what the verifier returns to the loss of a micro-batch."""
    monkeypatch.setattr(ExactVerifier, "score", lambda *_: Score(SCORE, "partly"))
    with Way(SCORE, start="Verifier.verify", end="policy_objective") as way:
        update()
    assert way.ended
    # Where the losses of tokens become one number: had the count stopped early, it were missing.
    assert way.files[-1] == "posttrain/learning/maths/reduce.py", way
    print(way)
    # Four are rewards', which know no algorithm, and of which asking verifiers is one; nine are of
    # rollouts and their batches: several algorithms share them, other processes and policies of
    # several steps may have drawn some, and a part of two files chooses some; eleven are the
    # learner's: credit, loss, checks, failures and arithmetic are a file each, as its parts are.
    assert len(way.files) <= 24, str(way)


@pytest.mark.slow
def test_a_learning_rate_is_in_the_step_after_at_most_seventeen_files(update):
    """From the recipe's text to the optimizer's step, that of Muon and AdamW included."""
    with Way(RATE, end="Optimizer.step") as way:
        update()
    assert way.ended
    assert way.files[0] == "posttrain/pipeline/recipe_file.py", way
    assert "posttrain/learning/models/optim.py" in way.files, way
    print(way)
    # Twelve, and three that make a section from a method and a preset: `methods.lay` lays what both
    # say over each other, `algorithms.presets` puts a preset's algorithm in the place of its name,
    # and `pipeline.left_out` looks for a null that leaves out nothing. A profile lays its defaults
    # below what the recipe says, and an optimizer of any kind is built in one place.
    assert len(way.files) <= 17, way
