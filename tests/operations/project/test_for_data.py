"""`posttrain init --data`: a recipe that runs for a file of one's own, and what it refuses."""

import json
import subprocess
import sys

import polars as pl
import pytest
from ruamel.yaml import YAML

from posttrain.data.formats.registry import FORMATS
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.operations.project.data_recipe import BroughtData, recipe_for
from posttrain.stage.errors import UserError
from tests.forked import posttrain


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tokenizer = train_tokenizer(["What is 2 + 3? It is 5"] * 20, vocab_size=280)
    path = tmp_path_factory.mktemp("model") / "tiny"
    save_policy(build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0), tokenizer, path)
    return path


def rows(kind, count=40):
    """Rows of a kind, each of another prompt."""
    for n in range(count):
        asked = {"prompt": f"What is 2 + {n}?"}
        yield {
            "texts": {"text": f"It is {n + 2} and {n}"},
            "chats": {**asked, "completion": f"It is {n + 2}"},
            "pairs": {**asked, "chosen": f"It is {n + 2}", "rejected": "2"},
            "labels": {**asked, "completion": f"It is {n + n % 2}", "label": bool(n % 2)},
            "lists": {**asked, "responses": ["2", f"It is {n + 2}"], "scores": [0, 1]},
        }[kind]


def brought(tmp_path, kind, model=None, **more):
    file = tmp_path / f"{kind}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(kind)))
    return BroughtData((file,), model, **more)


def recipe(tmp_path, data):
    return YAML(typ="safe").load(recipe_for(data, tmp_path / "mine"))


def test_what_the_file_holds_decides_the_flow(tmp_path, model):
    def flow_and_sections(kind):
        values = recipe(tmp_path, brought(tmp_path, kind, model))
        return values["flow"], {*values} - {"flow", "format", "import_model"}

    chats = ("flows.own_chats", {"import_chats", "sft"})
    assert flow_and_sections("chats") == flow_and_sections("texts") == chats
    pairs = ("flows.own_pairs", {"import_pairs", "reward", "preference"})
    assert flow_and_sections("pairs") == pairs
    assert flow_and_sections("lists") == pairs
    assert flow_and_sections("labels") == ("flows.own_preferences", {"import_pairs", "preference"})


def test_the_format_is_written_down_with_its_columns(tmp_path, model):
    wanted = FORMATS.parse({"kind": "instruction", "columns": {"instruction": "prompt"}})
    wanted = wanted.model_copy(update={"columns": {**wanted.columns, "response": "completion"}})
    values = recipe(tmp_path, brought(tmp_path, "chats", model, wanted=wanted))
    (source,) = values["import_chats"]["sources"]
    assert source["path"] == "../chats.jsonl"
    assert source["format"] == {
        "kind": "instruction",
        "columns": {"instruction": "prompt", "response": "completion"},
    }


def test_a_limit_of_length_comes_from_the_rows(tmp_path):
    file = tmp_path / "long.jsonl"
    long = [{"prompt": f"{n}?", "completion": "a" * 700} for n in range(3)]
    file.write_text("".join(json.dumps(row) + "\n" for row in long))
    values = recipe(tmp_path, BroughtData((file,)))
    # 702 characters and two tokens of ours, rounded up to 64.
    assert values["sft"]["max_length"] == values["pretrain"]["max_length"] == 704


def test_several_files_are_sources_of_one_recipe(tmp_path, model):
    chats, texts = (brought(tmp_path, kind).files[0] for kind in ("chats", "texts"))
    text = recipe_for(BroughtData((chats, texts), model), tmp_path / "mine")
    sources = YAML(typ="safe").load(text)["import_chats"]["sources"]
    assert [each["path"] for each in sources] == ["../chats.jsonl", "../texts.jsonl"]
    assert "# chats.jsonl: 40 rows" in text
    assert "# texts.jsonl: 40 rows" in text


