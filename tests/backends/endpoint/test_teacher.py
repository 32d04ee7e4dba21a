"""A served model as the teacher of the synthesize stage."""

import json
from pathlib import Path

import polars as pl
import pytest

from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.synthesize import TASK
from tasks.synthesize.stage import run

SUMS = {
    "kind": "reasoning_gym",
    "name": "chain_sum",
    "levels": [2],
    "graded": ["min_terms", "max_terms"],
    "options": {"min_digits": 1, "max_digits": 1},
}


def solve(body):
    """Right in two of three draws: a seed that 3 divides is a slip."""
    expression = body["messages"][-1]["content"].split("\n")[0]
    numbers = expression.split(": ")[-1].removesuffix(" =").removesuffix(".")
    value = sum(int(part) for part in numbers.replace(" ", "").replace("-", "+-").split("+"))
    return f"{numbers} = {value}\n#### {value + (body['seed'] % 3 == 0)}\n"


def outputs_in(folder):
    return {name: folder / f"{name}{port.type.suffix}" for name, port in TASK.outputs.items()}


@pytest.fixture
def synthesize(server, tmp_path):
    server.reply = solve

    def made(folder="out", **values):
        teacher = {
            "kind": "server",
            "endpoint": server.endpoint().model_dump(),
            "template": "{prompt}\nGo.",
        }
        defaults = {"num_problems": 10, "num_heldout": 4, "sources": [SUMS], "teacher": teacher}
        config = TASK.config.parse(defaults | values, where="synthesize")
        inputs = {f"files.{name}": Path(path) for name, path in config.local_files().items()}
        (tmp_path / folder).mkdir(exist_ok=True)
        outputs = outputs_in(tmp_path / folder)
        run(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch"))
        tables = {name: path for name, path in outputs.items() if path.suffix == ".parquet"}
        return {name: pl.read_parquet(path) for name, path in tables.items()}

    return made


def test_every_solution_is_asked_for_verified_and_kept(synthesize, server):
    tables = synthesize(solutions_per_problem=3)
    corpus = tables["corpus"]
    assert len(corpus) == len(server.requests) == 30
    assert set(corpus["generator"]) == {"server:tiny"}
    assert 0 < len(tables["rejected"]) < 30
    assert len(tables["traces"]) + len(tables["rejected"]) == 30
    assert set(tables["rejected"]["reason"]) == {"wrong_answer"}
    assert corpus["problem_id"].to_list() == [
        name for name in tables["problems"]["id"] for _ in range(3)
    ]
    assert {body["messages"][0]["content"][-4:] for body in server.requests} == {"\nGo."}


def test_a_run_that_broke_off_pays_only_for_the_rest(synthesize, server, tmp_path):
    server.faults = [None] * 12 + [(400, "no")]
    with pytest.raises(UserError, match="refused a request"):
        synthesize(solutions_per_problem=3)
    assert not list((tmp_path / "out").iterdir())
    paid = len(server.requests) - 1
    assert paid >= 12
    first = synthesize(solutions_per_problem=3)
    assert len(server.requests) == 31
    again = synthesize("again", solutions_per_problem=3)
    assert len(server.requests) == 31
    assert all(again[name].equals(first[name]) for name in first)
    for one, other in zip(
        *(outputs_in(tmp_path / each).values() for each in ("out", "again")), strict=True
    ):
        assert one.read_bytes() == other.read_bytes()


def test_problems_of_a_file_without_solutions_are_solved_and_judged(synthesize, server, tmp_path):
    words = ("so", "no", "go", "ho", "lo", "yo")
    rows = [{"prompt": f"Say {w}.", "answer": w, "solution": ""} for w in words]
    rows += [{"prompt": f"Tell {w}.", "answer": w, "solution": w} for w in words]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def reply(body):
        text = body["messages"][-1]["content"]
        return f"Score: {10 if 'so' in text else 0}" if "JUDGE" in text else text

    server.reply = reply
    source = {
        "kind": "jsonl",
        "name": "own",
        "path": str(tmp_path / "own.jsonl"),
        "verifier": {
            "kind": "judge",
            "endpoint": server.endpoint().model_dump(),
            "template": "JUDGE {answer} {completion}",
        },
    }
    tables = synthesize(sources=[SUMS, source], solutions_per_problem=1)
    own = tables["corpus"].filter(pl.col("source") == "own")
    for generator, verb in (("file:own", "Tell"), ("server:tiny", "Say")):
        prompts = own.filter(pl.col("generator") == generator)["prompt"].to_list()
        assert len(prompts) > 1
        assert all(prompt.startswith(verb) for prompt in prompts)
    # The judge was shown the reference and the solution: only one of the words contains "so".
    assert own["verified"].to_list() == ["so" in prompt for prompt in own["prompt"]]
    assert own["verified"].any()


def test_a_judge_without_an_endpoint_is_refused(synthesize):
    source = {"kind": "jsonl", "name": "own", "path": "own.jsonl", "verifier": "judge"}
    with pytest.raises(UserError, match="verifier.endpoint: a value is required"):
        synthesize(sources=[source])
