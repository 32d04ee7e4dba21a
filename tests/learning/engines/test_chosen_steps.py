"""Steps that one policy proposes and another one values."""

import pytest
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, Sample, SamplingParams
from posttrain.learning.rollouts.engines.chosen_steps import ChosenSteps
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine


@pytest.fixture(scope="module")
def both(models, tokenizer):
    return Policy(models["llama"], tokenizer), Policy(models["llama-gqa-tied"], tokenizer)


class Scripted:
    """Proposes the lines that it was given, whatever was asked."""

    context_length = 64

    def __init__(self, tokenizer, *rounds):
        self.tokenizer, self.rounds, self.asked = tokenizer, list(rounds), []

    def sample(self, prompts, params):
        self.asked.append((prompts, params))
        lines = self.rounds.pop(0)
        found = []
        for prompt in prompts:
            for index, line in enumerate(lines):
                ids = tuple(self.tokenizer.encode(line, add_special_tokens=False))
                ids = ids if "\n" in line else (*ids, 2)
                logprobs = (0.0,) * len(ids)
                found.append(Sample(prompt.id, index, ids, logprobs, line, FinishReason.STOP, 0))
        return found


def mean_logprob(policy, before, tokens):
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([[*before, *tokens]])).logits[0]
    logprobs = logits.log_softmax(-1)
    each = [float(logprobs[len(before) - 1 + t, token]) for t, token in enumerate(tokens)]
    return sum(each) / len(each)


def test_the_step_of_the_highest_mean_log_ratio_is_taken(both, tokenizer):
    actor, valuer = both
    prompt = Prompt("2 + 3", tuple(tokenizer.encode("2 + 3")))
    first, last = ("1\n", "23 + 4\n", "7 =\n"), ("5", "17", "2 + 2")
    engine = ChosenSteps(Scripted(tokenizer, first, last), actor, valuer, candidates=3)
    (found,) = engine.sample([prompt], SamplingParams(max_tokens=30))

    def best(before, lines):
        steps = [tokenizer.encode(line, add_special_tokens=False) for line in lines]
        steps = [ids if "\n" in line else [*ids, 2] for ids, line in zip(steps, lines, strict=True)]
        return max(
            steps,
            key=lambda ids: mean_logprob(valuer, before, ids) - mean_logprob(actor, before, ids),
        )

    one = best(prompt.token_ids, first)
    two = best([*prompt.token_ids, *one], last)
    assert list(found.token_ids) == [*one, *two]
    assert found.finish_reason is FinishReason.STOP
    assert found.text == tokenizer.decode([*one, *two[:-1]])
    # The second step was asked for behind the first, in what was left of the limit.
    (asked,), params = engine.engine.asked[1]
    assert asked.token_ids == (*prompt.token_ids, *one)
    assert (params.max_tokens, params.num_samples, params.stop) == (30 - len(one), 3, ("\n",))


def test_what_values_all_steps_alike_leaves_the_actor_as_it_was(both, tokenizer):
    actor, _ = both
    engine = TorchRolloutEngine(actor.model, tokenizer)
    prompts = [Prompt(text, tuple(tokenizer.encode(text))) for text in ("2 + 3", "17")]
    params = SamplingParams(max_tokens=12, num_samples=2, seed=4)
    found = ChosenSteps(engine, actor, actor, candidates=2).sample(prompts, params)
    assert [(each.prompt_id, each.index) for each in found] == [
        ("2 + 3", 0),
        ("2 + 3", 1),
        ("17", 0),
        ("17", 1),
    ]
    again = ChosenSteps(engine, actor, actor, candidates=2).sample(prompts[1:], params)
    assert [each.token_ids for each in again] == [each.token_ids for each in found[2:]]
    assert all(len(each.token_ids) <= 12 for each in found)
