"""`posttrain why` on a small project: the first difference of each kind, with both values."""

import shutil
import subprocess

import pytest
from click.testing import CliRunner

from posttrain.cli.why import why
from posttrain.provenance.ledger import open_ledger
from posttrain.stage.errors import UserError


def ask(toy, *arguments):
    """What the verb prints, in this process; the recipe comes after the stage."""
    stage, *rest = arguments
    done = CliRunner().invoke(why, [stage, str(toy.root), *rest], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output.splitlines()


def helper_file(toy):
    return toy.root / (toy.helper.replace(".", "/") + ".py")


def run_ids(toy):
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        return [run.id for run in ledger.runs()]


def commit(toy):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "add", "-A"], cwd=toy.root, check=True)
    subprocess.run(["git", *who, "commit", "-qm", "x"], cwd=toy.root, check=True)


def test_a_changed_function_is_shown_as_a_diff_of_what_counts(toy, edit):
    toy.run()
    edit(helper_file(toy), "Add two numbers.", "Sum.")
    edit(helper_file(toy), "return a + b", "return b + a")
    lines = ask(toy, "second")
    assert lines[0].startswith("second will run; compared with run ")
    assert lines[1] == f"  the code of {toy.helper}:add changed"
    assert lines[4:8] == ["    @@ -1,2 +1,2 @@", "     def add(a, b):"] + [
        "    -    return a + b",
        "    +    return b + a",
    ]
    assert not any("Sum" in line for line in lines), "a docstring is no part of the key"


def test_the_old_code_comes_from_git_where_the_project_kept_none(toy, edit):
    commit(toy)
    toy.run()
    edit(helper_file(toy), "return a + b", "return b + a")
    shutil.rmtree(toy.root / ".posttrain/code/sources")
    assert "    -    return a + b" in ask(toy, "second")


def test_old_code_that_is_nowhere_is_said_to_be_lost(toy, edit):
    toy.run()
    edit(helper_file(toy), "return a + b", "return b + a")
    shutil.rmtree(toy.root / ".posttrain/code/sources")
    assert "was not kept (digest " in ask(toy, "second")[2]


def test_a_damaged_kept_source_is_not_believed(toy, edit):
    toy.run()
    edit(helper_file(toy), "return a + b", "return b + a")
    for file in (toy.root / ".posttrain/code/sources").glob("*.z"):
        file.write_bytes(file.read_bytes()[:-7])
    assert "was not kept (digest " in ask(toy, "second")[2]


def test_a_parameter_comes_with_both_values_and_the_rest_is_counted(toy, edit):
    toy.run()
    edit(helper_file(toy), "return a + b", "return b + a")
    lines = ask(toy, "second", "--set", "second.amount=10", "--set", "second.label=x")
    assert lines[-2] == "  and 2 more: 2 parameters (-v shows them)"
    verbose = ask(toy, "second", "--set", "second.amount=10", "--set", "second.label=x", "-v")
    at = verbose.index("  parameter amount changed from 1 to 10")
    (run,) = run_ids(toy)
    assert verbose[at + 1 : at + 3] == [f"    run {run}: 1", "    now: 10"]


def test_what_is_still_to_be_made_is_named(toy):
    toy.run()
    assert ask(toy, "third", "--set", "second.amount=10")[0].startswith("third may run")
    assert ask(toy, "third", "--set", "second.amount=10")[-1] == (
        "what it reads from 'second' may change: posttrain why second"
    )


def test_up_to_date_means_the_last_two_executions(toy):
    toy.run()
    (first,) = run_ids(toy)
    assert ask(toy, "third") == [f"third is up to date; it ran once, in run {first}"]
    toy.recipe("second: {amount: 10}")
    toy.run()
    assert toy.run() == {}
    second = run_ids(toy)[0]
    lines = ask(toy, "third")
    assert lines[0] == "third is up to date; why it ran the last time:"
    assert lines[1].startswith(f"third: from run {first} (succeeded, ")
    assert lines[2].startswith("  input source has other bytes: ")
    # {"sum": 2} became {"sum": 11}: one byte more.
    shown = [line.split(": ", 1)[1].split(" ", 2) for line in lines[3:5]]
    assert [path for path, _, _ in shown] == ["data/second/result.json"] * 2
    assert [lines[3].split()[1], lines[4].split()[1]] == [f"{first}:", f"{second}:"]
    assert [facts for _, _, facts in shown] == [
        "10 bytes, made by stage 'second'",
        "11 bytes, made by stage 'second'",
    ]


def test_rows_of_an_input_are_told(toy):
    from posttrain.pipeline.explain import ComparedKey, Explanation
    from posttrain.provenance.ledger import ArtifactRecord

    def side(name, digest, rows):
        record = ArtifactRecord("data", "pairs", "data/p", digest, 5, rows, "judge")
        return ComparedKey(name, {"inputs": {"data": digest}}, {"data": record})

    found = Explanation.between(side("run a", "1" * 64, 1000), side("now", "2" * 64, 999))
    assert found.details(found.differences[0], sources=None) == [
        "run a: data/p 111111111111, 1,000 rows, 5 bytes, made by stage 'judge'",
        "now: data/p 222222222222, 999 rows, 5 bytes, made by stage 'judge'",
    ]


