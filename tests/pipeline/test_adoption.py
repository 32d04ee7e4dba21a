"""What an older version recorded is taken over where only names and the rules of keys differ."""

import ast
import shutil

import pytest

from posttrain.pipeline import comparison, stage_keys
from posttrain.pipeline.adoption import SAME, adopt, find_candidates
from posttrain.pipeline.comparison import _params_of_today
from posttrain.pipeline.execution.session import open_session
from posttrain.provenance.code import Renaming
from posttrain.provenance.key import Key, flattened, is_of_other_rules, nested, stage_key
from posttrain.stage.spec import Stage
from tasks.curate import TASK as CURATE

STAGES = ["first", "second", "third"]


def key_of_0_1(**parts):
    """A key as 0.1 made it, which said nothing of its rules."""
    key = stage_key(**parts)
    components = {name: group for name, group in key.components.items() if name != "rules"}
    return Key(f"of-0-1-{key.digest}"[:64], components)


@pytest.fixture
def old(toy, monkeypatch):
    """A toy that ran under 0.1, in which the helper's module had another name."""
    package, _, name = toy.helper.partition(".")
    before = f"{package}.before"
    (toy.root / package / f"{name}.py").rename(toy.root / package / "before.py")
    stage = toy.root / toy.package / "stage.py"
    today = stage.read_text()
    stage.write_text(today.replace(toy.helper, before))
    with monkeypatch.context() as patched:
        patched.setattr(stage_keys, "stage_key", key_of_0_1)
        toy.run()
    stage.write_text(today)
    (toy.root / package / "before.py").rename(toy.root / package / f"{name}.py")
    monkeypatch.setattr(comparison, "_NAMES", Renaming({before: toy.helper}))
    return toy


def key_of_rules_2(**parts):
    """A key as rules 2 made it: packages that the code imports itself, and a seed for all."""
    key = stage_key(**parts)
    code, packages = key.components["code"], key.components["packages"]
    runtime = {n: v for n, v in key.components["runtime"].items() if n != "stage_seed"}
    components = {
        **key.components,
        "rules": {"keys": "2"},
        "code": {n: v for n, v in code.items() if ".execution.call:" not in n},
        "packages": {n: v for n, v in packages.items() if n in parts["code"].packages},
        "runtime": {**runtime, "level": "L0"},
    }
    return Key(f"of-2-{key.digest}"[:64], components)


