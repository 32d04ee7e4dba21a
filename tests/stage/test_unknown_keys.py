"""What is suggested for a key that a config does not have: also one of a config within it."""

import pytest

from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError


class Rate(StageConfig):
    learning_rate: float = 0.1
    kind: str = "rate"


class Adapters(StageConfig):
    rank: int = 8
    again: "Adapters | None" = None


class Learner(StageConfig):
    lora: Adapters | None = None
    weights: Rate | Adapters = Rate()


class Section(StageConfig):
    learner: Learner = Learner()
    optimization: Rate = Rate()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        # Elsewhere, by this very name, before another one here; the shortest path.
        ({"learning_rate": 1}, "sft.learning_rate: unknown key; did you mean"
         " 'sft.optimization.learning_rate'?"),
        ({"learner": {"learning_rate": 1}}, "sft.learner.learning_rate: unknown key; did you mean"
         " 'sft.optimization.learning_rate'?"),
        ({"rank": 1}, "sft.rank: unknown key; did you mean 'sft.learner.lora.rank'?"),
        # Here, by nearly this name.
        ({"lerner": {}}, "sft.lerner: unknown key; did you mean 'learner'?"),
        # Elsewhere, by nearly this name, where nothing here is near.
        ({"lerning_rates": 1}, "sft.lerning_rates: unknown key; did you mean"
         " 'sft.optimization.learning_rate'?"),
        ({"beta": 1}, "sft.beta: unknown key"),
        # A value in the place of settings.
        ({"learner": "fast"}, "sft.learner: a mapping of lora, weights stands here, got 'fast'"),
        ({"kind": "adamw"}, "sft.kind: unknown key"),
    ],
)  # fmt: skip
def test_the_key_that_was_meant_is_named_wherever_it_stands(values, said):
    with pytest.raises(UserError) as refused:
        Section.parse(values, where="sft")
    assert str(refused.value) == said
