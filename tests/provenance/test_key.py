import hashlib
from dataclasses import replace
from importlib.metadata import distributions

import pytest
from packaging.requirements import Requirement

from posttrain.provenance import key as key_module
from posttrain.provenance.code import CodeClosure, installed_versions, requirements
from posttrain.provenance.key import Difference, differences, stage_key

CODE = CodeClosure({"a:f": "11", "a:g": "22"}, frozenset({"torch"}), frozenset({"a"}), {}, "33")
PARAMS = {"rate": 1e-5, "loss": {"kind": "kl", "clip": [0.1, 0.2]}}
INPUTS = {"policy": "ab" * 32}
RUNTIME = {"python": "3.11.7", "seed": "0"}


@pytest.fixture(autouse=True)
def versions(monkeypatch):
    found = {"torch": "2.13.0", "polars": "2.1.0"}
    monkeypatch.setattr(
        key_module, "installed_versions", lambda names: {name: found[name] for name in names}
    )
    return found


def make(code=CODE, params=PARAMS, inputs=INPUTS, runtime=RUNTIME):
    return stage_key(code=code, params=params, inputs=inputs, runtime=runtime)


def test_the_digest_is_of_the_canonical_json_of_the_components():
    text = (
        '{"code":{"a:f":"11","a:g":"22"},'
        '"inputs":{"policy":"' + "ab" * 32 + '"},'
        '"packages":{"torch":"2.13.0"},'
        '"params":{"loss.clip":"[0.1,0.2]","loss.kind":"\\"kl\\"","rate":"1e-05"},'
        '"rules":{"keys":"3"},"runtime":{"python":"3.11.7","seed":"0"}}'
    )
    assert make().digest == hashlib.sha256(text.encode()).hexdigest()


def test_order_of_mappings_does_not_matter():
    backwards = CodeClosure({"a:g": "22", "a:f": "11"}, CODE.packages, CODE.modules, {}, "33")
    params = {"loss": {"clip": (0.1, 0.2), "kind": "kl"}, "rate": 0.00001}
    runtime = {"seed": "0", "python": "3.11.7"}
    assert make(backwards, params, INPUTS, runtime) == make()


def test_what_could_not_be_seen_is_told_but_not_keyed():
    assert make(code=replace(CODE, opaque={"a": "eval at line 7"})) == make()


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            {"code": replace(CODE, symbols={"a:f": "99", "a:g": "22"})},
            "the code of a:f changed",
        ),
        (
            {"code": replace(CODE, symbols={**CODE.symbols, "b:h": "44"})},
            "its code now reaches b:h",
        ),
        ({"code": replace(CODE, symbols={"a:f": "11"})}, "its code no longer reaches a:g"),
        ({"params": PARAMS | {"rate": 0.5}}, "parameter rate changed from 1e-05 to 0.5"),
        (
            {"params": PARAMS | {"loss": {"kind": "kl", "clip": [0.1, 0.3]}}},
            "parameter loss.clip changed from [0.1,0.2] to [0.1,0.3]",
        ),
        ({"params": PARAMS | {"extra": None}}, "parameter extra is new, with the value null"),
        ({"params": {"loss": PARAMS["loss"]}}, "parameter rate is gone; it was 1e-05"),
        (
            {"inputs": {"policy": "cd" * 32}},
            "input policy has other bytes: cdcdcdcdcdcd instead of abababababab",
        ),
        ({"inputs": {}}, "input policy is gone; it was abababababab"),
        (
            {"code": replace(CODE, packages=frozenset({"torch", "polars"}))},
            "its code now imports polars 2.1.0",
        ),
        ({"runtime": RUNTIME | {"seed": "1"}}, "seed changed from 0 to 1"),
    ],
)
def test_each_component_changes_the_key_and_is_said_in_a_sentence(other, sentence):
    before, after = make(), make(**other)
    assert before.digest != after.digest
    found = differences(before.components, after.components)
    assert [difference.sentence for difference in found] == [sentence]


def test_a_new_version_of_a_package_changes_the_key(versions):
    before = make()
    versions["torch"] = "2.14.0"
    found = differences(before.components, make().components)
    assert found == [Difference("packages", "torch", "2.13.0", "2.14.0")]
    assert found[0].sentence == "package torch changed from 2.13.0 to 2.14.0"