@pytest.mark.parametrize(
    ("component", "sentence", "counted"),
    [
        ("packages", "package x changed from 1 to 2", "1 package"),
        ("runtime", "x changed from 1 to 2", "1 engine or runtime setting"),
    ],
)
def test_packages_seeds_and_engines_are_differences_too(component, sentence, counted):
    from posttrain.pipeline.explain import ComparedKey, Explanation

    sides = [
        ComparedKey(name, {component: {"x": value}}, {}) for name, value in (("a", "1"), ("b", "2"))
    ]
    found = Explanation.between(*sides)
    assert found.differences[0].sentence == sentence
    assert found.details(found.differences[0], sources=None) == ["a: 1", "b: 2"]
    assert found.counts(skip=0) == counted


def test_of_a_variable_the_hashes_are_shown_as_hashes(toy, monkeypatch):
    toy.recipe("run: {threads: 1, retries: 0}\nenvironment: [MY_LIMIT]\n")
    monkeypatch.setenv("MY_LIMIT", "7")
    toy.run()
    monkeypatch.delenv("MY_LIMIT")
    # echo -n 7 | sha256sum
    hashed = "a value with the SHA-256 7902699be42c"
    assert ask(toy, "first")[1:4] == [
        f"  environment MY_LIMIT changed from {hashed} to not set",
        f"    run {run_ids(toy)[0]}: {hashed}",
        "    now: not set",
    ]


def test_the_seed_is_named(toy):
    toy.run()
    toy.recipe("run: {threads: 1, retries: 0, seed: 7}\n")
    assert ask(toy, "first")[1:] == [
        "  seed changed from 0 to 7",
        f"    run {run_ids(toy)[0]}: 0",
        "    now: 7",
        # The stage's own seed, which derives from it.
        "  and 1 more: 1 engine or runtime setting (-v shows them)",
    ]


def test_between_two_runs(toy):
    toy.run()
    toy.run("second.amount=10")
    toy.run("second.amount=10", start="second")
    new, middle, old = run_ids(toy)
    lines = ask(toy, "second", "--between", old, "latest~1")
    assert lines[0].startswith(f"second: from run {old} ")
    assert f"to run {middle} " in lines[0]
    assert lines[1] == "  parameter amount changed from 1 to 10"
    same = ask(toy, "second", "--between", middle, new)
    assert same[1].startswith("nothing differs: both have the key ")


def test_bad_names_get_one_sentence_with_the_nearest(toy):
    toy.run()
    with pytest.raises(UserError, match="no stage 'secnd'; did you mean 'second'"):
        ask(toy, "secnd")
    with pytest.raises(UserError, match="has no stage 'thrid'; did you mean 'third'"):
        ask(toy, "thrid", "--between", "latest", "latest")
    (run,) = run_ids(toy)
    with pytest.raises(UserError, match=f"no run 'x{run}'; did you mean '{run}'"):
        ask(toy, "third", "--between", f"x{run}", "latest")


def test_from_the_shell_a_bad_name_exits_with_2(toy):
    done = toy.cli("why", "frist")
    assert done.returncode == 2
    assert done.stderr == "error: there is no stage 'frist'; did you mean 'first'?\n"
    assert toy.cli("why", "first").stdout == "first never ran: there is nothing to compare with\n"


def test_a_data_file_beside_the_code_is_shown_as_it_was(toy):
    stage = toy.root / toy.package / "stage.py"
    read = "from pathlib import Path\nWORDS = Path(__file__).with_name('words.txt').read_text()\n"
    used = stage.read_text().replace("total = add(", "total = len(WORDS) * 0 + add(")
    stage.write_text(read + used)
    toy.write(f"{toy.package}/words.txt", "one\ntwo\n")
    toy.run()
    toy.write(f"{toy.package}/words.txt", "one\nthree\n")
    lines = ask(toy, "first")
    assert any("<file words.txt>" in line for line in lines)
    assert {line.strip() for line in lines} >= {"-two", "+three"}


def test_a_variable_that_code_reads_and_no_recipe_declares_is_said(toy):
    stage = toy.root / toy.package / "stage.py"
    stage.write_text(f"import os\nLIMIT = os.environ.get('MY_LIMIT')\n{stage.read_text()}")
    said = toy.cli("plan", "-v").stdout
    told = f"{toy.package}.stage reads MY_LIMIT, which `environment:` does not declare"
    assert told in " ".join(said.split())
    # Of the framework's own code nobody is to change anything.
    assert "all of posttrain." not in said
    toy.recipe("run: {threads: 1, retries: 0, environment: [MY_LIMIT]}\n")
    assert "MY_LIMIT" not in toy.cli("plan", "-v").stdout
