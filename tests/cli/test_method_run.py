"""A verdict that is the same is kept once; a claim knows its own runs, and what comes on top."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from posttrain.cli import method_run
from posttrain.cli.method_run import _base_told, _keep, _opened
from posttrain.methods.find import find_method, methods_of
from posttrain.pipeline.claim_recipe import values_of_claim
from posttrain.pipeline.plan import Decision
from posttrain.pipeline.verdicts import KeptVerdict
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.ledger import Run, StageRun, open_ledger
from posttrain.stage.errors import UserError, UserErrors

KEPT = KeptVerdict(
    "mine", "better", "confirmed", "so it is", 2, 3.0, "c0", "d0", {"rl": "k0"}, "a0"
)


def test_a_verdict_that_is_the_same_is_kept_once(tmp_path):
    with methods_of(tmp_path):
        assert _keep(tmp_path, KEPT) == "kept in methods/verdicts.jsonl"
        # Nothing ran: the time is another one, and the project has gone on.
        again = replace(KEPT, minutes=0.0, commit="c1")
        assert _keep(tmp_path, again) == "kept already, and the same"
        assert _keep(tmp_path, replace(KEPT, artifact="a1")) == "kept in methods/verdicts.jsonl"
    assert len((tmp_path / "methods" / "verdicts.jsonl").read_text().splitlines()) == 2


def test_who_does_not_hold_a_claims_folder_leaves_its_recipe(tmp_path):
    folder = tmp_path / ".posttrain" / "claims" / "mine.better"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text("flow: flows.claim\n")
    with (
        Workspace(tmp_path, folder).locked("another"),
        pytest.raises(UserError, match="is locked by"),
        _opened(folder, {"flow": "flows.other"}, tmp_path, "this"),
    ):
        pass
    assert (folder / "recipe.yaml").read_text() == "flow: flows.claim\n"


def test_a_list_is_run_to_its_end_and_every_refusal_is_told(monkeypatch, tmp_path):
    refusals = {
        "grpo": UserErrors(["rl_1 is wrong", "rl_2 is wrong"]),
        "dpo": UserError("so is dpo"),
    }
    ran = []

    def run_claims(method, *_, **__):
        ran.append(method.name)
        if method.name in refusals:
            raise refusals[method.name]

    monkeypatch.setattr(method_run, "run_claims", run_claims)
    methods = [find_method(name).method for name in ("grpo", "nsr", "dpo", "dapo")]
    with pytest.raises(UserError) as refused:
        method_run.run_methods(methods, [], tmp_path, seeds=None)
    assert ran == ["grpo", "nsr", "dpo", "dapo"]
    assert refused.value.sentences == ("rl_1 is wrong", "rl_2 is wrong", "so is dpo")


def test_a_claim_that_never_ran_is_not_compared_with_another_one(posttrain, toy):
    """Stages of all claims have the same names, and the one says nothing of the other."""
    places = [f".posttrain/claims/mine.{name}/recipe.yaml" for name in ("better", "shorter")]
    for place, amount in zip(places, (1, 10), strict=True):
        toy.write(place, f"flow: {toy.flow}\nsecond: {{amount: {amount}}}\n")
    first, other = (place.removesuffix("/recipe.yaml") for place in places)
    assert posttrain("run", first, "--local").code == 0
    rows = [line.split() for line in posttrain("plan", other).out.splitlines()]
    (second,) = (row for row in rows if row[:1] == ["second"])
    assert " ".join(second[2:]) == "it never ran for this claim"
    toy.write(places[0], f"flow: {toy.flow}\nsecond: {{amount: 10}}\n")
    assert "parameter amount changed from 1 to 10" in posttrain("plan", first).out


def test_what_of_the_base_is_still_to_be_made_comes_on_top():
    method = find_method("nsr").method
    claim = method.claims[0]
    values = values_of_claim(method, claim, seeds=claim.seeds)
    stages = ["synthesize", "pretrain", "sft", "rl_nsr_1", "verdict"]

    def told(*to_run):
        planned = [Decision(each, "run" if each in to_run else "cached", ()) for each in stages]
        of = SimpleNamespace(dag=SimpleNamespace(order=lambda: stages), ledger=ledger)
        return _base_told(of, claim, values, planned)

    with open_ledger("sqlite:///:memory:") as ledger:
        assert told("rl_nsr_1", "verdict") == ""
        on_top = "the arena's base comes on top, once for all claims on it"
        assert told("pretrain", "sft", "rl_nsr_1") == (
            f"{on_top} (pretrain, sft): how long that takes is not known, as it was never made in"
            " this project"
        )
        ledger.begin_run(Run("r", f"nsr.{claim.name}", 0.0))
        for stage, seconds in (("pretrain", 200.0), ("sft", 25.0)):
            ledger.record(StageRun(stage, "r", stage, "t", stage * 8, "succeeded", 0.0, seconds))
        # 200 s and 25 s.
        assert told("pretrain", "sft") == (
            f"{on_top} (pretrain, sft): 3 min 45 s, as long as it took before"
        )
        assert told("synthesize", "sft") == (
            f"{on_top} (synthesize, sft): at least 25 s, as long as it took before"
        )
