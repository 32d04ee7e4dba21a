"""A verdict that is the same is kept once; a claim knows its own runs, and what comes on top."""

import json
from dataclasses import replace
from types import SimpleNamespace

import click
import pytest

from posttrain.cli import method_run
from posttrain.cli.method_run import _base_told, _opened, below_base, checks_told
from posttrain.cli.method_verdict import keep_decided
from posttrain.methods.find import find_method, methods_of
from posttrain.pipeline.claim_recipe import values_of_claim
from posttrain.pipeline.plan import Decision
from posttrain.pipeline.verdicts import KeptVerdict, kept_verdicts
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.ledger import Run, StageRun, open_ledger
from posttrain.stage.errors import UserError, UserErrors

KEPT = KeptVerdict(
    "mine", "better", "confirmed", "so it is", 2, 3.0, "c0", "d0", {"rl": "k0"}, "a0"
)


def test_a_verdict_that_is_the_same_is_kept_once(tmp_path):
    with methods_of(tmp_path):
        assert keep_decided(tmp_path, KEPT).told == ("kept in methods/verdicts.jsonl",)
        # Nothing ran: the time is another one, and the project has gone on.
        again = replace(KEPT, minutes=0.0, commit="c1")
        assert keep_decided(tmp_path, again).told == ("kept already, and the same",)
        # Code moved, and it comes to the same.
        assert keep_decided(tmp_path, replace(KEPT, keys={"rl": "k1"})) == (
            (
                "the very same artifact as the verdict that was kept",
                "kept in methods/verdicts.jsonl",
            ),
            True,
        )
    assert len((tmp_path / "methods" / "verdicts.jsonl").read_text().splitlines()) == 2


DECIDED = {
    "metric": "pass_at_1", "is": "higher", "margin": 0.05, "better": "higher", "against": "plain",
    "ours": [0.6, 0.8], "theirs": [0.5, 0.5], "difference": 0.2, "low": 0.1, "high": 0.3,
    "outcome": "confirmed",
}  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "agrees", "told"),
    [
        ("confirmed", True, "confirmed: it agrees with the verdict that was kept, confirmed"),
        ("undecided", False, "undecided: it differs from the verdict that was kept, confirmed"),
    ],
)
def test_another_artifact_is_held_against_the_verdict_that_was_kept(
    tmp_path, verdict, agrees, told
):
    own = {**DECIDED, "difference": 0.15, "low": -0.02, "high": 0.32}
    with methods_of(tmp_path):
        keep_decided(tmp_path, replace(KEPT, decisions=[DECIDED]))
        again = replace(KEPT, verdict=verdict, artifact="a1", decisions=[own])
        kept = keep_decided(tmp_path, again)
        assert kept.agrees is agrees
        assert kept.told == (
            f"{told}, in another artifact",
            "  pass_at_1 +0.15 [-0.02, +0.32] (0.7 against 0.5 of plain), higher by 0.05;"
            " kept: pass_at_1 +0.2 [+0.1, +0.3] (0.7 against 0.5 of plain), higher by 0.05",
            "kept in methods/verdicts.jsonl",
        )
        assert kept_verdicts()["mine", "better"] == again


def test_a_verdict_without_figures_is_told_by_its_sentence(tmp_path):
    with methods_of(tmp_path):
        keep_decided(tmp_path, KEPT)
        other = replace(KEPT, sentence="so it still is", artifact="a1", decisions=[DECIDED])
        assert keep_decided(tmp_path, other).told[1:3] == (
            "  now: so it still is",
            "  kept: so it is",
        )


def test_a_claim_that_says_something_else_by_now_is_not_compared(tmp_path):
    with methods_of(tmp_path):
        keep_decided(tmp_path, KEPT)
        other = replace(KEPT, verdict="refuted", digest="d1", artifact="a1")
        assert keep_decided(tmp_path, other) == (
            (
                "the claim says something else than when it was decided before (confirmed), so the"
                " two are not compared",
                "kept in methods/verdicts.jsonl",
            ),
            True,
        )


