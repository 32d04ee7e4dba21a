"""`posttrain algorithm`: tuple, equation, source and hash of a name, and how two differ."""

import json

import pytest

from posttrain.learning.algorithms.identity import canonical, digest, flat
from posttrain.learning.algorithms.preference import PREFERENCE_PRESETS
from posttrain.learning.algorithms.presets import PRESETS


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def test_list_shows_every_preset_with_its_hash_and_what_sets_it_apart(posttrain):
    listed = posttrain("algorithm", "list")
    assert listed.code == 0
    rows = {line.split()[0]: line for line in listed.out.splitlines()[1:]}
    del rows["name"]
    every = {**PRESETS, **PREFERENCE_PRESETS}
    assert list(rows) == list(every)
    for name, row in rows.items():
        assert row.split()[1] == digest(every[name].algorithm)[:12]
    assert "mean/sample · clip token -0.2 +0.2 · sequence_mean_token_mean · k3 0.04" in rows["grpo"]
    assert "gae 1 0.95 whitened" in rows["ppo"]
    assert len({row.split(maxsplit=2)[2] for row in rows.values()}) == len(rows)
    told = json.loads(posttrain("algorithm", "list", "-o", "json").out)
    assert [each["name"] for each in told] == list(every)


@pytest.mark.parametrize("name", [*PRESETS, *PREFERENCE_PRESETS])
def test_show_prints_tuple_equation_source_and_hash(posttrain, name):
    shown = posttrain("algorithm", "show", name)
    assert shown.code == 0
    preset = {**PRESETS, **PREFERENCE_PRESETS}[name]
    words = shown.out.split()
    assert words[words.index("sha256") + 1] == digest(preset.algorithm)
    for path, value in flat(preset.algorithm).items():
        row = next(line for line in shown.out.splitlines() if line.startswith(f"{path} "))
        assert row.split(maxsplit=1)[1].strip() == json.dumps(value).strip('"')
    for line in preset.equation.splitlines():
        assert line in shown.out
    assert " ".join(preset.source.split()) in " ".join(words)
    note = preset.note if name in PRESETS else "m: log-ratio to the reference"
    assert " ".join(note.split()) in " ".join(words)


def test_show_as_json_holds_the_text_that_is_hashed(posttrain):
    told = json.loads(posttrain("algorithm", "show", "dapo", "-o", "json").out)
    assert told["digest"] == digest(PRESETS["dapo"].algorithm)
    assert told["canonical"] == canonical(PRESETS["dapo"].algorithm)
    assert told["algorithm"]["surrogate"]["high"] == 0.28
    assert "2503.14476" in told["source"]


def test_show_finds_a_digest_of_today_and_of_version_0_1(posttrain):
    named = posttrain("algorithm", "show", "grpo").out
    assert posttrain("algorithm", "show", digest(PRESETS["grpo"].algorithm)).out == named
    assert posttrain("algorithm", "show", "650b55e45c0f").out == named
    assert posttrain("algorithm", "show", "00000000").code == 2


def test_show_says_what_each_switch_does_when_asked(posttrain):
    assert "How far above 1" in posttrain("algorithm", "show", "dapo", "-v").out
    assert "How far above 1" not in posttrain("algorithm", "show", "dapo").out


def test_diff_names_the_switches_that_differ_and_only_those(posttrain):
    shown = posttrain("algorithm", "diff", "grpo", "grpo_verl")
    assert shown.code == 0
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[0] == ["switch", "grpo", "grpo_verl"]
    assert rows[2:] == [
        ["advantage.epsilon", "0.0", "1e-06"],
        ["aggregation.kind", "sequence_mean_token_mean", "token_mean"],
        ["old_policy", "engine", "recomputed"],
        ["regularizers.kl.ceiling", "null", "10.0"],
        ["regularizers.kl.coefficient", "0.04", "0.001"],
        ["surrogate.dual", "null", "3.0"],
    ]
    other = json.loads(posttrain("algorithm", "diff", "dapo", "default", "-o", "json").out)
    assert other["advantage.scale"] == ["sample", "none"]
    assert "surrogate.high" not in other
    same = posttrain("algorithm", "diff", "grpo", "grpo").out
    assert same.startswith("grpo and grpo are one algorithm: ")


def test_switches_that_only_one_side_has_are_told_as_such(posttrain):
    rows = posttrain("algorithm", "diff", "grpo", "ppo").out.splitlines()
    row = next(line.split() for line in rows if line.startswith("advantage.lam"))
    assert row == ["advantage.lam", "-", "0.95"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "gropo"], "there is no algorithm 'gropo'; did you mean 'grpo'?"),
        (["diff", "grpo", "dappo"], "there is no algorithm 'dappo'; did you mean 'dapo'?"),
        (["show", "xyzzy"], "there is no algorithm 'xyzzy'; see algorithm list"),
        (["show", "no/recipe.yaml"], "there is no recipe at no/recipe.yaml; name one, or a preset"),
        (
            ["show", "recipe.yaml"],
            "recipe.yaml: no stage of this recipe has an algorithm; name another recipe",
        ),
    ],
)
def test_what_there_is_not_is_one_sentence(posttrain, arguments, sentence):
    said = posttrain("algorithm", *arguments)
    assert said.code == 2
    assert said.sentence == sentence


def test_presets_of_two_kinds_are_not_compared(posttrain):
    told = posttrain("algorithm", "diff", "dpo", "grpo")
    assert told.code == 2
    assert "dpo and grpo have no switch in common" in told.err
    told = posttrain("algorithm", "diff", "dpo", "ipo", "-o", "json")
    assert json.loads(told.out) == {"loss": ["sigmoid", "ipo"]}


def test_an_unknown_name_is_looked_for_among_both_kinds(posttrain):
    assert "did you mean 'simpo'?" in posttrain("algorithm", "show", "simppo").err
