"""`posttrain method`: the catalog, what a name stands for, and how two differ."""

import json
import signal
from pathlib import Path

import pytest

from posttrain.cli import method_list, method_run
from posttrain.cli.main import cli
from posttrain.learning.algorithms.identity import canonical, digest, flat
from posttrain.learning.algorithms.presets import PREFERENCE_PRESETS, PRESETS
from posttrain.methods.find import every_method, find_method, methods_of
from posttrain.methods.systems import published_systems
from posttrain.pipeline import gathered_claims, verdicts
from posttrain.pipeline.method_checks import keep_checks, made_check
from posttrain.pipeline.verdicts import KeptVerdict
from posttrain.provenance.ledger import Run, open_ledger
from posttrain.stage.interrupts import Interrupted


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


LOOKED_AT = {}
"""What was found of the verdicts on a method, by its name."""


@pytest.fixture(autouse=True)
def _verdicts_are_looked_at_once(monkeypatch):
    """All claims' stages are planned for it, which takes seconds, and comes to the same here."""
    look = verdicts.standing_verdicts

    def once(methods, root):
        anew = [each for each in methods if each.method.name not in LOOKED_AT]
        found = look(anew, root)
        LOOKED_AT.update({each.method.name: {} for each in anew})
        for (name, claim), word in found.items():
            LOOKED_AT[name][name, claim] = word
        return {
            claim: word for each in methods for claim, word in LOOKED_AT[each.method.name].items()
        }

    for module in (verdicts, gathered_claims, method_list):
        monkeypatch.setattr(module, "standing_verdicts", once)


def lines(text):
    return [line.split("\t") for line in text.splitlines()]


# Who lists them all has the stages of every claim planned.
@pytest.mark.slow
@pytest.mark.core
def test_every_published_system_is_listed_once_with_its_state(posttrain):
    heading, *rows = lines(posttrain("method", "list", "--tsv").out)
    assert heading == ["system", "family", "kind", "state", "file", "claims", "missing"]
    assert [row[:3] for row in rows] == [
        [each.name, each.family, each.kind] for each in published_systems()
    ]
    assert len(rows) == 235
    known = {row[0]: dict(zip(heading, row, strict=True)) for row in rows}
    assert known["LD-DPO"]["file"] == "posttrain/methods/pref/ld_dpo.yaml"
    assert known["BGPO (diffusion LLMs)"]["state"] == "y"
    assert {row[3] for row in rows} <= {"y", "text", "p", "-"}
    assert all(row["missing"] for row in known.values() if row["state"] not in ("y", "text"))


@pytest.mark.slow
@pytest.mark.core
def test_the_list_is_filtered_by_family_and_by_state(posttrain):
    _, *rows = lines(posttrain("method", "list", "--tsv", "--family", "rub", "--state", "-").out)
    assert rows
    assert {(row[1], row[3]) for row in rows} == {("rub", "-")}
    said = posttrain("method", "list", "--family", "lne")
    assert (said.code, said.sentence) == (2, "there is no family 'lne'; did you mean 'len'?")


@pytest.mark.slow
@pytest.mark.core
def test_base_methods_stand_beside_the_systems(posttrain):
    told = posttrain("method", "list").out
    for name, found in every_method().items():
        assert any(name in line.split() for line in told.splitlines()), name
        beside = found.method.system or " ".join(found.method.says.split()[:3])
        assert beside in told
    assert "235 published systems: " in told
    # What they claim stands beside them, as it does beside the systems.
    assert "format_gate.beats_format_alone" in "".join(told.split())


# All of them take a minute; which tenth is quick moves on as methods are added.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if place % 10 == 0 else pytest.mark.slow)
        for place, name in enumerate([*PRESETS, *PREFERENCE_PRESETS])
    ],
)
def test_show_prints_switches_equation_source_and_hash(posttrain, name):
    shown = posttrain("method", "show", name)
    assert shown.code == 0
    section = "rl" if name in PRESETS else "preference"
    preset = {**PRESETS, **PREFERENCE_PRESETS}[name]
    assert f"{section}.algorithm sha256 {digest(preset.algorithm)}" in shown.out
    for path, value in flat(preset.algorithm).items():
        place = f"{section}.algorithm.{path} "
        row = next(line for line in shown.out.splitlines() if line.startswith(place))
        assert row.split()[1] == json.dumps(value).strip('"').split()[0]
    words = " ".join(shown.out.split())
    method = find_method(name).method
    for text in (*preset.equation.splitlines(), preset.source, preset.note, method.says):
        assert " ".join(text.split()) in words


