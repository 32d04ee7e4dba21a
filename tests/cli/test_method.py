"""`posttrain method`: the catalog, what a name stands for, and how two differ."""

import json
from pathlib import Path

import pytest

from posttrain.learning.algorithms.identity import canonical, digest, flat
from posttrain.learning.algorithms.presets import PREFERENCE_PRESETS, PRESETS
from posttrain.methods.find import every_method, find_method
from posttrain.methods.systems import published_systems


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def lines(text):
    return [line.split("\t") for line in text.splitlines()]


def test_every_published_system_is_listed_once_with_its_state(posttrain):
    heading, *rows = lines(posttrain("method", "list", "--tsv").out)
    assert heading == ["system", "family", "kind", "state", "file", "claims", "missing"]
    assert [row[:3] for row in rows] == [
        [each.name, each.family, each.kind] for each in published_systems()
    ]
    assert len(rows) == 235
    known = {row[0]: dict(zip(heading, row, strict=True)) for row in rows}
    assert known["LD-DPO"]["file"] == "posttrain/methods/pref/ld_dpo.yaml"
    assert known["BGPO (diffusion LLMs)"]["state"] == "-"
    assert {row[3] for row in rows} <= {"y", "text", "p", "-"}
    assert all(row["missing"] for row in known.values() if row["state"] not in ("y", "text"))


def test_the_list_is_filtered_by_family_and_by_state(posttrain):
    _, *rows = lines(posttrain("method", "list", "--tsv", "--family", "len", "--state", "-").out)
    assert rows
    assert {(row[1], row[3]) for row in rows} == {("len", "-")}
    said = posttrain("method", "list", "--family", "lne")
    assert (said.code, said.sentence) == (2, "there is no family 'lne'; did you mean 'len'?")


def test_base_methods_stand_beside_the_systems(posttrain):
    told = posttrain("method", "list").out
    for name, found in every_method().items():
        assert any(name in line.split() for line in told.splitlines()), name
        beside = found.method.system or " ".join(found.method.says.split()[:3])
        assert beside in told
    assert "235 published systems: " in told
    # What they claim stands beside them, as it does beside the systems.
    assert "format_gate.beats_format_alone" in "".join(told.split())


@pytest.mark.parametrize("name", [*PRESETS, *PREFERENCE_PRESETS])
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