def test_what_rules_2_never_recorded_is_said(toy, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(stage_keys, "stage_key", key_of_rules_2)
        made = toy.run()
    before = made["first"].components["packages"].keys()
    behind = toy.plan()["first"].key.components["packages"].keys() - before
    assert "sympy" in behind
    first = candidates(toy)["first"]
    assert first.action == "adopt"
    names = ", ".join(sorted(behind)[:4])
    assert first.reason == (
        f"{SAME}; not compared, as it was never recorded: the versions of {len(behind)} packages"
        f" behind packages ({names}, ...); code that sets a stage up"
        " (posttrain.pipeline.execution.call)"
    )
    take(toy)
    with open_session(toy.root) as session:
        kept = session.ledger.annotations.adoptions().values()
        assert [each.reason for each in kept] == [first.reason] * 3


def candidates(project, *anyway):
    with open_session(project.root) as session:
        return {each.stage: each for each in find_candidates(session.planner, anyway)}


def actions(project, *anyway):
    return [each.action for each in candidates(project, *anyway).values()]


def take(project, *anyway):
    with open_session(project.root) as session:
        found = find_candidates(session.planner, anyway)
        return adopt(session.ledger, session.recipe.name, found, command="adopt", why="I looked")


def test_plan_names_the_rules_and_what_it_took(old):
    decisions = old.plan()
    assert decisions["first"].action == "run"
    assert [is_of_other_rules(reason) for reason in decisions["first"].reasons] == [True]
    assert all(decision.seconds is not None for decision in decisions.values())
    printed = old.cli("plan")
    assert "3 of 3 stages to run; last time they took" in printed.stdout
    assert "posttrain 0.1" in " ".join(printed.stdout.split())


def test_what_only_moved_is_adopted_and_then_up_to_date(old):
    assert actions(old) == ["adopt"] * 3
    assert [decision.action for decision in old.plan().values()] == ["run"] * 3
    found = candidates(old).values()
    taken = take(old)
    assert [record.stage for record in taken] == STAGES
    assert {record.status for record in taken} == {"restored"}
    assert [decision.action for decision in old.plan().values()] == ["cached"] * 3
    assert take(old) == []
    with open_session(old.root) as session:
        adoptions = session.ledger.annotations.adoptions()
        assert [adoptions[record.id].reason for record in taken] == [each.reason for each in found]
        sources = [session.ledger.stage_run(adoptions[record.id].source) for record in taken]
        assert [source.status for source in sources] == ["succeeded"] * 3
        assert [source.outputs for source in sources] == [record.outputs for record in taken]


def test_what_differs_waits_for_a_person_and_says_what(old, edit):
    edit(old.root / f"{old.helper.replace('.', '/')}.py", "return a + b", "return b + a")
    found = candidates(old)
    assert [each.action for each in found.values()] == ["ask", "run", "run"]
    assert [each.sentence for each in found["first"].differences] == [
        f"the code of {old.helper}:add changed"
    ]
    assert found["third"].reason.startswith("once second made the same or was adopted")
    assert take(old) == []
    assert actions(old, "first", "third") == ["adopt", "ask", "run"]
    assert actions(old, *STAGES) == ["adopt"] * 3

    (first,) = take(old, "first")
    with open_session(old.root) as session:
        adoption = session.ledger.annotations.adoptions_of([first.key])[first.key]
        assert adoption.reason == "I looked (1 of code changed)"
        assert adoption.differences == (f"the code of {old.helper}:add changed",)


def test_other_inputs_and_lost_outputs_are_never_adopted(old):
    shutil.rmtree(old.root / "data")
    shutil.rmtree(old.root / ".dvc" / "cache")
    found = candidates(old, *STAGES)
    assert [each.action for each in found.values()] == ["run"] * 3
    assert "gone" in found["first"].reason


@pytest.mark.slow
def test_what_is_in_the_cache_alone_comes_back_from_there(old):
    shutil.rmtree(old.root / "data")
    assert actions(old) == ["adopt"] * 3
    take(old)
    assert [decision.action for decision in old.plan().values()] == ["restore"] * 3


def test_a_change_under_the_same_rules_runs(toy, edit):
    toy.run()
    edit(toy.root / f"{toy.helper.replace('.', '/')}.py", "return a + b", "return b + a")
    found = candidates(toy, *STAGES)
    assert [each.action for each in found.values()] == ["run"] * 3
    assert found["first"].reason == f"the code of {toy.helper}:add changed"


@pytest.mark.slow
def test_the_commands_say_what_was_adopted(old, edit):
    edit(old.root / f"{old.helper.replace('.', '/')}.py", "return a + b", "return b + a")
    shown = old.cli("adopt")
    assert "first" in shown.stdout
    assert "--anyway first" in shown.stdout
    refused = old.cli("adopt", "--yes", "--anyway", "first")
    assert refused.returncode
    assert "--anyway needs --reason" in refused.stderr
    done = old.cli("adopt", "--yes", *(f"--anyway={name}" for name in STAGES), "--reason", "equal")
    assert "3 of 3 stages adopted: first, second, third." in done.stdout
    assert "0 of 3 stages to run" in old.cli("plan").stdout
    ran = old.cli("run", "--local")
    assert ran.returncode == 0, ran.stderr
    why = old.cli("why", "first").stdout
    assert "first is up to date; adopted from run" in why
    # Another process knows no table for a module of a project.
    assert "equal (" in why
    audit = old.cli("audit")
    assert audit.returncode == 0
    assert "first: adopted in run" in audit.stdout
    assert "adopted" in old.cli("lineage", "up", "third@latest").stdout


def test_parameters_of_0_1_read_as_those_of_today():
    of_0_1 = {
        "contamination_boilerplate": "20",
        "contamination_ngram": "13",
        "difficulty_range": "null",
        "exact_duplicates": "true",
        "max_per_bucket": "null",
        "max_traces_per_problem": "null",
        "near_duplicate_shingle": "3",
        "near_duplicate_similarity": "0.8",
        "prompt_chars": "[1,4000]",
        "require_verified": "true",
        "trace_chars": "[1,8000]",
    }
    default = flattened(CURATE.config().model_dump(mode="json"))
    stage = Stage("curate", CURATE, CURATE.config(), {})
    assert _params_of_today(of_0_1, stage).items() <= default.items()
    other = _params_of_today({**of_0_1, "contamination_ngram": "8"}, stage)
    assert other["problem_filters"] != default["problem_filters"]
    unknown = {"no_such_field": "1"}
    assert _params_of_today(unknown, stage) == unknown


def test_nesting_is_the_inverse_of_flattening():
    values = {"a": {"b": {"c.d": 1, 'e"f': None}}, "g": [1, {"h": 2}], "i": {}}
    assert nested(flattened(values)) == values


@pytest.mark.parametrize(
    ("today", "then"),
    [
        ("import p.new.deep as m", "import p.old.deep as m"),
        ("from p.new import a, b as c", "from p.old import a, b as c"),
        ("from p import new", "from p import old as new"),
        ("from p import new, same", "from p import old as new, same"),
        ("from q.r import s", "from t import s"),
        ("from p.newer import a", "from p.newer import a"),
        ("from . import new", "from . import new"),
    ],
)
def test_imports_get_the_names_that_modules_had(today, then):
    names = Renaming({"p.old": "p.new", "t": "q.r"})
    assert ast.unparse(names.visit(ast.parse(f"def f():\n    {today}"))).split("\n    ")[1] == then
    assert names.current(names.former("p.new.deep")) == "p.new.deep"