def test_a_switch_stands_beside_its_default_where_it_has_another(posttrain):
    rows = [line.split() for line in posttrain("method", "show", "grpo").out.splitlines()]
    assert ["rl.algorithm.advantage.scale", "sample", "none"] in rows
    assert ["rl.algorithm.surrogate.low", "0.2"] in rows


def test_show_as_json_holds_the_text_that_is_hashed(posttrain):
    told = json.loads(posttrain("method", "show", "dapo", "-o", "json").out)
    assert told["rl.algorithm"]["digest"] == digest(PRESETS["dapo"].algorithm)
    assert told["rl.algorithm"]["canonical"] == canonical(PRESETS["dapo"].algorithm)
    assert told["rl.algorithm"]["switches"]["surrogate"]["high"] == 0.28
    assert "2503.14476" in told["source"]["paper"]


def test_show_finds_a_digest_of_today_and_of_version_0_1(posttrain):
    named = posttrain("method", "show", "grpo").out
    assert posttrain("method", "show", digest(PRESETS["grpo"].algorithm)).out == named
    assert posttrain("method", "show", "650b55e45c0f").out == named
    assert posttrain("method", "show", "00000000").code == 2


@pytest.mark.slow
def test_a_digest_of_version_0_1_of_what_is_another_algorithm_by_now_says_so(posttrain):
    named, of_then = posttrain("method", "show", "cispo").out, "87dc578dd8d2"
    shown = posttrain("method", "show", of_then).out
    note = (
        f"note: {of_then} is cispo of version 0.1, where there was no penalty for length; this is"
        " cispo of today\n"
    )
    assert shown.replace(note, "") == named != shown
    told = json.loads(posttrain("method", "show", of_then, "-o", "json").out)
    assert told["remark"] in note
    assert "remark" not in json.loads(posttrain("method", "show", "cispo", "-o", "json").out)
    today = digest(PRESETS["cispo"].algorithm)
    assert posttrain("method", "show", today).out == named


def test_show_says_what_each_switch_does_when_asked(posttrain):
    assert "How far above 1" in posttrain("method", "show", "dapo", "-v").out
    assert "How far above 1" not in posttrain("method", "show", "dapo").out


def test_show_says_where_a_ratio_stays_1(posttrain):
    said = "note: rl: surrogate clip never sees a ratio other than 1"
    assert said in posttrain("method", "show", "grpo").out
    assert said not in posttrain("method", "show", "gspo").out


def test_diff_names_the_switches_that_differ_and_only_those(posttrain):
    shown = posttrain("method", "diff", "grpo", "grpo_verl")
    assert shown.code == 0
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[0] == ["switch", "grpo", "grpo_verl"]
    assert rows[2:] == [
        ["rl.algorithm.advantage.epsilon", "0.0", "1e-06"],
        ["rl.algorithm.aggregation.kind", "sequence_mean_token_mean", "token_mean"],
        ["rl.algorithm.old_policy", "engine", "recomputed"],
        ["rl.algorithm.regularizers.kl.ceiling", "null", "10.0"],
        ["rl.algorithm.regularizers.kl.coefficient", "0.04", "0.001"],
        ["rl.algorithm.surrogate.dual", "null", "3.0"],
        ["rl.updates.minibatches", "1", "4"],
    ]
    other = json.loads(posttrain("method", "diff", "dapo", "default", "-o", "json").out)
    assert other["rl.algorithm.advantage.scale"] == ["sample", "none"]
    assert "rl.algorithm.surrogate.high" not in other
    same = posttrain("method", "diff", "grpo", "grpo").out
    assert same.startswith("grpo and grpo are one method: ")


