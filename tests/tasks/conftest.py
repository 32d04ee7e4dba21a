"""A tiny base policy, and judged answers to single-digit sums, for tests of the stages."""

import pytest

from posttrain.data.tables import write_table
from posttrain.models.build import build_llama
from posttrain.models.load import save_policy
from posttrain.models.tokenizer import train_tokenizer
from posttrain.records import COMPLETIONS, Completion, Problem, completions_table


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
