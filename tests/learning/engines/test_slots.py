"""Rows come and go: places are bounded, waiting prompts take them, and draws stay the same."""

import copy

import pytest
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines import slots
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.learning.rollouts.engines.slots import SlotDecoder
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.stage.errors import UserError
from tests.quick import first_now

# None of them is for the decoder of Llamas, which goes by batches.
NAMES = ["mistral-window", "gpt-neox", "gemma-tied"]
PLACES, GROUP = 8, 2
PARAMS = SamplingParams(max_tokens=40, num_samples=GROUP, seed=3)


@pytest.fixture
def model(request, models):
    """Many end tokens, so that rows end at all times."""
    model = copy.deepcopy(models[request.param])
    model.generation_config.eos_token_id = list(range(2, 12))
    return model


@pytest.fixture
def forwards(model):
    """Rows and tokens of every forward pass."""
    seen = []

    def note(_module, _arguments, options):
        # What asks afterwards whether two draws fell apart on a boundary gives its tokens by place.
        if "input_ids" in options:
            seen.append(tuple(options["input_ids"].shape))

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    yield seen
    handle.remove()


def some_prompts():
    return [Prompt(f"q{i}", tuple(range(20, 22 + i * 7 % 12))) for i in range(36)]


# Rows that begin from the first step to the last, each of another length.
SOME = some_prompts()[::5]


def of_some(samples):
    """Those of all samples that belong to `SOME`."""
    names = {prompt.id for prompt in SOME}
    return [sample for sample in samples if sample.prompt_id in names]


def apart(model, tokenizer, params):
    """Samples of `SOME`, each prompt drawn alone."""
    engine = TorchRolloutEngine(model, tokenizer)
    return [sample for prompt in SOME for sample in engine.sample([prompt], params)]


@pytest.mark.parametrize("model", first_now(NAMES), indirect=True)
def test_places_are_bounded_and_refilled_and_samples_are_those_of_each_prompt_alone(
    model, tokenizer, forwards, same_draws
):
    samples = TorchRolloutEngine(model, tokenizer, batch_size=PLACES).sample(some_prompts(), PARAMS)
    steps = [rows for rows, tokens in forwards if tokens == 1]
    assert max(steps) == PLACES
    assert max(rows for rows, tokens in forwards if tokens > 1) == PLACES // GROUP
    drawn = [len(sample.token_ids) for sample in samples]
    # By batches of four prompts, each would have gone on until its last row had ended.
    batches = [max(drawn[begin : begin + PLACES]) for begin in range(0, len(drawn), PLACES)]
    assert len(steps) < 0.75 * sum(batches)
    # More steps than the cache has columns: what no row needed any more was shifted out.
    assert len(steps) > 13 + 40 + (13 + 40) // 4

    same_draws(model, SOME, PARAMS, of_some(samples), apart(model, tokenizer, PARAMS))


@pytest.mark.parametrize("model", ["gemma-tied"], indirect=True)
@pytest.mark.parametrize("mode", [True, False])
def test_nothing_is_kept_for_a_backward_pass_and_the_mode_of_training_stays(model, tokenizer, mode):
    seen = []
    model.train(mode).register_forward_hook(
        lambda module, _arguments, output: seen.append((module.training, output.logits.grad_fn))
    )
    TorchRolloutEngine(model, tokenizer).sample(some_prompts()[:2], SamplingParams(max_tokens=3))
    assert set(seen) == {(False, None)}
    assert model.training is mode


@pytest.mark.parametrize("model", ["mistral-window"], indirect=True)
def test_stop_strings_end_rows_that_began_at_different_times(model, tokenizer, same_draws):
    params = SamplingParams(max_tokens=40, num_samples=GROUP, seed=3, stop=("a", "e", "#"))
    samples = TorchRolloutEngine(model, tokenizer, batch_size=PLACES).sample(some_prompts(), params)
    same_draws(model, SOME, params, of_some(samples), apart(model, tokenizer, params))


@pytest.mark.parametrize("model", ["gpt-neox"], indirect=True)
def test_one_prompt_with_more_samples_than_places_is_still_drawn(model, tokenizer, same_draws):
    params = SamplingParams(max_tokens=6, num_samples=5)
    prompts = some_prompts()[:3]
    few = TorchRolloutEngine(model, tokenizer, batch_size=2).sample(prompts, params)
    many = TorchRolloutEngine(model, tokenizer).sample(prompts, params)
    same_draws(model, prompts, params, few, many)


@pytest.mark.parametrize("model", ["mistral-window"], indirect=True)
def test_what_was_in_a_place_before_is_never_read(model):
    """The columns left of a row's prompt are poisoned with large numbers."""
    decoder = SlotDecoder(model, model, num_rows=2, num_columns=30)
    with torch.no_grad():
        decoder.admit(torch.tensor([[30, 31, 32, 33, 34, 35]] * 2), torch.tensor([0, 0]), group=1)
        for token in range(40, 44):
            decoder.step(torch.tensor([token, token + 1]))
        decoder.keep(torch.tensor([0]))
        for layer in decoder.layers:
            layer.keys[1:], layer.values[1:] = 1e4, 1e4
        late = decoder.admit(torch.tensor([[0, 21, 22]]), torch.tensor([1]), group=1)
        expected = model(torch.tensor([[21, 22]])).logits[:, -1]
        torch.testing.assert_close(late, expected)
        stepped = decoder.step(torch.tensor([50, 23]))[1]
        expected = model(torch.tensor([[21, 22, 23]])).logits[0, -1]
        torch.testing.assert_close(stepped, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("model", ["gpt-neox"], indirect=True)
def test_slots_that_cannot_be_had_are_refused_with_what_to_lower(model, tokenizer, monkeypatch):
    """Two layers, keys and values of 32 floats: 512 bytes a position, and 9 + 6 of them a row."""
    engine = TorchRolloutEngine(model, tokenizer)
    prompts, params = [Prompt("p", tuple(range(20, 29)))], SamplingParams(6, num_samples=4)
    monkeypatch.setattr(slots, "free_memory", lambda _device: 4 * 15 * 512)
    engine.sample(prompts, params)
    monkeypatch.setattr(slots, "free_memory", lambda _device: 4 * 15 * 512 - 1)
    with pytest.raises(
        UserError, match="4 samples of up to 15 tokens take 30.7 kB, .*lower batch_"
    ):
        engine.sample(prompts, params)


@pytest.mark.slow
def test_a_compiled_forward_draws_the_same(models, tokenizer, same_draws):
    """A minute for its two shapes, so no row ends and no prompt waits."""
    policy = Policy(models["mistral-window"], tokenizer)
    prompts, params = some_prompts()[:4], SamplingParams(max_tokens=4, seed=3)
    ours = TorchRolloutEngine(policy.model, tokenizer).sample(prompts, params)
    with open_engine(TorchEngine(compile=True), policy) as compiled:
        theirs = compiled.sample(prompts, params)
    same_draws(policy.model, prompts, params, theirs, ours)
    assert min(len(sample.token_ids) for sample in ours) == 4


def test_without_a_compiler_that_is_said(models, tokenizer, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _name: None)
    policy = Policy(models["gpt-neox"], tokenizer)
    with (
        pytest.raises(UserError, match="engine.compile needs a C\\+\\+ compiler"),
        open_engine(TorchEngine(compile=True), policy),
    ):
        pass
