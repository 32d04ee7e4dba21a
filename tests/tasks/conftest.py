"""A tiny base policy, and judged answers to single-digit sums, for tests of the stages."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import torch

from posttrain.data.rows import TokenTable, encode_rows
from posttrain.data.schemas import (
    COMPLETIONS,
    IDENTITY,
    PROBLEMS,
    Completion,
    Problem,
    completions_table,
    problems_table,
    with_row_ids,
)
from posttrain.data.tables import write_table
from posttrain.learning.episodes.worlds.bandit import Bandit
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.models.tokenizer import train_tokenizer


def _answers(num_problems):
    """Per problem one right answer, one off by one, and one off by two."""
    for index in range(num_problems):
        a, b = index % 10, index // 10 % 10
        problem = Problem("sums", f"{a} + {b} =", str(a + b), 1 + index % 2, "exact")
        for offset in (0, 1, 2):
            right = offset == 0
            text = f"{a} + {b} = {a + b + offset}\n#### {a + b + offset}"
            reason = "correct" if right else "wrong_answer"
            yield Completion(problem, text, "teacher", float(right), right, reason)


@pytest.fixture(scope="session")
def answers():
    """COMPLETIONS: 60 sums with three answers each, a third of them verified."""
    return completions_table(list(_answers(60)))


@pytest.fixture
def write(tmp_path):
    """Write a COMPLETIONS frame to a file and return its path."""

    def write_frame(frame, name="completions"):
        path = tmp_path / f"{name}.parquet"
        write_table(frame, path, COMPLETIONS)
        return path

    return write_frame


@pytest.fixture(scope="session")
def base(tmp_path_factory, answers):
    """Directory of an untrained policy whose tokenizer knows the sums."""
    tokenizer = train_tokenizer(
        answers["prompt"].to_list() + answers["text"].to_list(), vocab_size=290
    )
    path = tmp_path_factory.mktemp("base") / "policy"
    save_policy(build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0), tokenizer, path)
    return path


@pytest.fixture(scope="session")
def coins():
    """40 problems: the answer is 1 where the prompt says up, and 2 where it says down."""
    return [
        Problem(side, f"{side} {index} =", answer, index % 2, "exact")
        for index in range(20)
        for side, answer in (("up", "1"), ("down", "2"))
    ]


@pytest.fixture(scope="session")
def coins_path(tmp_path_factory, coins):
    """The same as a PROBLEMS file."""
    path = tmp_path_factory.mktemp("coins") / "problems.parquet"
    write_table(with_row_ids(problems_table(coins), IDENTITY["problems"]), path, PROBLEMS)
    return path


@pytest.fixture(scope="session")
def guesser(tmp_path_factory, coins):
    """Directory of a policy that learned from a teacher who is wrong one time in three."""
    texts = [problem.prompt for problem in coins] + ["#### 1", "#### 2"]
    tokenizer = train_tokenizer(texts, vocab_size=280)
    model = build_llama(tokenizer, hidden=32, layers=1, heads=2, seed=0, max_length=64)
    prompts = [problem.prompt for problem in coins for _ in range(3)]
    taught = [f"#### {answer}" for p in coins for answer in ("1", "2", p.answer)]
    rows = encode_rows(tokenizer, prompts, taught)
    batch = TokenTable(rows, pad=tokenizer.pad_token_id).batch(range(len(rows)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        logprobs, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        (-logprobs.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    path = tmp_path_factory.mktemp("guesser") / "policy"
    save_policy(model, tokenizer, path)
    return path


@pytest.fixture(scope="session")
def bandits(tmp_path_factory):
    """Bandits of two buttons and four presses, and a policy that presses any of three."""
    folder = tmp_path_factory.mktemp("bandits")
    world = Bandit(arms=2, presses=4)
    posed = [world.pose(Random(seed)) for seed in range(6)]
    problems = [
        Problem("b", prompt, json.dumps(facts), 1, "played", json.dumps({"bandit": facts}))
        for prompt, facts in posed
    ]
    table = with_row_ids(problems_table(problems), IDENTITY["problems"])
    write_table(table, folder / "problems.parquet", PROBLEMS)
    prompts, taught = [posed[0].prompt] * 6, ["a", "b", "c", "a", "b", "b b"]
    tokenizer = train_tokenizer([*prompts, *taught, "0", "1"], vocab_size=280)
    model = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0, max_length=96)
    rows = TokenTable(encode_rows(tokenizer, prompts, taught), pad=tokenizer.pad_token_id)
    batch = rows.batch(range(len(prompts)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for _ in range(40):
        logprobs, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        (-logprobs.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    save_policy(model, tokenizer, folder / "policy")
    return {"policy": folder / "policy", "problems": folder / "problems.parquet"}


@pytest.fixture(scope="session")
def kill_server(tmp_path_factory):
    """Ask `kill_script` for a job; its process is started once, and again after a failure."""
    root = Path(__file__).parents[2]
    errors = tmp_path_factory.mktemp("kills") / "stderr"
    running = []

    def start():
        with errors.open("w") as file:
            return subprocess.Popen(
                [sys.executable, "tests/tasks/kill_script.py"],
                cwd=root,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def ask(job):
        if not running:
            running.append(start())
        (server,) = running
        print(json.dumps(job, default=str), file=server.stdin, flush=True)
        answer = server.stdout.readline()
        if not answer:
            running.clear()
            server.wait()
        assert answer, errors.read_text()
        return json.loads(answer)

    yield ask
    for server in running:
        server.communicate()


@pytest.fixture(scope="session")
def kill_runs(kill_server):
    """Kill a stage at each given instant, run it again, and compare; see `kill_script`.

    Asserts that every planned kill happened, and that every run ended as the uninterrupted one.
    """

    def run(folder, kills, **job):
        hit, results = kill_server({**job, "folder": str(folder), "kills": kills})
        assert any("safetensors" in name for name in results["whole"])
        for name, digests in results.items():
            assert digests == results["whole"], f"killed at {name}"
        assert len(hit) == len(kills)
        assert [name for name, was in hit.items() if not was] == []

    return run
