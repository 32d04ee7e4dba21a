"""The fast forward pass of Llamas against the model's own, in values and every gradient."""

import pytest
import torch
import transformers

from posttrain.learning.models import fast_llama, logprobs, reward_head
from posttrain.learning.models.fast_llama import fast_hidden_states, is_fast_llama
from posttrain.learning.models.logprobs import hidden_states, token_logprobs

VOCABULARY, PAD = 50, 0
ROPE = {"rope_theta": 100.0, "factor": 4.0}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
ARCHITECTURES = {
    "llama": ("Llama", {}),
    "one-layer": ("Llama", {"num_hidden_layers": 1}),
    "grouped-tied": ("Llama", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "one-key-head": ("Llama", {"num_key_value_heads": 1, "head_dim": 12}),
    "rope-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", **ROPE}}),
    "rope-llama3": ("Llama", {"rope_parameters": {"rope_type": "llama3", **ROPE, **LLAMA3}}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2}),
    "qwen2-tied": ("Qwen2", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
}


def build(name="llama", kind="ForCausalLM", **options):
    family, own = ARCHITECTURES.get(name, (name, {}))
    sizes = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 4, "vocab_size": VOCABULARY, "pad_token_id": PAD}
    config = getattr(transformers, f"{family}Config")(**{**sizes, **own, **options})
    model = getattr(transformers, family + kind)(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        # Norms of 1 and biases of 0 would hide what is left out; small weights, what is wrong.
        for parameter in model.parameters():
            parameter.normal_(0.5 * (parameter.ndim == 1), 0.3, generator=generator)
    return model


def rows(lengths, starts, *, prompts=None):
    """Random rows, padded on the right; those of equal entries in `prompts` begin alike."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(1, VOCABULARY, (len(lengths), max(lengths)), generator=generator)
    for row, prompt in enumerate(prompts or ()):
        first = prompts.index(prompt)
        ids[row, : starts[row]] = ids[first, : starts[row]]
    positions = torch.arange(max(lengths))
    return torch.where(positions < torch.tensor(lengths)[:, None], ids, PAD)


def between(starts, ends, length):
    positions = torch.arange(length)
    return (positions >= torch.tensor(starts)[:, None]) & (positions < torch.tensor(ends)[:, None])


GROUPS = [0, 0, 1, 0, 1, 2]
LAYOUTS = {
    "whole rows": (rows([7, 7, 7], [0, 0, 0]), between([0] * 3, [7] * 3, 7), [0] * 3),
    "one column": (rows([1, 1], [0, 0]), between([0, 0], [1, 1], 1), [0, 0]),
    "padding": (rows([7, 2, 5], [1, 1, 1]), between([0, 0, 3], [7, 2, 5], 7), [1, 1, 1]),
    # As `token_logprobs` wants them: the last state of the prompt predicts the first token.
    "groups": (
        rows([9, 5, 8, 9, 6, 3], [4, 4, 5, 4, 5, 2], prompts=GROUPS),
        between([3, 3, 4, 3, 4, 1], [9, 5, 8, 9, 6, 3], 9),
        [4, 4, 5, 4, 5, 2],
    ),
    "groups of whole rows": (
        rows([6] * 4, [3] * 4, prompts=[0, 0, 1, 1]),
        between([3] * 4, [6] * 4, 6),
        [3] * 4,
    ),
    "the same rows": (rows([5, 5], [5, 5], prompts=[0, 0]), between([4, 4], [5, 5], 5), [5, 5]),
    "one state a row": (
        rows([9, 5, 8], [4, 4, 4], prompts=[0, 0, 0]),
        between([8, 4, 7], [9, 5, 8], 9),
        [4, 4, 4],
    ),
    "rows that want nothing": (
        rows([6, 6, 6], [2, 2, 6], prompts=[0, 0, 0]),
        between([0, 2, 0], [0, 5, 0], 6),
        [2, 2, 6],
    ),
    "no state at all": (rows([3, 3], [1, 1]), between([0, 0], [0, 0], 3), [1, 1]),
}


def gradients(model, states, weights):
    (states * weights).sum().backward()
    found = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in model.named_parameters()
    }
    model.zero_grad()
    return found


def assert_alike(model, expected, found):
    weights = torch.linspace(-1, 2, expected.numel()).view_as(expected)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=2e-5)
    wanted, got = (gradients(model, states, weights) for states in (expected, found))
    largest = max(gradient.abs().max() for gradient in wanted.values())
    for name in wanted:
        gap = (got[name] - wanted[name]).abs().max()
        assert gap <= 3e-5 * max(largest, 1e-3), (name, gap, largest)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_states_and_gradients_are_those_of_the_models_own_forward(name, layout):
    model = build(name)
    ids, wanted, starts = LAYOUTS[layout]
    assert is_fast_llama(model)
    found = fast_hidden_states(model, ids, wanted_BT=wanted, starts_B=torch.tensor(starts))
    assert_alike(model, model.base_model(input_ids=ids).last_hidden_state[wanted], found)


@pytest.mark.parametrize("name", ["llama", "grouped-tied", "qwen2"])
def test_log_probabilities_and_their_gradients_are_those_of_the_full_softmax(name):
    model = build(name)
    ids, _, starts = LAYOUTS["groups"]
    wanted = between(starts, [9, 5, 8, 9, 6, 3], 9)
    every = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
    expected = every.gather(-1, ids[:, 1:, None])[..., 0][wanted[:, 1:]]
    assert_alike(model, expected, token_logprobs(model, ids, wanted_BT=wanted).logprobs_BT[wanted])


def test_rewards_of_a_head_and_their_gradients_are_those_of_the_classifier():
    model = build("qwen2", "ForSequenceClassification", num_labels=1)
    ids, _, starts = LAYOUTS["groups"]
    batch = type("Batch", (), {"packing": None, "input_ids_BT": ids})
    batch.wanted_BT = between(starts, [9, 5, 8, 9, 6, 3], 9)
    expected = model(input_ids=ids, attention_mask=ids != PAD).logits[:, 0]
    assert_alike(model, expected, reward_head.head_rewards(model, batch))


def test_a_shared_prompt_is_computed_once_and_padding_never():
    model = build()
    seen = []
    model.model.embed_tokens.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    ids, wanted, starts = LAYOUTS["groups"]
    fast_hidden_states(model, ids, wanted_BT=wanted, starts_B=torch.tensor(starts))
    # Prompts of 4, 5 and 2 tokens, and after them 5, 1 and 5; 3 and 1; 1.
    assert len(seen[0]) == (4 + 5 + 2) + (5 + 1 + 5) + (3 + 1) + 1


def test_the_same_bits_twice_on_two_threads():
    model = build(hidden_size=64)
    ids = rows([40] * 24, [20] * 24, prompts=[row // 8 for row in range(24)])
    wanted = between([19] * 24, [40] * 24, 40)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        results = []
        for _ in range(3):
            starts = torch.full((24,), 20)
            states = fast_hidden_states(model, ids, wanted_BT=wanted, starts_B=starts)
            results.append([states.detach(), *gradients(model, states, 1.0).values()])
    finally:
        torch.set_num_threads(threads)
    for again in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], again, strict=True))


def test_activation_checkpointing_computes_layers_again_to_the_same_bits(monkeypatch):
    ids, wanted, starts = LAYOUTS["groups"]
    calls, attend = [], fast_llama._attend
    monkeypatch.setattr(fast_llama, "_attend", lambda *given: calls.append(1) or attend(*given))
    results = []
    for again in (False, True):
        model = build("qwen2").train()
        if again:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        assert is_fast_llama(model)
        calls.clear()
        found = fast_hidden_states(model, ids, wanted_BT=wanted, starts_B=torch.tensor(starts))
        results.append([found.detach(), *gradients(model, found, 1.0).values()])
        assert len(calls) == (6 if again else 3)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("length", [15, 16, 17])
def test_rows_are_padded_to_tiles_that_nobody_sees(length):
    model = build("qwen2")
    ids, wanted = rows([length] * 3, [0] * 3), between([0] * 3, [length] * 3, length)
    found = fast_hidden_states(model, ids, wanted_BT=wanted, starts_B=torch.zeros(3).int())
    assert_alike(model, hidden_states(model, ids)[wanted], found)


def hooked(model):
    model.model.layers[1].mlp.register_forward_hook(lambda *_: None)


def adapted(model):
    from posttrain.learning.models.adapters import attach_adapter

    attach_adapter(model, rank=2, alpha=4)


def compiled_in_place(model):
    model.model.layers[0].compile(backend="eager")


def sharded(model):
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)


CHANGES = {
    "an adapter": adapted,
    "another module": lambda model: model.model.layers[2].mlp.register_module(
        "gate_proj", torch.nn.Sequential(model.model.layers[2].mlp.gate_proj)
    ),
    "a hook": hooked,
    "bfloat16": lambda model: model.bfloat16(),
    "another attention kernel": lambda model: model.set_attn_implementation("eager"),
    "compilation": compiled_in_place,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_was_changed_is_not_fast(change):
    model = build()
    assert is_fast_llama(model)
    CHANGES[change](model)
    assert not is_fast_llama(model)


def test_a_sharded_model_is_not_fast():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = build()
        sharded(model)
        assert not is_fast_llama(model)
    finally:
        torch.distributed.destroy_process_group()


def test_a_wrapper_that_compiles_is_not_fast():
    assert not is_fast_llama(torch.compile(build(), backend="eager"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Mistral", {}),
        ("GPTNeoX", {}),
        ("Llama", {"mlp_bias": True}),
        ("Llama", {"attention_bias": True}),
        ("Llama", {"hidden_act": "gelu"}),
        ("Llama", {"is_causal": False}),
        ("Llama", {"rope_parameters": {"rope_type": "yarn", **ROPE}}),
        ("Llama", {"rope_parameters": {"rope_type": "dynamic", **ROPE}}),
        ("Qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    ],
)
def test_other_architectures_are_not_fast(name, options):
    assert not is_fast_llama(build(name, **options))


def test_dropout_counts_in_training_alone_and_autocast_always():
    model = build(attention_dropout=0.1)
    assert is_fast_llama(model)
    assert not is_fast_llama(model.train())
    assert is_fast_llama(build().train())
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_fast_llama(build())


def test_packed_rows_take_the_models_own_forward(monkeypatch):
    model = build()
    ids, wanted, _ = LAYOUTS["whole rows"]
    wanted = wanted & (torch.arange(7) > 0)
    plain = token_logprobs(model, ids, wanted_BT=wanted).logprobs_BT

    def refused(*_, **__):
        raise AssertionError("the fast forward pass knows no positions")

    monkeypatch.setattr(logprobs, "fast_hidden_states", refused)
    positions = torch.arange(7).expand(3, 7)
    packed = token_logprobs(model, ids, wanted_BT=wanted, position_ids_BT=positions).logprobs_BT
    assert torch.allclose(packed, plain, atol=2e-5)
    with pytest.raises(AssertionError, match="knows no positions"):
        token_logprobs(model, ids, wanted_BT=wanted)


def test_frozen_weights_get_no_gradient_and_the_others_theirs():
    model = build("qwen2")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("layers.2" in name or name == "model.norm.weight")
    ids, wanted, starts = LAYOUTS["groups"]
    found = fast_hidden_states(model, ids, wanted_BT=wanted, starts_B=torch.tensor(starts))
    assert_alike(model, hidden_states(model, ids)[wanted], found)
