"""Whatever is wrong with the input: one sentence, exit code 2, and nothing written."""

import json
import os
import shutil
import subprocess

import polars as pl
import pytest

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.tokenizer import train_tokenizer

DATA = """
from tasks.curate import TASK as CURATE
from tasks.synthesize import TASK as SYNTHESIZE
def declare(build):
    raw = build.stage("synthesize", SYNTHESIZE)
    tables = {name: raw[name] for name in ("problems", "heldout", "traces")}
    build.stage("curate", CURATE, **tables)
"""
OWN = "synthesize:\n  heldout_fraction: 0.5\n  sources:\n  - {kind: KIND, name: own, path: FILE}\n"
TWO_MODELS = """
from tasks.evaluate import TASK as EVALUATE
from tasks.import_model import TASK as IMPORT
from tasks.synthesize import TASK as SYNTHESIZE
def declare(build):
    raw = build.stage("synthesize", SYNTHESIZE)
    policies = {name: build.stage(name, IMPORT)["policy"] for name in ("one", "other")}
    build.stage("evaluate", EVALUATE, problems=raw["heldout"], policies=policies)
"""


def solved(number):
    return {
        "prompt": f"1 + {number} =",
        "answer": str(number + 1),
        "solution": f"#### {number + 1}",
    }


@pytest.fixture
def own_file(toy, real_tasks):
    """Write the file that the recipe's only source reads; a name ending tells its kind."""

    def write(*lines, name="own.jsonl"):
        kind = name.rpartition(".")[2]
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        (toy.root / name).write_text(text)
        real_tasks(DATA, OWN.replace("KIND", kind).replace("FILE", name))
        return toy.root / name

    return write


@pytest.mark.parametrize(
    ("recipe", "arguments", "sentence"),
    [
        ("second: {amont: 2}", [], "second.amont: unknown key; did you mean 'amount'?"),
        ("secnd: {amount: 2}", [], "recipe.yaml: unknown section 'secnd'; did you mean 'second'?"),
        ("run: {threads: 0}", [], "run.threads: input should be greater than or equal to 1, got 0"),
        (
            "third: {inputs: {source: secnd.result}}",
            [],
            "third.inputs.source: there is no stage 'secnd'; did you mean 'second'?",
        ),
        (
            "first: {inputs: {source: third.result}}",
            [],
            "the stages form a cycle: first -> second -> third -> first; "
            "rewire one of their inputs",
        ),
        ("first: {path: words.txt}", [], "first: source 'given' is at ROOT/words.txt, and nothing"),
        (
            "third: {inputs: {source: ../../own/p.jsonl}}",
            [],
            "third.inputs.source: write it as stage.output, for example sft.policy; got"
            " '../../own/p.jsonl': a file is read by a stage of its own, such as",
        ),
        ("second: {amount: true}", [], "second.amount: it is a number, got true; write one"),
        (
            "second: {amount: 9_223_372_036_854_775_808}",
            [],
            "second.amount: it has more than 64 bits; write a smaller number",
        ),
        ("second: &a {amount: *a}", [], "recipe.yaml: mappings lie too deep in each other, or an"),
        (
            f"second: {'{a: ' * 900}1{'}' * 900}",
            [],
            "recipe.yaml: mappings lie too deep in each other, or an anchor in itself",
        ),
        ("", ["--set", f"second={'[' * 900}1{']' * 900}"], "--set second: "),
        ("run: {threads: 1000000}", [], "run.threads: input should be less than or equal to 4096"),
        ("", ["--set", "second.amount="], "--set second.amount: there is no value behind the =;"),
        (
            "zzz: {amount: 2}",
            [],
            "recipe.yaml: unknown section 'zzz'; the stages of this flow are first, second, third",
        ),
        ("flow: PACKAGE.zzz", [], "recipe.yaml: there is no flow 'PACKAGE.zzz'; there are "),
        ("release: {policy: third.polcy}", [], "release.policy: no stage makes 'third.polcy'"),
        (
            "release: {policy: third.result, evaluation: thrd}",
            [],
            "release.evaluation: there is no stage 'thrd'; did you mean 'third'?",
        ),
        ("second: {amount: [}", [], "recipe.yaml:3: not valid YAML: "),
        ("1: {amount: 2}", [], "recipe.yaml: the name of a section must be text, got 1"),
        ("second: {inputs: first}", [], "ROOT/recipe.yaml: section 'second.inputs' must be a map"),
        (
            "flow: PACKAGE.chian",
            [],
            "recipe.yaml: there is no flow 'PACKAGE.chian'; did you mean '",
        ),
        ("flow: ../evil", [], "recipe.yaml: 'flow' must name a module such as flows.post_train"),
        ("", ["--set", "second.amont=2"], "second.amont: unknown key; did you mean 'amount'?"),
        (
            "",
            ["--set", "second.amount"],
            "--set takes section.parameter=value, got 'second.amount'",
        ),
        ("", ["--set", "second.amount=["], "--set second.amount: not a YAML value: '['"),
        ("", ["--from", "secnd"], "there is no stage 'secnd'; did you mean 'second'?"),
        ("", ["--only", "zzz"], "there is no stage 'zzz'; there are first, second, third"),
        ("", ["--only", "third"], "data/second/result.json does not exist; run stage 'second' fir"),
        ("", ["--from", "first", "--only", "second"], "--from and --only exclude each other"),
        ("", ["nowhere"], "there is no recipe at nowhere; name a recipe file or a folder that has"),
    ],
)
def test_a_wrong_recipe_or_argument(toy, posttrain, contents, recipe, arguments, sentence):
    toy.recipe(recipe.replace("PACKAGE", toy.flow.partition(".")[0]))
    before = contents()
    refused = posttrain("run", *arguments)
    expected = sentence.replace("ROOT", str(toy.root))
    expected = expected.replace("PACKAGE", toy.flow.partition(".")[0])
    assert refused.sentence.startswith(expected)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert contents() == before