def test_differences_come_in_the_order_in_which_they_are_to_be_read():
    changed = {"a:g": "99", "a:a": "1", "a:b": "2"}
    code = CodeClosure(changed, frozenset({"polars"}), CODE.modules, {}, "")
    after = make(code, {"rate": 1e-5}, {"policy": "cd"}, RUNTIME | {"seed": "1"})
    found = differences(make().components, after.components | {"weather": {"wind": "east"}})
    assert [(difference.component, difference.name) for difference in found] == [
        ("code", "a:g"),
        ("code", "a:a"),
        ("code", "a:b"),
        ("code", "a:f"),
        ("params", "loss.clip"),
        ("params", "loss.kind"),
        ("inputs", "policy"),
        ("packages", "polars"),
        ("packages", "torch"),
        ("runtime", "seed"),
        ("weather", "wind"),
    ]


def test_equal_keys_do_not_differ():
    assert differences(make().components, make().components) == []


def test_a_dot_in_a_name_is_not_a_level():
    nested, flat = make(params={"mix": {"a.b": 1}}), make(params={"mix": {"a": {"b": 1}}})
    assert nested.components["params"] == {'mix."a.b"': "1"}
    assert flat.components["params"] == {"mix.a.b": "1"}


def test_types_of_values_are_kept_apart():
    values = [1, 1.0, "1", True, None, "null", [], {}, [1], float("nan"), float("inf")]
    assert len({make(params={"x": value}).digest for value in values}) == len(values)


def test_a_value_that_json_does_not_know_is_a_mistake_of_the_programmer():
    with pytest.raises(TypeError):
        make(params={"x": {1, 2}})


def test_long_values_are_shortened_in_the_sentence():
    found = Difference("params", "prompt", '"' + "x" * 500 + '"', '"y"')
    assert len(found.sentence) < 120


def test_a_module_that_only_lies_on_the_path_counts_by_its_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lying_module.py").write_text("A = 1\n")
    (tmp_path / "lying_package").mkdir()
    (tmp_path / "lying_package/__init__.py").write_text("")
    (tmp_path / "lying_package/table.json").write_text("1")
    names = ("lying_module", "lying_package")
    before = installed_versions(names)
    assert all(text.startswith("content ") for text in before.values())
    assert installed_versions(names) == before
    (tmp_path / "lying_module.py").write_text("A = 2\n")
    (tmp_path / "lying_package/table.json").write_text("2")
    after = installed_versions(names)
    assert all(after[name] != before[name] for name in names)
    assert installed_versions(["lying_nowhere"]) == {"lying_nowhere": "not installed"}


def test_a_license_with_empty_lines_hides_no_requirement(tmp_path, monkeypatch):
    """As in the metadata of polars and of scipy."""
    monkeypatch.syspath_prepend(str(tmp_path))
    license_text = "License: Some\n        \n        Requires-Dist: of-the-text\n"
    more = {"folded_front": f"{license_text}Requires-Dist: folded-behind\n", "folded_behind": ""}
    for name, lines in more.items():
        (tmp_path / f"{name}-1.5.dist-info").mkdir()
        (tmp_path / f"{name}-1.5.dist-info/METADATA").write_text(
            f"Name: {name}\nVersion: 1.5\n{lines}\nRequires-Dist: of-the-body\n"
        )
    assert installed_versions(["folded-front"]) == {"folded-front": "1.5", "folded-behind": "1.5"}
    assert "polars-runtime-32" in installed_versions(["polars"])


def test_of_every_installed_package_what_it_requires_is_what_the_specification_says():
    lines = {
        line
        for each in distributions()
        for line in each.metadata.get_all("Requires-Dist") or []
        if "extra ==" not in line
    }
    assert len(lines) > 50
    for line in [*lines, "a@ https://b/c;d.whl", "A.b_c [x,y]>=1 ; python_version < '3'", "n (>1)"]:
        each = Requirement(line)
        wanted = each.marker is None or each.marker.evaluate()
        assert requirements._wanted(line) == (each.name if wanted else None), line
