"""A verdict that is the same is kept once; who holds a claim's folder writes its recipe."""

from dataclasses import replace

import pytest

from posttrain.cli import method_run
from posttrain.cli.method_run import _keep, _opened
from posttrain.methods.find import find_method, methods_of
from posttrain.pipeline.verdicts import KeptVerdict
from posttrain.pipeline.workspace import Workspace
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