def test_another_word_ends_the_command_with_1_when_all_have_run(monkeypatch, tmp_path):
    other = {"grpo": ["grpo.better"], "dpo": []}
    monkeypatch.setattr(method_run, "run_claims", lambda method, *_, **__: other[method.name])
    methods = [find_method(name).method for name in ("grpo", "dpo")]
    with pytest.raises(click.ClickException) as ended:
        method_run.run_methods(methods, [], tmp_path, seeds=None)
    assert ended.value.exit_code == 1
    assert ended.value.message == "not the verdict that was kept: grpo.better"
    method_run.run_methods(methods[1:], [], tmp_path, seeds=None)


def test_a_claim_is_named_where_its_word_is_another_one(monkeypatch, tmp_path):
    method = find_method("nsr").method
    first, *others = [each.name for each in method.claims]
    monkeypatch.setattr(method_run, "_run_claim", lambda _, claim, *__: claim.name != first)
    assert method_run.run_claims(method, [], tmp_path, seeds=None) == [f"nsr.{first}"]
    assert method_run.run_claims(method, others, tmp_path, seeds=None) == []


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
        return [f"{method.name}.better"] if method.name == "nsr" else []

    monkeypatch.setattr(method_run, "run_claims", run_claims)
    methods = [find_method(name).method for name in ("grpo", "nsr", "dpo", "dapo")]
    with pytest.raises(UserError) as refused:
        method_run.run_methods(methods, [], tmp_path, seeds=None)
    assert ran == ["grpo", "nsr", "dpo", "dapo"]
    assert refused.value.sentences == (
        "rl_1 is wrong",
        "rl_2 is wrong",
        "so is dpo",
        "not the verdict that was kept: nsr.better",
    )


def evaluated(folder, *seeds):
    """A session whose evaluations found these rates of each policy."""
    stages = {}
    for number, rates in enumerate(seeds, start=1):
        policies = [{"name": n, "pass_at": [{"k": 1, "value": r}]} for n, r in rates.items()]
        (folder / f"{number}.json").write_text(json.dumps({"policies": policies}))
        outputs = {"report": f"{number}.json"}
        stages[f"evaluate_{number}"] = SimpleNamespace(outputs=lambda outputs=outputs: outputs)
    where = SimpleNamespace(output=lambda name: folder / name)
    return SimpleNamespace(dag=SimpleNamespace(stages=stages), workspace=where)


def test_arms_that_all_fell_below_their_start_are_said_to(tmp_path):
    fell = {"mine": 0.3, "other": 0.5, "sft": 0.55}
    # Means: mine 0.35, other 0.45, start 0.5.
    again = {"mine": 0.4, "other": 0.4, "sft": 0.45}
    (told,) = below_base(evaluated(tmp_path, fell, again), ["mine", "other"], [1, 2])
    assert "(pass@1 mine 0.350, other 0.450; start 0.500)" in told
    held = {"mine": 0.4, "other": 0.6, "sft": 0.45}
    assert below_base(evaluated(tmp_path, fell, held), ["mine", "other"], [1, 2]) == []
    # An arm alone is compared with its start by the claim itself.
    assert below_base(evaluated(tmp_path, fell), ["mine"], [1]) == []


def test_a_check_is_told_with_its_figures_beside_what_was_asked():
    base = {"metric": "pass_at_1", "at": None, "values": [0.5], "holds": True}
    loss = {"metric": "rl/loss", "at": "last", "values": [0.25, None], "holds": False}
    decided = {
        "contract": [{**base, "asked": "at least 0.2 and at most 0.8"}],
        "mechanism": [{**loss, "asked": "at most 0.5"}],
    }
    assert [*checks_told(decided)] == [
        "contract: pass_at_1 0.5, at least 0.2 and at most 0.8 asked: holds",
        "mechanism: rl/loss (last) 0.25, n/a, at most 0.5 asked: does not hold",
    ]


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