def test_the_shell_sees_the_same(toy, contents):
    toy.recipe("second: {amont: 2}\n")
    before = contents()
    refused = toy.cli("run")
    assert refused.returncode == 2
    assert refused.stderr == "error: second.amont: unknown key; did you mean 'amount'?\n"
    assert refused.stdout == ""
    assert contents() == before
    assert not (toy.root / ".posttrain").exists()
    unknown = toy.cli("rnu")
    assert unknown.returncode == 2
    assert unknown.stderr == "error: there is no command 'rnu'; did you mean 'run'?\n"
    renamed = toy.cli("algorithm", "list")
    assert renamed.returncode == 2
    assert renamed.stderr == (
        "error: there is no command 'algorithm'; it is `posttrain method` now\n"
    )


@pytest.mark.parametrize(
    ("name", "lines", "sentence"),
    [
        ("own.jsonl", ["{}", '{"prompt": '], "FILE:1: there is no column 'prompt' for prompt"),
        ("own.jsonl", [solved(1), '{"prompt": '], "FILE:2: not JSON: Expecting value at column 11"),
        ("own.jsonl", [], "FILE: there are no rows in it"),
        (
            "own.jsonl",
            [solved(1), '{"prompt": 1, "prompt": 2}'],
            "FILE:2: not a row: 'prompt' stands twice in one object; keep one of them",
        ),
        (
            "own.jsonl",
            [solved(1), '{"prompt": %s}' % ("1" * 5000)],
            "FILE:2: not a row: Exceeds the limit (4300 digits) for integer string conversion",
        ),
        ("own.jsonl", ["[", "{}"], "FILE:1: not JSON: Expecting value at column 2; each line must"),
        (
            "own.jsonl",
            [solved(1), {"prompt": "1 + 1 =", "answr": "2"}],
            "FILE:2: there is no column 'answer' for answer; did you mean 'answr'?",
        ),
        (
            "own.jsonl",
            [{**solved(1), "answer": ""}],
            "FILE:1: the answer ('answer') is empty; fill it or drop the row",
        ),
        ("own.parquet", ["PAR1 and no more"], "FILE: not a readable parquet file: "),
    ],
)
def test_a_file_that_cannot_be_used(toy, own_file, posttrain, contents, name, lines, sentence):
    file = own_file(*map(solved, range(9)))
    assert posttrain("compile").code == 0
    file = own_file(*lines, name=name)
    before = contents()
    refused = posttrain("run", "--local")
    assert refused.sentence.startswith(sentence.replace("FILE", str(file)))
    assert refused.code == 2
    assert contents() == before
    assert not list((toy.root / ".posttrain/staging").rglob("*.parquet"))


