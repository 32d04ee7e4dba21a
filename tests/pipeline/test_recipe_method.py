"""`method: NAME` at the top of a recipe: a method's settings lie under the recipe's own."""

from pathlib import Path

import pytest

from posttrain.learning.algorithms.presets import PRESETS
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.errors import UserError

ROOT = Path(__file__).parents[2]
HEAD = "flow: flows.post_training\nformat: 2\n"
MINE = """
name: mine
title: Mine
source: {paper: a note}
family: len
says: It says so.
sets:
"""


@pytest.fixture
def resolved(tmp_path):
    (tmp_path / ".dvc").mkdir()

    def resolve(text, *overrides, sets=None):
        if sets is not None:
            file = tmp_path / "methods" / "len" / "mine.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(MINE + sets)
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(HEAD + text)
        return load_recipe(recipe, overrides).resolve(ROOT).stages

    return resolve


def test_a_methods_settings_lie_under_the_recipes(resolved):
    sets = "  rl: {steps: 7, group_size: 3, draw: {max_rounds: 4, train_on: signal}}\n"
    rl = resolved("method: mine\nrl: {steps: 9, draw: {max_rounds: 2}}\n", sets=sets)["rl"].config
    assert (rl.steps, rl.group_size) == (9, 3)
    assert (rl.draw.max_rounds, rl.draw.train_on) == (2, "signal")


def test_an_algorithm_is_changed_switch_by_switch_and_replaced_by_name(resolved):
    changed = resolved("method: dapo\nrl: {algorithm: {surrogate: {high: 0.4}}}\n")["rl"].config
    dapo = PRESETS["dapo"].algorithm
    assert changed.algorithm.surrogate.high == 0.4
    assert changed.algorithm.advantage == dapo.advantage
    other = resolved("method: dapo\nrl: {algorithm: grpo}\n")["rl"].config
    assert other.algorithm == PRESETS["grpo"].algorithm
    named = resolved(
        "method: mine\nrl: {algorithm: {surrogate: {high: 0.4}}}\n", sets="  rl: {algorithm: dapo}"
    )["rl"].config
    assert named.algorithm == changed.algorithm


def test_it_may_be_named_on_the_command_line(resolved):
    assert resolved("", "method=grpo")["rl"].config.algorithm == PRESETS["grpo"].algorithm


def test_a_section_of_a_method_may_add_a_stage_and_none_that_the_flow_lacks(resolved):
    assert "preference" in resolved("method: simpo\n")
    with pytest.raises(UserError) as refused:
        resolved("method: mine\n", sets="  werewolf: {steps: 1}\n")
    assert str(refused.value).endswith(
        "recipe.yaml: the method mine sets werewolf, and the flow flows.post_training has no such"
        " stage; name a flow that has it, or another method"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("method: dappo\n", "there is no method 'dappo'; did you mean 'dapo'?"),
        ("method: [dapo]\n", "method: write the name of one method, got ['dapo']"),
    ],
)
def test_what_is_no_method_is_one_sentence(resolved, text, sentence):
    with pytest.raises(UserError) as refused:
        resolved(text)
    assert str(refused.value).endswith(sentence)


SLIP = "  rl: {algorithm: {surogate: {high: 0.3}}, problems_per_step: 4}\n"
MINUS = "problems_per_step: input should be greater than or equal to 1, got 0"


@pytest.mark.parametrize(
    ("text", "sets", "sentence"),
    [
        # It is the method's: the recipe says nothing of it, or other things.
        ("", SLIP, "mine.yaml: sets.rl.algorithm.surogate: unknown key; did you mean 'surrogate'?"),
        ("rl: {steps: 3}\n", "  rl: {inputs: {polcy: sft.policy}}\n",
         "mine.yaml: sets.rl.inputs.polcy: there is no such input; did you mean 'policy'?"),
        ("sft_2: {steps: 3}\n", "  sft: {stepz: 9}\n",
         "mine.yaml: sets.sft.stepz: unknown key; did you mean 'steps'?"),
        # The recipe's own slip is the recipe's.
        ("rl: {problems_per_step: 0}\n", "  rl: {steps: 3}\n", f"rl.{MINUS}"),
        ("rl: {problems_per_step: 0}\n", "  rl: {problems_per_step: 4}\n", f"rl.{MINUS}"),
    ],
)  # fmt: skip
def test_a_slip_is_blamed_on_the_file_that_it_stands_in(resolved, text, sets, sentence):
    with pytest.raises(UserError) as refused:
        resolved(f"method: mine\n{text}", sets=sets)
    assert str(refused.value).endswith(sentence)
    assert str(refused.value).startswith("rl.") == sentence.startswith("rl.")


def test_a_slip_of_the_method_that_one_is_like_is_blamed_on_that_ones_file(resolved, tmp_path):
    under = MINE.replace("name: mine", "name: under") + SLIP
    (tmp_path / "methods" / "len").mkdir(parents=True)
    (tmp_path / "methods" / "len" / "under.yaml").write_text(under)
    with pytest.raises(UserError, match=r"len/under\.yaml: sets\.rl\.algorithm\.surogate: unknown"):
        resolved("method: mine\n", sets="  rl: {steps: 3}\nlike: under\n")


def test_a_method_is_of_today_under_a_recipe_of_an_older_format(resolved):
    """What a section leaves out is as the method has it, not as it was of old."""
    sets = "  rl: {group_size: 3, optimization: {lr_schedule: cosine}}\n"
    old = "rl: {algorithm: {correction: {old: recomputed}}, optimization: {schedule: linear}}\n"
    rl = resolved(f"method: mine\n{old}", sets=sets)["rl"].config
    assert (rl.draw.sampler.kind, rl.draw.train_on, rl.group_size) == ("uniform", "all", 3)
    assert rl.algorithm.old_policy == "recomputed"
    assert rl.optimization.lr_schedule == "linear"
    # Of a section that the method does not set, the recipe's format decides.
    assert resolved("method: simpo\n")["rl"].config.draw.train_on == "signal"


def test_what_a_method_tells_is_in_no_key(resolved, tmp_path):
    sets = "  rl: {steps: 7}\n"
    before = resolved("method: mine\n", sets=sets)["rl"].config
    file = tmp_path / "methods" / "len" / "mine.yaml"
    file.write_text(file.read_text().replace("It says so.", "It says another thing."))
    assert resolved("method: mine\n")["rl"].config == before
