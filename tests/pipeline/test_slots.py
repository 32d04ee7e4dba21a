"""The list of all slots: complete, light, and who offers what."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from posttrain.cli.main import cli
from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.recipe_schema import schedulable_fields
from posttrain.pipeline.slots import (
    SLOTS,
    find_slot,
    first_sentence,
    offered_parts,
    source_of,
)
from posttrain.provenance.code.resolve import NameResolver
from posttrain.provenance.code.tree import SourceTree
from posttrain.stage.descriptions import descriptions
from posttrain.stage.errors import UserError
from posttrain.stage.slots import Slot
from tasks.rl.config import RlStageConfig

ROOT = Path(__file__).parents[2]
FLOW = "flows.post_training"
NAMED = re.compile(r"\d{4}|\w/\w|\d\.\d|\bTRL\b|\btransformers\b|\breasoning-gym\b")
"""A year or a number of arXiv, a repository or its file, a version, or a library."""
RAMP = {"from": 2, "to": 1, "over": 3}
PART = '''
from typing import Literal
from posttrain.stage.shapes.base import ScheduleShape
class {name}(ScheduleShape):
    """Turn at the {kind}. And no more."""
    SOURCE = "nobody 2026"
    kind: Literal["{kind}"] = "{kind}"
    def value(self, start, end, progress):
        return end
'''


def test_every_registry_is_listed_under_its_own_name():
    files = [*ROOT.glob("posttrain/**/registry.py"), *ROOT.glob("tasks/**/registry.py")]
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    found = {
        slot.name: f"{module}:{variable}"
        for module in modules
        for variable, slot in vars(importlib.import_module(module)).items()
        if isinstance(slot, Slot)
    }
    assert found == dict(SLOTS)


def test_no_registry_is_in_the_key_of_a_stage():
    """One more line in one would make every stage new that reads the slot."""
    names = NameResolver(SourceTree(ROOT, ["posttrain"], cache=None))
    modules = [where.partition(":")[0] for where in SLOTS.values()]
    assert [module for module in modules if names.counts(module)] == []


@pytest.mark.parametrize("name", SLOTS)
def test_every_part_that_ships_says_what_it_does(name):
    slot = find_slot(name)
    assert slot.name == name
    assert slot.base.__doc__
    for kind, part in slot.parts.items():
        assert issubclass(part, slot.base)
        assert part.model_fields["kind"].default == kind
        assert part.__doc__ not in (None, slot.base.__doc__), kind
        for field in part.model_fields.keys() - {"kind"} - descriptions(part).keys():
            pytest.fail(f"{name} {kind}: {field} has no doc string")


@pytest.mark.parametrize("name", SLOTS)
def test_every_kind_names_its_source_or_says_that_it_is_own(name):
    """One word names no source: a paper, a repository or a program takes more, or it is `own`."""
    told = {kind: source_of(part) for kind, part in find_slot(name).parts.items()}
    assert [kind for kind, source in told.items() if not source] == []
    own = {kind for kind, source in told.items() if re.match(r"own\b", source)}
    assert [kind for kind in told.keys() - own if not NAMED.search(told[kind])] == []


@pytest.mark.parametrize(
    ("body", "source"),
    [
        ('SOURCE = "Nobody\\n  2026"', "Nobody 2026"),
        (
            '"""Turn.\n\n    Source: Nobody 2026,\n    section 2.\n\n    And more.\n    """',
            "Nobody 2026, section 2.",
        ),
        ('"""Turn. Source: Nobody 2026."""', ""),
        (
            '"""Turn.\n\n    Source: Somebody 2025.\n    """\n    SOURCE = "Nobody 2026"',
            "Nobody 2026",
        ),
        ("pass", ""),
    ],
    ids=["attribute", "paragraph", "within_a_sentence", "both", "neither"],
)
def test_where_a_part_is_from_stands_in_its_attribute_or_its_docstring(body, source):
    found = {}
    exec(f"class Turn:\n    {body}", found)  # noqa: S102 - the docstring is what is tested
    assert source_of(found["Turn"]) == source


def test_a_derived_part_says_its_own_source_before_that_of_its_base():
    class Turn:
        SOURCE = "Somebody 2025"

    class Slower(Turn):
        """Turn slowly.

        Source: Nobody 2026.
        """

    class Plain(Turn):
        """Turn."""

    assert (source_of(Slower), source_of(Plain)) == ("Nobody 2026.", "Somebody 2025")


@pytest.mark.slow
def test_listing_all_parts_imports_nothing_heavy():
    code = (
        "from posttrain.pipeline.slots import SLOTS, offered_parts; list(offered_parts([*SLOTS],"
        " [])); import json, sys; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    heavy = {"torch", "transformers", "polars", "datasets", "pyarrow", "mlflow", "prefect", "dvc"}
    assert not heavy & set(json.loads(done.stdout))


def test_the_first_sentence():
    assert first_sentence("One `x`\n    of e.g. two.  Three.\n\nFour.") == "One x of e.g. two."
    assert first_sentence("Nothing ends") == "Nothing ends"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that offers two schedules, one of which a recipe may name."""
    home = tmp_path / "site"
    info = home / "turns-1.5.dist-info"
    info.mkdir(parents=True)
    (home / "turns.py").write_text(PART.format(name="Left", kind="left"))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: turns\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[posttrain.parts]\nschedule.left = turns:Left\n")
    monkeypatch.syspath_prepend(str(home))
    yield home
    sys.modules.pop("turns", None)


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A module `my_turns` with the schedule `right`."""
    text = PART.format(name="Right", kind="right") + "PARTS = {'schedule': {'right': Right}}\n"
    (tmp_path / "my_turns.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "my_turns.py"
    sys.modules.pop("my_turns", None)


def test_parts_say_where_they_come_from(package, plugin):
    found = {each.kind: each for each in offered_parts(["schedule"], ["my_turns"])}
    assert found["linear"].origin == "posttrain"
    right, left = found["right"], found["left"]
    assert (right.origin, left.origin) == ("plug-in my_turns", "package turns 1.5")
    assert (left.summary, left.source) == ("Turn at the left.", "nobody 2026")


def test_the_verb_lists_the_plugins_of_the_recipe_here(toy, plugin, monkeypatch):
    toy.recipe("plugins: [my_turns]\n")
    monkeypatch.chdir(toy.root)
    listed = CliRunner().invoke(cli, ["parts", "schedule", "--tsv"])
    rows = [line.split("\t") for line in listed.output.splitlines()]
    assert rows[0] == ["slot", "kind", "what it does", "source", "from"]
    assert ["schedule", "right", "Turn at the right.", "nobody 2026", "plug-in my_turns"] in rows
    table = CliRunner().invoke(cli, ["parts", "schedule"], env={"COLUMNS": "200"}).output
    assert "Turn at the right." in table
    # Into a pipe, all of them are a line each.
    piped = CliRunner().invoke(cli, ["parts"], env={"COLUMNS": "20"}).output.splitlines()
    assert "schedule\tright\tTurn at the right.\tnobody 2026" in piped
    assert len(piped) == len(CliRunner().invoke(cli, ["parts", "--tsv"]).output.splitlines()) - 1
    assert {line.count("\t") for line in piped} == {3}
    with pytest.raises(UserError, match="no slot 'shedule'.*did you mean 'schedule'"):
        CliRunner().invoke(cli, ["parts", "shedule"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "PARTS = {'shedule': {'x': int}}",
            "shedule.x is offered for a slot that there is not; did you mean 'schedule'",
        ),
        (
            "PARTS = {'schedule': {'mine': {'a': 1}}}",
            "schedule.mine is {'a': 1}, which does not derive from"
            " posttrain.stage.shapes.base.ScheduleShape; derive it from that",
        ),
        (
            "PARTS = {1: {'x': int}}",
            "PARTS of the module 'my_turns' has the key 1; slots and kinds are named by strings",
        ),
        (
            "PARTS = {'schedule': {None: int}}",
            "PARTS of the module 'my_turns' has the key None; slots and kinds are named by strings",
        ),
        (
            "x = 2\n1 / 0",
            "ZeroDivisionError: division by zero (my_turns.py:2); correct that",
        ),
        (
            "import no.such",
            "NotFoundError: No module named 'no' (my_turns.py:1); correct",
        ),
        ("def f(:", "SyntaxError: invalid syntax (my_turns.py:1); correct that line"),
        (
            PART.format(name="Right", kind="linear") + "PARTS = {'schedule': {'linear': Right}}",
            "schedule.linear of my_turns ships with posttrain too; rename the plug-in's",
        ),
        (
            "PARTS = {'schedule': {'odd': int}}",
            "<class 'int'>, which does not derive from posttrain.stage.shapes.base.ScheduleShape",
        ),
        (
            PART.format(name="Right", kind="odd").replace("def value", "def valu")
            + "PARTS = {'schedule': {'odd': Right}}",
            "schedule.odd is Right in my_turns.py, which does not implement"
            " value(start, end, progress); rename its valu",
        ),
        (
            "PARTS = {'schedule': 3}",
            "'my_turns' has PARTS in another form; end it with a mapping like PARTS = {",
        ),
        ("PARTS = 3", "'my_turns' has PARTS in another form; end it with a mapping like PARTS = {"),
    ],
)
def test_a_plugin_that_cannot_be_is_one_sentence(toy, plugin, text, sentence, monkeypatch):
    plugin.write_text(text)
    monkeypatch.chdir(plugin.parent)
    toy.recipe("plugins: [my_turns]\n")
    with pytest.raises(UserError) as caught:
        load_recipe(toy.root).resolve(toy.root)
    assert sentence in str(caught.value)


def test_the_table_of_parts_shows_a_docstring_as_it_is(toy, plugin, monkeypatch):
    text = PART.format(name="Right", kind="right").replace("the right", "[/tmp]")
    plugin.write_text(text + "PARTS = {'schedule': {'right': Right}}\n")
    toy.recipe("plugins: [my_turns]\n")
    monkeypatch.chdir(toy.root)
    done = CliRunner().invoke(cli, ["parts", "schedule"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.exception
    assert "Turn at [/tmp]." in done.output


def test_a_kind_is_offered_once(package, plugin, tmp_path, monkeypatch):
    from posttrain.stage.shapes.registry import SCHEDULE_SHAPES

    assert SCHEDULE_SHAPES.find("left").__module__ == "turns"
    (package / "turns-1.5.dist-info" / "entry_points.txt").write_text(
        "[posttrain.parts]\nschedule.left = turns:Left\n[posttrain.parts]\n"
    )
    other = tmp_path / "later" / "twists-1.0.dist-info"
    other.mkdir(parents=True)
    monkeypatch.syspath_prepend(other.parent)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: twists\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[posttrain.parts]\nschedule.left = twists:Left\n")
    with pytest.raises(ValueError, match="turns:Left and twists:Left; uninstall all but one"):
        SCHEDULE_SHAPES.find("left")


def test_a_broken_package_is_named_and_stops_no_other(package):
    from posttrain.stage.shapes.registry import SCHEDULE_SHAPES

    (package / "turns.py").write_text("import no_such_library\n")
    with pytest.raises(
        UserError, match=r"package turns 1\.5 offers the part 'schedule\.left', whi"
    ):
        SCHEDULE_SHAPES.find("left")
    found = {each.kind: each for each in offered_parts(["schedule"], [])}
    assert found["linear"].summary
    assert found["left"].origin == "package turns 1.5"
    assert found["left"].summary.startswith("broken: the installed package turns 1.5 offers the")
    assert "No module named 'no_such_library' (" in found["left"].summary


def test_the_slot_of_schedules_says_which_numbers_take_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(cli, ["parts", "schedule"]).output
    assert "Numbers that take a schedule in recipes of flows.post_training:" in shown
    assert "  sft.optimization: learning_rate, max_grad_norm\n" in shown
    assert "  rl.algorithm.regularizers (entropy): coefficient\n" in shown
    found = {(place, kind): names for place, kind, names in schedulable_fields(FLOW, ROOT)}
    for (place, kind), names in found.items():
        # But for how long episodes are, and for the noise of who answers in them, what a producer
        # is set to is read once.
        if (place, kind) == ("rl.producer", "episodes"):
            assert set(names) == {"most_turns", "most_context", "most_drawn", "most_seconds"}
            continue
        if (place, kind) == ("rl.producer", "guided"):
            # Which way round two writers write is asked in every step.
            assert set(names) == {"begins", "share"}
            continue
        if place == "rl.producer.law":
            # How much of a solution is given is asked in every step.
            continue
        if place.startswith("rl.producer.environment"):
            assert set(names) == {"noise"}, place
            continue
        assert not place.startswith(("rl.draw", "rl.producer")), place
        assert not {"steps", "staleness", "warmup_steps"} & set(names), place
    # What refuses a schedule is no place for one, though the same part takes one in RL.
    trained = ("rl.", "coevolve.")
    assert not [each for each, _ in found if "environment" in each and not each.startswith(trained)]
    assert not [place for place, _ in found if place.startswith("synthesize.")]
    # Each of them is taken by the config of its stage, and what is not listed is refused.
    RlStageConfig.parse({"temperature": RAMP, "group_size": {**RAMP, "to": 4}}, where="rl")
    with pytest.raises(
        UserError, match=r"rl\.steps: this number takes no schedule.*`posttrain parts schedule`"
    ):
        RlStageConfig.parse({"steps": RAMP}, where="rl")


def test_from_a_folder_of_a_project_its_recipe_and_its_root_count(toy, monkeypatch):
    (toy.root / "data" / "inner").mkdir(parents=True)
    monkeypatch.chdir(toy.root / "data" / "inner")
    shown = CliRunner().invoke(cli, ["parts", "schedule"], catch_exceptions=False).output
    assert f"Numbers that take a schedule in recipes of {toy.flow}:" in shown
    made = CliRunner().invoke(cli, ["schema"], catch_exceptions=False).output
    assert {"first", "second", "third"} <= json.loads(made)["properties"].keys()


def test_what_no_recipe_can_name_is_listed_with_the_reason(package, plugin, monkeypatch):
    from posttrain.stage.shapes.registry import SCHEDULE_SHAPES

    monkeypatch.chdir(plugin.parent)
    names = "shedule.left = turns:Left\nschedule.odd = turns:PLAIN\n"
    (package / "turns-1.5.dist-info" / "entry_points.txt").write_text(f"[posttrain.parts]\n{names}")
    (package / "turns.py").write_text(PART.format(name="Left", kind="left") + "PLAIN = 3\n")
    listed = CliRunner().invoke(cli, ["parts", "--tsv"]).output.splitlines()
    rows = {tuple(row.split("\t")[:2]): row.split("\t") for row in listed}
    (slot, kind, said, _, origin) = rows["shedule", "left"]
    assert said == (
        "broken: shedule.left is offered for a slot that there is not; did you mean 'schedule'?"
    )
    assert origin == "package turns 1.5"
    base = "posttrain.stage.shapes.base.ScheduleShape"
    odd = f"schedule.odd is 3, which does not derive from {base}; derive it from that"
    assert rows["schedule", "odd"][2] == f"broken: {odd}"
    table = CliRunner().invoke(cli, ["parts"], env={"COLUMNS": "200"}).output
    assert "broken: shedule.left" in table.replace("\n", " ")
    with pytest.raises(
        ValueError, match=r"no schedule 'left'; the package turns 1\.5 offers it as"
    ):
        SCHEDULE_SHAPES.find("left")
    with pytest.raises(ValueError, match=odd):
        SCHEDULE_SHAPES.find("odd")


def test_the_verb_lists_the_plugins_of_another_recipe(toy, plugin):
    toy.recipe("plugins: [my_turns]\n")
    done = CliRunner().invoke(cli, ["parts", "schedule", "--recipe", str(toy.root), "--tsv"])
    assert "plug-in my_turns" in done.output
    plugin.write_text(plugin.read_text().replace("def value", "def valu"))
    sys.modules.pop("my_turns")
    done = CliRunner().invoke(cli, ["parts", "schedule", "--recipe", str(toy.root), "--tsv"])
    assert "broken: schedule.right is Right in" in done.output


def test_what_may_be_set_in_a_part_is_shown_where_its_slot_is_named():
    words = ["parts", "player", "context_manager"]
    named = " ".join(CliRunner().invoke(cli, words, env={"COLUMNS": "200"}).output.split())
    assert "at_tokens Tokens of a sequence, read and drawn, above which it is cut" in named
    assert "keep_turns Turns, each with what was read behind it, that are kept behind" in named
    assert "prompt. (1)" in named
    assert "at_tokens" not in CliRunner().invoke(cli, ["parts"], env={"COLUMNS": "200"}).output


def test_a_kind_is_shown_in_every_slot_that_has_it():
    (row,) = CliRunner().invoke(cli, ["parts", "clip", "--tsv"]).output.splitlines()[1:]
    assert row.split("\t")[:2] == ["surrogate", "clip"]
    table = CliRunner().invoke(cli, ["parts", "clip"], env={"COLUMNS": "200"}).output
    assert "Whose ratio" in table
    rows = CliRunner().invoke(cli, ["parts", "uniform", "--tsv"]).output.splitlines()[1:]
    assert {line.split("\t")[1] for line in rows} == {"uniform"}
    with pytest.raises(UserError, match=r"no slot 'clp', and no part of that kind; did you mean"):
        CliRunner().invoke(cli, ["parts", "clp"], catch_exceptions=False)


def test_sources_go_into_a_pipe_too():
    rows = CliRunner().invoke(cli, ["parts"]).output.splitlines()
    (clip,) = (line.split("\t") for line in rows if line.startswith("surrogate\tclip\t"))
    assert "1707.06347" in clip[3]
