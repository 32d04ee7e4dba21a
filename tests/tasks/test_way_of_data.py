"""The ways of a score and of a learning rate through the learner, followed in a real update.

A file is on the way of a value where a frame of its code has the value in hand: in an argument, a
local variable or the result, as the number itself, in a tensor, or as a field of a record (a score,
a rollout, a batch, a section of the recipe), alone or in lists and mappings of any depth. What only
passes it on counts like what computes with it. A record of records does not count: whatever is
given the parameters of a stage, or the whole state of a run, would be on every way.

Every call and every return of first-party code is looked at, and at a call its caller too.
"""

import dataclasses
import sys
from pathlib import Path

import pytest
import torch
from pydantic import BaseModel

from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.exact import ExactVerifier
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.context import StageContext
from tasks.rl.stage import run

ROOT = Path(__file__).parents[2]
OURS = ("posttrain", "tasks", "flows")

# Numbers that nothing else comes to; float32 holds the score exactly.
SCORE = 0.75 + 2**-12
RATE = 3.1415926e-3

# Without a baseline, so that the score is the advantage.
RECIPE = f"""\
format: 2
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


def in_hand(value, mark, *, records=1):
    """True where a value is the mark, or holds it by way of at most so many records."""
    if isinstance(value, float):
        return value == mark
    if isinstance(value, torch.Tensor):
        return value.is_floating_point() and bool((value.detach() == mark).any())
    if isinstance(value, dict):
        inner, record = value.values(), False
    elif isinstance(value, list | tuple | set | frozenset):
        inner, record = value, hasattr(value, "_fields")
    elif isinstance(value, BaseModel):
        inner, record = value.__dict__.values(), True
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        inner, record = [getattr(value, name, None) for name in names], True
    else:
        return False
    left = records - record
    return left >= 0 and any(in_hand(each, mark, records=left) for each in list(inner))


class Way:
    """The first-party files that have a value in hand until a function returns.

    The way begins where `start` first returns; None for the very beginning. Functions are given by
    their qualified names.
    """

    def __init__(self, mark, *, start=None, end):
        self.mark, self.start, self.end = mark, start, end
        self.files, self.ended = [], False

    def __call__(self, frame, event, result):
        if self.ended or event not in ("call", "return") or file_of(frame) is None:
            return
        if self.start is None:
            self.look(frame, result if event == "return" else None)
            if event == "call" and frame.f_back is not None:
                self.look(frame.f_back)
        if event == "return":
            name = frame.f_code.co_qualname
            self.start = None if name == self.start else self.start
            self.ended = name == self.end

    def look(self, frame, result=None):
        file = file_of(frame)
        if file is None or file in self.files:
            return
        if in_hand([*frame.f_locals.values(), result], self.mark):
            self.files.append(file)

    def __enter__(self):
        sys.setprofile(self)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def __str__(self):
        return "\n".join([f"{len(self.files)} files:", *self.files])


def file_of(frame):
    """Path of a frame's file below the root, if it is ours."""
    file = frame.f_code.co_filename
    if not file.startswith(f"{ROOT}/"):
        return None
    found = file[len(str(ROOT)) + 1 :]
    return found if found.split("/")[0] in OURS else None


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
    assert not in_hand(Row(Row(SCORE)), SCORE)
    assert not in_hand([Row(0.5), "0.75"], SCORE)


def test_a_score_is_in_the_loss_after_at_most_ten_files(update, monkeypatch):
    """From what the verifier returns to the loss of a micro-batch."""
    monkeypatch.setattr(ExactVerifier, "score", lambda *_: Score(SCORE, "partly"))
    with Way(SCORE, start="Verifier.verify", end="policy_objective") as way:
        update()
    assert way.ended
    assert way.files[-1] == "posttrain/learning/algorithms/surrogates/clip.py", way
    print(way)
    assert len(way.files) <= 10, way


def test_a_learning_rate_is_in_the_step_after_at_most_twelve_files(update):
    """From the recipe's text to the optimizer's step, that of Muon and AdamW included."""
    with Way(RATE, end="Optimizer.step") as way:
        update()
    assert way.ended
    assert way.files[0] == "posttrain/pipeline/recipe.py", way
    assert "posttrain/learning/models/optim.py" in way.files, way
    print(way)
    assert len(way.files) <= 12, way