@pytest.mark.slow
def test_what_was_made_before_stays_as_it_was(own_file, posttrain, contents):
    file = own_file(*map(solved, range(9)))
    assert posttrain("run", "--local").code == 0
    made = contents()
    assert "data/curate/problems.parquet" in made
    file.write_text(file.read_text() + "\n{")
    before = contents()
    refused = posttrain("run", "--local")
    assert refused.sentence.startswith(f"{file}:10: not JSON")
    assert contents() == before
    file.write_text(json.dumps(solved(9)) + "\n" + file.read_text().rpartition("\n")[0])
    assert posttrain("run", "--local").code == 0
    assert contents()["dvc.lock"] != made["dvc.lock"]


def test_a_table_that_was_cut_short(toy, own_file, posttrain, contents):
    own_file(*map(solved, range(9)))
    assert posttrain("run", "--local").code == 0
    problems = toy.root / "data/synthesize/problems.parquet"
    problems.unlink()
    pl.DataFrame({"prompt": ["1 + 1 ="]}).write_parquet(problems)
    wrong = posttrain("run", "--local", "--only", "curate")
    assert wrong.sentence == f"{problems}: there is no column 'id'"
    problems.write_bytes(problems.read_bytes()[:-9])
    before = contents()
    cut = posttrain("run", "--local", "--only", "curate")
    assert cut.sentence == f"{problems}: this is not a parquet file, or it is cut short"
    assert (wrong.code, cut.code) == (2, 2)
    assert contents() == before


def test_models_whose_tokenizers_differ(toy, real_tasks, posttrain, contents):
    (toy.root / "own.jsonl").write_text("\n".join(json.dumps(solved(n)) for n in range(9)))
    for name, text in {"one": "1 + 2 = 3", "other": "the answer is 3"}.items():
        tokenizer = train_tokenizer([text] * 4, vocab_size=262)
        model = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0)
        save_policy(model, tokenizer, toy.root / "models" / name)
    models = "".join(f"{name}: {{path: models/{name}}}\n" for name in ("one", "other"))
    real_tasks(TWO_MODELS, models + OWN.replace("KIND", "jsonl").replace("FILE", "own.jsonl"))
    refused = posttrain("run", "--local")
    assert refused.code == 2
    assert refused.sentence.startswith(
        "evaluate: its inputs policies.one and policies.other come of one and other,"
        " whose tokenizers differ ("
    )
    assert not [path for path in contents() if path.startswith("data/")]


@pytest.fixture
def small_disk(tmp_path_factory):
    """A file system of four megabytes."""
    folder = tmp_path_factory.mktemp("small")
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    os.chdir("/")
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_no_space_left(toy, edit, posttrain, contents, small_disk, monkeypatch):
    edit(toy.root / toy.package / "stage.py", '{"sum": total}', '{"sum": total, "x": "x" * total}')
    toy.recipe("second: {amount: 5_000_000}\n")
    shutil.copytree(toy.root, small_disk, dirs_exist_ok=True)
    toy.root = small_disk
    monkeypatch.chdir(small_disk)
    refused = posttrain("run", "--local")
    assert refused.code == 2
    assert refused.sentence.startswith("stage 'second': no space left on the disk of ")
    assert refused.sentence.endswith("free some (nothing was published), then run again")
    assert [path for path in contents() if path.startswith("data/")] == ["data/first/result.json"]
    assert not list(small_disk.glob(".posttrain/staging/**/*.json"))
    # Prefect would try for minutes to start on such a disk.
    refused = toy.cli("run", env={"POSTTRAIN_TRACKING": "off"})
    assert refused.returncode == 2
    assert refused.stderr.endswith(
        "Prefect's own database needs 16 MB; free some, or run with --local\n"
    )
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert posttrain("run", "--local").code == 0
    assert json.loads((small_disk / "data/third/result.json").read_text())["sum"] == 5_000_002
