"""Claims of the methods that a recipe names: which these are, and where a run's page shows them."""

import re
from dataclasses import replace

import pytest

from posttrain.methods.find import methods_of
from posttrain.pipeline.gathered_claims import claims_of_recipe
from posttrain.pipeline.recipe_values import RecipeValues, RunSettings
from posttrain.pipeline.verdicts import KeptVerdict, keep_verdict, kept_verdicts
from posttrain.stage.errors import UserError

METHOD = """
name: {name}
title: Mine
source: {{paper: a note}}
family: {family}
says: It says so.
sets: {sets}
"""
CLAIMS = """
claims:
- name: better
  says: It is better.
  arena: sums
  against: {plain: {method: reinforce}}
  matched: rollouts
  decide: [{metric: pass_at_1, is: higher, margin: 0.01}]
  seeds: 2
  minutes: 1
"""
DECIDED = {
    "metric": "pass_at_1", "is": "higher", "margin": 0.01, "better": "higher", "against": "plain",
    "ours": [0.6, 0.8], "theirs": [0.5, 0.5], "difference": 0.2, "low": 0.1, "high": 0.3,
    "outcome": "confirmed",
}  # fmt: skip
LOST = "c0ffee" + "0" * 34


def write(root, name, *, family="pg", sets="{}", claims=CLAIMS):
    file = root / "methods" / family / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(METHOD.format(name=name, family=family, sets=sets) + claims)


def keep(root, name, **said):
    kept = KeptVerdict(name, "better", "confirmed", "so", 2, 1.0, "", "d0", {}, "a0", [DECIDED])
    with methods_of(root):
        return keep_verdict(root, replace(kept, **said))


def claimed(root, *, method="", place="recipe.yaml", **sections):
    recipe = RecipeValues(root / place, "flows.x", RunSettings(), sections, method=method)
    return claims_of_recipe(recipe, root)


def test_claims_are_of_the_method_and_of_the_algorithms_that_sections_name(tmp_path):
    for name in ("mine", "of_rl", "of_pairs", "unused"):
        write(tmp_path, name)
    write(tmp_path, "silent", claims="")
    keep(tmp_path, "mine")
    rows = claimed(
        tmp_path,
        method="mine",
        rl={"algorithm": {"preset": "of_rl"}},
        preference={"algorithm": "of_pairs"},
        other={"algorithm": {"preset": "silent"}},
        # Said by what it is made of, or a name that is no method's.
        third={"algorithm": {"surrogate": {"high": 0.3}}},
        fourth={"algorithm": "adam"},
        fifth={},
    )
    assert [(row.method, row.verdict) for row in rows] == [
        ("mine", "confirmed"), ("of_rl", "not run"), ("of_pairs", "not run"),
    ]  # fmt: skip
    # What it rests on are other keys by now.
    assert [row.stale for row in rows] == [True, False, False]
    assert [row.against for row in rows] == ["plain"] * 3
    assert claimed(tmp_path) == claimed(tmp_path, method="silent") == []


def test_the_recipe_of_a_claim_names_its_method(tmp_path):
    write(tmp_path, "mine")
    rows = claimed(tmp_path, place=".posttrain/claims/mine.better/recipe.yaml")
    assert [row.method for row in rows] == ["mine"]


def test_a_method_that_is_named_twice_is_told_once(tmp_path):
    write(tmp_path, "mine")
    assert len(claimed(tmp_path, method="mine", rl={"algorithm": "mine"})) == 1


def test_the_file_of_another_method_may_be_wrong_but_not_its_own(tmp_path):
    write(tmp_path, "mine")
    write(tmp_path, "wrong", claims="claim: 1")
    assert len(claimed(tmp_path, method="mine")) == 1
    with pytest.raises(UserError, match=r"wrong\.yaml"):
        claimed(tmp_path, method="wrong")


@pytest.mark.parametrize("claims", [CLAIMS, ""])
def test_the_page_of_a_run_shows_them(posttrain, toy, claims):
    sets = "{second: {amount: 7}}"
    write(toy.root, "mine", sets=sets, claims=claims)
    toy.write("recipe.yaml", f"flow: {toy.flow}\nmethod: mine\n")
    file = keep(toy.root, "mine", commit="c0ffee")
    assert posttrain("run", "--local").code == 0
    page = (toy.root / "report.html").read_text()
    assert "A section was left out" not in page
    found = re.findall(r'<section id="claims">.*?</section>', page, re.DOTALL)
    if not claims:
        assert found == []
        return
    (row,) = re.findall(r"<tr class=.confirmed.>.*?</tr>", found[0], re.DOTALL)
    text = " ".join(re.sub(r"<[^>]+>", " ", row).split())
    assert text == (
        "pg mine better sums plain pass_at_1 +0.2 [+0.1, +0.3] (0.7 against 0.5 of plain),"
        " higher by 0.01 confirmed (stale) 2 1.0"
    )
    # A line that is wrong costs the page its claims, and nothing else.
    file.write_text("{}\n")
    toy.write("recipe.yaml", f"flow: {toy.flow}\nmethod: mine\nsecond: {{amount: 8}}\n")
    assert posttrain("run", "--local").code == 0
    page = (toy.root / "report.html").read_text()
    assert "A section was left out: claims: UserError: " in page
    assert "this is no verdict" in page


def test_commits_that_history_has_not_are_counted_below_the_table(posttrain, toy, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("posttrain.pipeline.gathered_claims.standing_verdicts", lambda *_: {})
    assert kept_verdicts()["dler", "shorter_and_as_right"].commit
    # What ships was decided in another history.
    assert "history" not in posttrain("method", "claims", "--family", "len").out
    write(toy.root, "mine", family="len")
    keep(toy.root, "mine", commit=LOST)
    told = posttrain("method", "claims", "--family", "len").out
    assert "\n1 verdict of a commit that is not in this history\n" in told
