"""Every piece of a recipe in the documents makes a plan, in the recipe that its text supposes."""

import json
import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest
from ruamel.yaml import YAML

from posttrain.methods.find import every_method, find_arena, methods_of
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.errors import UserError
from tests.docs.test_snippets import DOCUMENTS, ROOT
from tests.docs.test_tutorials import FOLLOWED

_BLOCK = re.compile(r"^```yaml[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Supposed:
    """What the text around a block takes for granted."""

    sections: Mapping[str, Any] = field(default_factory=dict)
    """Of the recipe that the block is a part of."""
    inside: str = ""
    """Where the block stands in it, by dots; at its top otherwise."""
    without: tuple[str, ...] = ()
    """Sections of the block that need what is the reader's own."""


def _world(name, **more):
    return {"flow": "flows.play", "synthesize": {"sources": [{"kind": "world", "world": name}]}} | {
        section: {"environment": name} for section in ("evaluate",)
    } | more  # fmt: skip


_DPO = {"preference": {"algorithm": "dpo"}}
SUPPOSED = {
    "policies.late: sft_late.policy": Supposed({"sft": [{}, {"as": "sft_late"}], **_DPO}),
    "lengths: {task: tasks.lengths": Supposed(without=("lengths",)),
    "probe_2: {task: tasks.probe, environment: guess": Supposed(_world("guess")),
    "problems: few.problems": Supposed({
        "few": {"task": "tasks.curate", "inputs": {
            name: f"synthesize.{name}" for name in ("problems", "heldout", "traces")
        }},
    }),
    "merge: {task: tasks.merge": Supposed(_DPO),
    "roles: {opponent: {kind: earlier": Supposed(_world("tictactoe")),
    "roles:                           # of tictactoe": Supposed(
        _world("tictactoe", rl={"producer": {"kind": "episodes", "environment": "tictactoe"}}),
        inside="rl.producer",
    ),
    "guidance: [plan, feedback]": Supposed({
        **_world("booking", rl={"producer": {"kind": "episodes", "environment": "booking"}}),
        "preference": {"task": "tasks.preference", "algorithm": "dpo",
                                            "inputs": {"policy": "sft.policy"}},
    }),
    "advantage: {kind: learned, values": Supposed(_world("guess")),
    "producer: {kind: partial, environment: guess": Supposed(_world("guess")),
    "reference: sft      ": Supposed({"flow": "flows.play"}),
    "task: tasks.series": Supposed({
        **_DPO, "rl": {"max_tokens": 72, "steps": 100, "inputs": {"policy": "preference.policy"}},
    }),
    "kind: prompt_completion, columns": Supposed(
        {"flow": "flows.own_chats", "import_chats": {"sources": [{"path": "../../told.jsonl"}]}},
        inside="import_chats.sources.0",
    ),
    "    name: ifeval": Supposed(
        {"flow": "flows.rl_from_base", "import_model": {"path": "models/qwen"}},
        inside="synthesize.sources",
    ),
}  # fmt: skip
"""By words of the block."""

EXCEPT = {
    "base_model: models/qwen": "a config of Axolotl",
    "# dvc.yaml, by hand": "a dvc.yaml; what it becomes here stands beside it",
    "task: tasks.clean": "has the stage of a tutorial, which runs it: tutorials/own-stage",
    "taskset: my_tasks": "needs the library verifiers, in an environment of its own, and a taskset",
}
"""Blocks that are no recipe of ours or need what is not here, by words of each, with the reason."""

METHODS = {
    "name: careful\ntitle": "method",
    "name: sums\nsays": "arena",
    "claims:\n- name": "claims",
}
"""Blocks that are files of the catalog, or a part of one."""


def _blocks():
    for path in DOCUMENTS:
        if path not in FOLLOWED:
            text = path.read_text()
            for found in _BLOCK.finditer(text):
                line = text.count("\n", 0, found.start()) + 2
                yield pytest.param(found[1], id=f"{path.relative_to(ROOT)}:{line}")


def _of(block, known):
    """The entry whose words are in the block."""
    found = [known[words] for words in known if words in block]
    assert len(found) < 2, block
    return found[0] if found else None


def _alternatives(text):
    """What a block says: where it shows one key in several spellings, each of them."""
    first, *more = text.splitlines()
    key = first.partition(":")[0]
    if any(line.startswith(f"{key}:") for line in more):
        return [YAML(typ="safe").load(line) for line in text.splitlines()]
    return [YAML(typ="safe").load(text)]


def _merged(below, above):
    """Sections of the block over what is supposed, mapping by mapping."""
    if isinstance(below, dict) and isinstance(above, dict):
        return below | {name: _merged(below.get(name), each) for name, each in above.items()}
    return above


def _put(values, said, inside):
    """What is supposed with the block at its place."""
    if not inside:
        return _merged(values, said)
    name, _, rest = inside.partition(".")
    if name == "0":
        return [_put(values[0], said, rest)]
    return {**values, name: _put(values.get(name, {}), said, rest)}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the files that the documents name, a row in each."""
    rows = {
        "chats.jsonl": {"messages": [{"role": "user", "content": "1 + 1?"},
                                     {"role": "assistant", "content": "2"}]},
        "test.jsonl": {"messages": [{"role": "user", "content": "1 + 2?"},
                                         {"role": "assistant", "content": "3"}]},
        "alpaca.parquet": {"instruction": "Add 1 and 1.", "input": "", "output": "2"},
        "pairs.parquet": {"prompt": "1 + 1?", "chosen": "2", "rejected": "3"},
        "pairs.jsonl": {"prompt": "1 + 1?", "chosen": "2", "rejected": "3"},
        "told.jsonl": {"meta": {"question": "1 + 1?"}, "175b_verification": {"solution": "2"}},
        "ifeval.jsonl": {"prompt": "Say it without a comma.",
                         "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
        "gsm8k/train.parquet": {"question": "1 + 1, train?", "answer": "#### 2"},
        "gsm8k/test.parquet": {"question": "1 + 1, test?", "answer": "#### 2"},
    }  # fmt: skip
    for name, row in rows.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        if file.suffix == ".parquet":
            pl.DataFrame({column: [value] for column, value in row.items()}).write_parquet(file)
        else:
            file.write_text(json.dumps(row) + "\n")
    (tmp_path / "my_rows.py").write_text("def convert(row):\n    return row\n")
    for name in ("my_component", "my_problem_sampler"):
        shutil.copy(ROOT / f"tests/extend/plugins/{name}.py", tmp_path)
    tutorial = (ROOT / "docs/tutorials/own-reward.md").read_text()
    (tmp_path / "brevity.py").write_text(
        re.search(r'title="brevity.py"\n(.*?)```', tutorial, re.DOTALL)[1]
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _resolves(values, project):
    folder = project / "recipes" / "shown"
    folder.mkdir(parents=True, exist_ok=True)
    head = {"flow": "flows.post_training", "format": 3}
    # YAML takes JSON; a recipe that is merged has no comments to lose.
    (folder / "recipe.yaml").write_text(json.dumps(head | values))
    for place in _paths(values):
        file = folder / place
        if not file.exists():
            (file.parent if file.suffix else file).mkdir(parents=True, exist_ok=True)
            if file.suffix:
                like = project / file.name
                shutil.copy(like, file) if like.exists() else file.touch()
    return load_recipe(folder).resolve(project)


def _paths(value):
    if isinstance(value, dict):
        for name, each in value.items():
            if name in ("path", "file") and isinstance(each, str) and not each.startswith("/"):
                yield each
            yield from _paths(each)
    elif isinstance(value, list):
        for each in value:
            yield from _paths(each)


@pytest.mark.parametrize("block", _blocks())
def test_a_piece_of_a_recipe_makes_a_plan(block, project):
    if _of(block, EXCEPT) or _of(block, METHODS):
        return
    supposed = _of(block, SUPPOSED) or Supposed()
    for said in _alternatives(block):
        values = _put(dict(supposed.sections), said or {}, supposed.inside)
        values = {name: each for name, each in values.items() if name not in supposed.without}
        assert _resolves(values, project).stages


def test_the_files_of_a_catalog_are_read(tmp_path):
    found = {}
    for block in (each.values[0] for each in _blocks()):
        if kind := _of(block, METHODS):
            found[kind] = block
    assert found.keys() == set(METHODS.values())
    (tmp_path / "methods/pg").mkdir(parents=True)
    (tmp_path / "methods/arenas").mkdir()
    whole = found["method"].replace("claims: []\n", found["claims"])
    (tmp_path / "methods/pg/careful.yaml").write_text(whole)
    (tmp_path / "methods/arenas/sums.yaml").write_text(found["arena"])
    with methods_of(tmp_path):
        (claim,) = every_method()["careful"].method.claims
        assert (claim.name, claim.seeds) == ("wider_is_better", 5)
        assert find_arena(claim.arena).contract


def test_what_is_supposed_or_left_out_is_in_the_documents():
    blocks = [each.values[0] for each in _blocks()]
    for known in (SUPPOSED, EXCEPT, METHODS):
        assert [words for words in known if not any(words in each for each in blocks)] == []


def test_a_piece_that_makes_no_plan_is_found(project):
    with pytest.raises(UserError, match="unheard_of"), warnings.catch_warnings():
        _resolves({"rl": {"unheard_of": 1}}, project)