def test_files_that_are_learned_by_different_stages_are_refused_together(tmp_path, model):
    files = tuple(brought(tmp_path, kind).files[0] for kind in ("pairs", "labels"))
    with pytest.raises(UserError, match="labels.jsonl labeled completions: these are learned by"):
        recipe_for(BroughtData(files, model), tmp_path / "mine")


REFUSED = [
    (['{"prompt": "a", "completion": "b"}'], "1 row can be learned, and two are needed"),
    (['{"q": 1}'], "no format has the columns q"),
    (['{"prompt": "a", "completion": "b"}'] * 9 + ['{"prompt": "a"}'], "1 row cannot be read"),
]


@pytest.mark.parametrize(("lines", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_learned_is_refused_and_nothing_is_written(tmp_path, lines, sentence):
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError) as caught:
        recipe_for(BroughtData((file,)), tmp_path / "mine")
    assert sentence in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]


def test_preferences_need_a_model(tmp_path):
    with pytest.raises(UserError, match="learns; name its folder with --model"):
        recipe_for(brought(tmp_path, "pairs"), tmp_path / "mine")


def cli(folder, *arguments):
    return posttrain(*arguments, cwd=folder, environment={"POSTTRAIN_TRACKING": "off"})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chats", "pairs", "labels", "lists", "texts"])
def test_the_recipe_runs_and_a_row_leads_back_to_its_line(tmp_path, model, kind):
    file = brought(tmp_path, kind).files[0]
    made = cli(tmp_path, "init", "mine", "--data", file, "--model", model)
    assert "stay where they are, and a clone of the project looks for them" in made.stderr
    assert made.returncode == 0, made.stderr
    project = tmp_path / "mine"
    done = cli(project, "run", "--local")
    assert done.returncode == 0, done.stderr

    taught = kind in ("chats", "texts")
    last = "sft" if taught else "preference"
    assert weights_digest(load_policy(project / "data" / last / "policy").model) != weights_digest(
        load_policy(model).model
    )
    importer, name = ("import_chats", "traces") if taught else ("import_pairs", "pairs")
    path = f"data/{importer}/{name}.parquet"
    rows_made = pl.read_parquet(project / path)
    place = rows_made["parents"][0][0]
    line = file.read_text().splitlines()[int(place.rpartition(":")[2]) - 1]
    shown = cli(project, "rows", path, "--where", f"id = '{rows_made['id'][0]}'", "--trace")
    assert shown.stdout.splitlines()[-2:] == [place, f"  {line}"], shown.stderr

    again = cli(project, "run", "--local")
    assert "running" not in again.stderr + again.stdout
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=project, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert tests.returncode == 0, tests.stdout


@pytest.mark.slow
def test_without_a_model_a_tiny_one_is_made_to_try_it(tmp_path):
    file = brought(tmp_path, "chats").files[0]
    assert cli(tmp_path, "init", "mine", "--data", file).returncode == 0
    done = cli(tmp_path / "mine", "run", "--local", "--set", "pretrain.steps=5")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine" / "data" / "sft" / "policy" / "model.safetensors").is_file()


@pytest.mark.slow
def test_labels_are_refused_for_a_reward_model_before_anything_runs(tmp_path, model):
    file = brought(tmp_path, "labels").files[0]
    assert cli(tmp_path, "init", "mine", "--data", file, "--model", model).returncode == 0
    recipe_file = tmp_path / "mine" / "recipe.yaml"
    recipe_file.write_text(recipe_file.read_text().replace("own_preferences", "own_pairs"))
    planned = cli(tmp_path / "mine", "plan")
    assert planned.returncode == 2
    assert "reward.inputs.pairs: ../labels.jsonl holds labeled completions, and a reward model" in (
        planned.stderr
    )


def test_options_for_a_file_need_one(tmp_path):
    refused = cli(tmp_path, "init", "mine", "--model", "x")
    assert (refused.returncode, refused.stderr) == (
        2,
        "error: --model, --as and --column say how a file is learned; name it: --data\n",
    )
    assert not (tmp_path / "mine").exists()