def test_switches_that_only_one_side_has_are_told_as_such(posttrain):
    rows = posttrain("method", "diff", "grpo", "ppo").out.splitlines()
    row = next(line.split() for line in rows if line.startswith("rl.algorithm.advantage.lam"))
    assert row == ["rl.algorithm.advantage.lam", "-", "0.95"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "gropo"], "there is no method 'gropo'; did you mean 'grpo'?"),
        (["diff", "grpo", "dappo"], "there is no method 'dappo'; did you mean 'dapo'?"),
        (["show", "xyzzy"], "there is no method 'xyzzy'; posttrain method list names them all"),
        (["show", "no/recipe.yaml"], "there is no recipe at no/recipe.yaml; name one, or a method"),
        (
            ["show", "recipe.yaml"],
            "recipe.yaml: no stage of this recipe has an algorithm; name another recipe",
        ),
    ],
)
def test_what_there_is_not_is_one_sentence(posttrain, arguments, sentence):
    said = posttrain("method", *arguments)
    assert said.code == 2
    assert said.sentence == sentence


def test_methods_of_other_sections_are_not_compared(posttrain):
    told = posttrain("method", "diff", "dpo", "grpo")
    assert told.code == 2
    assert "dpo and grpo have no switch in common" in told.err
    told = posttrain("method", "diff", "dpo", "ipo", "-o", "json")
    assert json.loads(told.out) == {"preference.algorithm.loss": ["sigmoid", "ipo"]}


def test_an_unknown_name_is_looked_for_among_both_kinds(posttrain):
    assert "did you mean 'simpo'?" in posttrain("method", "show", "simppo").err
    # An arena can be shown, and its metrics cannot be listed.
    assert "did you mean 'ladder'?" in posttrain("method", "show", "lader").err
    assert "ladder" not in posttrain("method", "metrics", "lader").err


def test_metrics_are_listed_while_a_claim_names_what_there_is_not(posttrain, toy):
    toy.write("methods/pg/mine.yaml", SLIP.replace("pass_at_1", "rl/zzqq"))
    told = posttrain("method", "show", "mine")
    assert told.sentence == (
        "methods/pg/mine.yaml: claims.better.decide: arm mine measures no 'rl/zzqq';"
        " posttrain method metrics mine lists what there is"
    )
    listed = posttrain("method", "metrics", "mine")
    assert listed.code == 0
    assert "rl/clip_fraction" in listed.out


def test_a_method_names_parts_of_the_projects_plug_ins(posttrain, toy):
    plugin = Path(__file__).parents[1] / "extend" / "plugins" / "my_token_weight.py"
    toy.write("surprise_part.py", plugin.read_text())
    toy.recipe(f"flow: {toy.flow}\nplugins: [surprise_part]\n")
    toy.write(
        "methods/pg/mine.yaml",
        "name: mine\ntitle: Mine\nsource: {paper: a note}\nfamily: pg\nsays: It does.\n"
        "sets: {rl: {algorithm: {token_weights: {surprise: {power: 0.5}}}}}\n",
    )
    shown = posttrain("method", "show", "mine")
    assert shown.code == 0
    assert ["rl.algorithm.token_weights.surprise.power", "0.5"] in [
        line.split()[:2] for line in shown.out.splitlines()
    ]


def test_a_plug_in_that_is_not_there_is_told_of_the_recipe_that_names_it(posttrain, toy):
    toy.recipe(f"flow: {toy.flow}\nplugins: [surprise_prt]\n")
    toy.write(
        "methods/pg/mine.yaml",
        "name: mine\ntitle: Mine\nsource: {paper: a note}\nfamily: pg\nsays: It does.\n"
        "sets: {rl: {algorithm: {token_weights: {surprise: {power: 0.5}}}}}\n",
    )
    for verb in ("show", "metrics"):
        said = posttrain("method", verb, "mine")
        assert said.code == 2
        assert said.sentence.startswith("recipe.yaml: plugins: the module 'surprise_prt' is not")


