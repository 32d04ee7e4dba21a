"""Samples that a model judges: the whole batch is asked at once, and each answer once."""

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rewards.verifiers.judge import JudgeVerifier
from posttrain.learning.rewards.verify import VerifierCache, metadata_for
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.scoring import sample_and_score
from tests.scripted import FakeEngine


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["right wrong 1 2 3 ####"] * 3, vocab_size=270)


def test_a_batch_of_samples_is_judged_together(server, tokenizer):
    """Of eight problems every second is judged by a model; both samples of one are the same."""
    server.delay, server.together = 0.05, 4
    server.reply = lambda body: f"Score: {10 * body['messages'][0]['content'].endswith('1')}"
    settings = JudgeVerifier(
        endpoint=server.endpoint(concurrency=4), template="{prompt} {completion}"
    )
    metadata = metadata_for(settings)
    problems = [
        Problem("own", f"q{i}", "1", 1, "judge", metadata)
        if i % 2
        else Problem("own", f"q{i}", "1", 1, "exact")
        for i in range(8)
    ]
    prompts = [Prompt(each.id, (5, 6)) for each in problems]
    place = {prompt.id: index for index, prompt in enumerate(prompts)}
    engine = FakeEngine(tokenizer, lambda prompt, *_: f"#### {1 + place[prompt.id] // 4}")
    params, cache = SamplingParams(max_tokens=20, num_samples=2), VerifierCache()
    made = sample_and_score(engine, problems, prompts, params, verify=cache)
    assert [each.problem for each in made] == [p for p in problems for _ in range(2)]
    # The first four answer 1, which is right; the others 2.
    assert [each.score.value for each in made] == [1.0] * 8 + [0.0] * 8
    assert (server.most_running, len(server.requests)) == (4, 4)
    again = sample_and_score(engine, problems, prompts, params, verify=cache)
    assert [each.score for each in again] == [each.score for each in made]
    assert len(server.requests) == 4
