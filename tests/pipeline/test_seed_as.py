"""Two arms of a comparison can share their randomness."""

import json

import pytest

from posttrain.pipeline.determinism import derived_seed
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.errors import UserError

STAGE = """
import json
def run(config, inputs, outputs, context):
    outputs["result"].write_text(json.dumps({"sum": context.seed}))
    return {"sum": 0.0}
"""


def seeds(toy):
    """The seed that each stage was given when it last ran."""
    return {
        name: json.loads((toy.root / f"data/{name}/result.json").read_text())["sum"]
        for name in ("first", "second", "third")
    }


def test_stages_share_a_seed(toy):
    toy.write(f"{toy.package}/stage.py", STAGE)
    toy.recipe()
    before = toy.run()
    own = seeds(toy)
    assert own == {name: derived_seed(0, name) for name in ("first", "second", "third")}

    toy.recipe("third: {seed_as: second}\n")
    made = toy.run()
    assert {name: record.status for name, record in made.items()} == {
        "first": "cached",
        "second": "cached",
        "third": "succeeded",
    }
    assert seeds(toy) == {**own, "third": own["second"]}
    runtime = made["third"].components["runtime"]
    assert runtime["stage_seed"] == str(own["second"])
    assert before["third"].components["runtime"]["stage_seed"] == str(own["third"])
    assert "seed_as: second" in (toy.root / "params.yaml").read_text()
    # Another seed of the run is another seed of both.
    toy.run("run.seed=5")
    assert seeds(toy)["third"] == seeds(toy)["second"] == derived_seed(5, "second")


def test_a_name_of_their_own_is_shared_too(toy):
    toy.recipe("second: {seed_as: arms}\nthird: {seed_as: arms}\n")
    stages = load_recipe(toy.root).resolve(toy.root).stages
    assert [stage.seed_as for stage in stages.values()] == [None, "arms", "arms"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("third: {seed_as: secnd}", "third.seed_as: no other stage has the seed of 'secnd'; did"),
        ("third: {seed_as: arms}", "of 'arms'; name another stage, whose seed it shares"),
        ("third: {seed_as: third}", "third.seed_as: name another stage, whose seed it shares"),
        ("third: {seed_as: 3}", "third.seed_as: name another stage, whose seed it shares; got 3"),
        (
            "second: {seed_as: first}\nthird: {seed_as: second}",
            "third.seed_as: second itself takes the seed of first; name that one",
        ),
    ],
)
def test_a_seed_that_nobody_shares_is_refused(toy, text, sentence):
    toy.recipe(text + "\n")
    with pytest.raises(UserError) as caught:
        load_recipe(toy.root).resolve(toy.root)
    assert sentence in str(caught.value)