CLAIMING = """name: mine
title: Mine
source: {paper: a note}
family: pg
system: SYSTEM
says: It does.
sets: {rl: {group_size: 4}}
claims:
- name: better
  says: Is better.
  arena: ARENA
  against: {plain: {ARM}}
  matched: rollouts
  decide: [{metric: pass_at_1, is: higher, margin: 0.01}]
  seeds: 2
  minutes: 1
"""


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            {"SYSTEM": "Lite PPO (Tricks or Trap)"},
            "there is no 'Lite PPO (Tricks or Trap)'; did you mean 'Lite PPO (Tricks or Traps)'?",
        ),
        (
            {"ARENA": "summs"},
            "methods/pg/mine.yaml: claims.better.arena: there is no arena 'summs'; did you mean"
            " 'sums'?",
        ),
        (
            {"ARENA": "Sums"},
            "methods/pg/mine.yaml: claims.better.arena: string should match",
        ),
        (
            {"ARM": "method: grppo"},
            "methods/pg/mine.yaml: claims.better.against.plain.method: there is no method 'grppo';"
            " did you mean 'grpo'?",
        ),
        ({"ARM": "rll: {steps: 3}"}, "rll"),
    ],
)
@pytest.mark.parametrize("verb", ["show", "check", "run"])
def test_what_a_file_names_is_looked_up_before_anything_runs(posttrain, toy, verb, said, sentence):
    text = CLAIMING
    for word, other in ({"SYSTEM": '""', "ARENA": "sums", "ARM": ""} | said).items():
        text = text.replace(word, other)
    toy.write("methods/pg/mine.yaml", text)
    told = posttrain("method", verb, "mine")
    assert told.code == 2
    assert sentence in told.sentence
    assert not told.out


def test_where_nothing_is_stale_it_says_so(posttrain):
    assert posttrain("method", "recheck", "dapo").out == "nothing is claimed\n"


@pytest.mark.slow
@pytest.mark.core
def test_a_file_that_is_wrong_is_named_behind_all_the_others(posttrain, toy):
    toy.write("methods/pg/mine.yaml", "name: mine\ntitel: Mine\nfamily: pg\n")
    told = posttrain("method", "list", "--family", "pg")
    assert told.code == 2
    assert any(line.split()[:1] == ["grpo"] for line in told.out.splitlines())
    assert "methods/pg/mine.yaml" in told.sentence
    assert "titel" in told.sentence
    assert posttrain("method", "list", "--tsv").code == 2


PLAIN = """name: mine
title: Mine
source: {paper: a note}
family: sys
says: It does.
sets: {rl: {group_size: 4}}
"""
SLIP = CLAIMING.replace("SYSTEM", '""').replace("ARENA", "sums").replace("ARM", "method: grpo")
SLIPS = {
    "its settings": (
        SLIP.replace("group_size: 4", "algorithm: {surogate: {high: 0.3}}"),
        "methods/pg/mine.yaml: sets.rl.algorithm.surogate: unknown key; did you mean 'surrogate'?",
    ),
    "a section": (
        SLIP.replace("rl: {group_size: 4}", "rll: {group_size: 4}"),
        "methods/pg/mine.yaml: sets.rll: there is no such section; did you mean 'rl'?",
    ),
    "an arm": (
        SLIP.replace("method: grpo", "rl: {draw: {max_round: 2}}"),
        "methods/pg/mine.yaml: claims.better.against.plain.rl.draw.max_round: unknown key; did you"
        " mean 'max_rounds'?",
    ),
    "the metric of a mechanism": (
        SLIP.replace("decide:", "mechanism: [{metric: rl/clip_fractio, at_least: 0}]\n  decide:"),
        "methods/pg/mine.yaml: claims.better.mechanism: arm mine measures no 'rl/clip_fractio'; did"
        " you mean 'rl/clip_fraction'?",
    ),
}


# The verdicts on all methods of a family are looked at for it.
@pytest.mark.slow
@pytest.mark.parametrize(("text", "sentence"), SLIPS.values(), ids=SLIPS)
def test_a_slip_in_a_method_is_told_at_its_place_and_the_others_are_listed(
    posttrain, toy, text, sentence
):
    toy.write("methods/pg/mine.yaml", text)
    toy.write("methods/pg/other.yaml", "name: other\ntitel: Other\nfamily: pg\n")
    told = posttrain("method", "list", "--family", "pg")
    assert told.code == 2
    assert any(line.split()[:1] == ["grpo"] for line in told.out.splitlines())
    assert not any(line.split()[:1] == ["mine"] for line in told.out.splitlines())
    assert told.err.splitlines() == [
        "error: methods/pg/other.yaml: titel: unknown key; did you mean 'title'?",
        f"error: {sentence}",
    ]
    for verb in ("show", "run"):
        assert posttrain("method", verb, "mine").sentence == sentence


@pytest.mark.slow
def test_the_list_says_which_check_is_stale(posttrain, toy, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    for name in ("mine", "yours"):
        toy.write("methods/sys/" + name + ".yaml", PLAIN.replace("mine", name))
    with methods_of(toy.root):
        found = [find_method(name) for name in ("mine", "yours")]
        said = {"passed": True, "says": "so it is", "commit": ""}
        keep_checks(toy.root, [made_check(each, "switches", toy.root, **said) for each in found])
    toy.write("methods/sys/mine.yaml", PLAIN.replace("group_size: 4", "group_size: 2"))
    rows = posttrain("method", "list", "--family", "sys").out.splitlines()
    told = {name: "stale check" in row for row in rows for name in row.split()[:1]}
    assert (told["mine"], told["yours"]) == (True, False)


def test_a_wrong_file_does_not_answer_for_a_name_that_there_is_not(posttrain, toy):
    toy.write("methods/pg/mine.yaml", "name: mine\ntitel: Mine\nfamily: pg\n")
    toy.write("methods/pg/other.yaml", SLIPS["its settings"][0].replace("mine", "other"))
    said = posttrain("method", "show", "gropo")
    assert (said.code, said.sentence) == (2, "there is no method 'gropo'; did you mean 'grpo'?")
    of_grpo = digest(PRESETS["grpo"].algorithm)
    assert posttrain("method", "show", of_grpo).out.startswith("grpo ")


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("failed", "its last run failed; what was done is kept: "),
        ("stopped", "its last run was stopped; what was done is kept: "),
        ("succeeded", "not run"),
    ],
)
def test_a_claim_whose_run_was_broken_off_is_not_one_that_was_never_run(
    posttrain, toy, status, told
):
    toy.write("methods/pg/mine.yaml", SLIP)
    command = "posttrain method run mine --claim better"
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        ledger.begin_run(Run("r0", "claim", 1.0, command))
        ledger.finish_run("r0", status, 2.0)
    line = told + command if told.endswith(": ") else told
    assert f"  {line}\n" in posttrain("method", "show", "mine").out


def test_a_verdict_says_where_it_was_decided_and_which_arms_were_equal(posttrain, toy):
    toy.write("methods/pg/mine.yaml", SLIP)
    decision = {"metric": "pass_at_1", "is": "higher", "margin": 0.01, "against": "plain"}
    figures = {"better": "higher", "difference": 0.0, "low": 0.0, "high": 0.0, "outcome": "refuted"}
    equal = {**decision, **figures, "ours": [0.5, 0.25], "theirs": [0.5, 0.25]}
    kept = KeptVerdict(
        "mine", "better", "refuted", "refuted: so it is", 2, 1.0, "", "", {}, "00", [equal]
    )
    with methods_of(toy.root):
        verdicts.keep_verdict(toy.root, kept)
    LOOKED_AT.clear()
    shown = posttrain("method", "show", "mine").out
    assert "  stale, it was refuted: so it is\n  decided on code that was not committed\n" in shown
    assert (
        "  in all 2 seeds mine and plain came to the same pass_at_1: the mechanism may not have"
        " acted; posttrain method check mine\n"
    ) in shown
    rows = json.loads(posttrain("method", "claims", "--family", "pg", "-o", "json").out)
    (row,) = (row for row in rows if row["method"] == "mine")
    assert row["commit"] is None
    LOOKED_AT.clear()


def test_of_a_list_that_is_broken_off_it_is_said_what_is_done(toy, monkeypatch, capsys):
    def run(method, claims, root, *, seeds):
        if method.name == "nsr":
            raise Interrupted(signal.SIGTERM)
        return []

    monkeypatch.chdir(toy.root)
    monkeypatch.setattr(method_run, "run_claims", run)
    with pytest.raises(Interrupted):
        cli.main(["method", "run", "dler", "nsr", "sapo"], standalone_mode=False)
    assert capsys.readouterr().err == (
        "dler done; nsr broken off, of which all finished stages are kept; the same command goes"
        " on there\n"
    )


def test_a_claim_is_named_of_one_method(posttrain):
    said = posttrain("method", "run", "dler", "nsr", "--claim", "keeps_ways")
    assert (said.code, said.sentence) == (2, "--claim is of one method; name that alone")


def test_a_check_has_no_place_outside_of_a_project(posttrain, tmp_path_factory, monkeypatch):
    bare = tmp_path_factory.mktemp("bare")
    monkeypatch.chdir(bare)
    told = posttrain("method", "check", "grpo")
    assert told.code == 2
    assert "is not inside a posttrain project" in told.sentence
    assert not list(bare.iterdir())


@pytest.mark.slow
def test_show_says_what_a_method_reads_and_what_its_claims_compare(posttrain):
    shown = posttrain("method", "show", "asking").out
    assert "sft.traces from synthesize.corpus, which the method sets" in shown
    assert "  arena booking, equal updates" in shown
    assert "  arm acts_at_once: {synthesize: {sources: [{kind: world," in shown
    rehearsed = posttrain("method", "show", "dph_rl").out
    assert "rl.rehearsals.mastered from probe.samples, which recipes have" in rehearsed
    assert "\nreads\n" not in posttrain("method", "show", "grpo").out


def test_what_claims_are_compared_with_is_listed_before_they_are_run(posttrain, toy):
    decided = "decide: [{metric: pass_at_1, is: higher, margin: 0.01}"
    more = f"{decided}, {{metric: mean_length, is: lower, margin: 0, than: 22}}"
    base = f"{more}, {{metric: pass_at_1, is: higher, margin: 0, against: base}}"
    toy.write("methods/pg/mine.yaml", SLIP.replace(decided, base))
    rows = json.loads(posttrain("method", "claims", "--family", "pg", "-o", "json").out)
    (row,) = (row for row in rows if row["method"] == "mine")
    assert row["compared"] == ["plain", "than 22", "base"]
    assert all(row["compared"] or row["figures"] for row in rows)


def test_what_a_claim_may_name_is_listed_as_the_method_is_set(posttrain, toy):
    toy.write(
        "methods/pg/mine.yaml",
        "name: mine\ntitle: Mine\nsource: {paper: a note}\nfamily: pg\nsays: It does.\n"
        "sets:\n  rl: {algorithm: {preset: ppo}, draw: {sampler: solve_rate}}\n"
        "  evaluate: {pass_at: [2], variants: {brief: {kind: budgets, tokens: [2]}}}\n"
        "  diagnose: {diagnostics: {moved: {kind: weight_delta}}}\n",
    )
    found = json.loads(posttrain("method", "metrics", "mine", "-o", "json").out)
    assert [*found] == ["rl", "evaluate", "diagnose"]
    # Of the critic and of the sampler, which the default has not.
    assert {"rl/value_loss", "rl/curriculum_signal"} <= found["rl"].keys()
    assert {"pass_at_1", "pass_at_2", "ece", "brief.FIGURE"} <= found["evaluate"].keys()
    assert "pass_at_8" not in found["evaluate"]
    assert found["diagnose"].keys() == {"moved.FIGURE"}
    plain = posttrain("method", "metrics", "grpo").out
    assert "rl/clip_fraction" in plain
    assert "rl/value_loss" not in plain


def test_the_column_of_defaults_says_whose_they_are(posttrain):
    assert "framework's default" in posttrain("method", "show", "dapo").out


def test_an_arena_is_shown_with_its_budget_and_who_claims_there(posttrain):
    said = posttrain("method", "show", "rare").out
    assert "rare  an arena" in said
    assert "sft: pass_at_1 at most 0.01" in said
    assert "learning_rate: 0.0005" in said
    assert "xpo.finds_what_is_rare" in said
    found = json.loads(posttrain("method", "show", "rare", "-o", "json").out)
    assert found["claims"] == ["xpo.finds_what_is_rare"]
    assert found["sections"]["preference"]["steps"] == 100
    assert found["shares_its_base_with"] == []
    budget = json.loads(posttrain("method", "show", "sums", "-o", "json").out)["budget"]
    # 60 steps and 72 tokens are the arena's own; the others are RL's defaults.
    assert budget["rl"] == {
        "steps": 60,
        "problems_per_step": 32,
        "group_size": 8,
        "optimization.learning_rate": 0.001,
        "max_tokens": 72,
    }
    told = "rl: steps 60, problems_per_step 32, group_size 8, optimization.learning_rate 0.001"
    assert told in posttrain("method", "show", "sums").out
    shown = posttrain("method", "show", "proxy").out
    assert "\nshares its base with\nproxy_together\n" in shown


def test_no_name_of_a_claim_is_broken_where_the_terminal_is_narrow(posttrain, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [line.split()[1:3] for line in posttrain("method", "claims").out.splitlines()]
    for name, found in every_method().items():
        for claim in found.method.claims:
            assert [name, claim.name] in rows
