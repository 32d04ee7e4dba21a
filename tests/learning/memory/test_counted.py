"""Bytes that were counted by hand, part by part."""

from dataclasses import replace

import pytest

from posttrain.learning.memory import activations, head, held
from posttrain.learning.memory.activations import BatchRows
from posttrain.learning.memory.asked import StageQuestion
from posttrain.learning.memory.checkpoints import checkpoint_size
from posttrain.learning.memory.learner import Learner, LoraShape
from posttrain.learning.memory.sampling import DrawnRows, sampling_moment
from posttrain.learning.memory.shapes import shapes_of
from posttrain.learning.memory.training import Batch, standing_bytes, training_moments
from posttrain.learning.models import logprobs
from posttrain.stage.errors import UserError
from tasks.sft.config import SftConfig

GPU = Learner(device="cuda")
ROWS = BatchRows(count=2, length=3, wanted=4)


@pytest.mark.parametrize(
    ("learner", "weights", "states"),
    [
        (Learner(), 4 * 300, 8 * 300),
        # Muon's momentum of 240 elements in the layers, and Adam's moments of the other 60.
        (Learner(optimizer="muon"), 1200, 4 * 240 + 8 * 60),
        (Learner(states="8bit"), 1200, int(2 * (1 + 4 / 256) * 300)),
        # An average beside the weights.
        (Learner(averages=True), 2400, 2400),
        (Learner(weights="bf16"), 600, 2400),
        (Learner(weights="bf16", rounding="kahan"), 600, 2400 + 600),
        # Rank 1 adds in + out: 8 + 6 + 6 + 8 + 3 x 10 = 58 a layer.
        (Learner(lora=LoraShape(1)), 1200 + 4 * 116, 8 * 116),
        (Learner(lora=LoraShape(3, ("q_proj",))), 1200 + 4 * 48, 8 * 48),
        (Learner(states_on_host=True, device="cuda"), 1200, 0),
        (Learner(shards_on_host=True, processes=2, device="cuda"), 0, 0),
        # The length of each of 4 + 2 + 2 + 4 + 6 + 6 + 4 rows a layer, too.
        (Learner(lora=LoraShape(1, dora=True)), 1200 + 4 * 172, 8 * 172),
        (Learner(processes=3), 400, 800),
    ],
)
def test_what_stands_all_the_while(shapes, learner, weights, states):
    assert standing_bytes(shapes, learner) == {"weights": weights, "states": states}


def test_weights_of_four_bits_are_those_of_linear_layers(shapes):
    stored = replace(shapes, stored=2)
    scales = 240 / 64 + 4 * 240 / (64 * 256)
    assert held.weight_bytes(stored, "nf4") == int(120 + scales + 2 * 40 + 4 * 20)


@pytest.mark.parametrize(
    ("learner", "kept"),
    [
        # A token: two norms keep 3 x 4 numbers each, attention 2 x 4 + 2 x 2, the MLP 4 x 6, and
        # two heads a log-sum-exp; of four bytes each.
        (GPU, 6 * 4 * (24 + 12 + 24 + 2)),
        # Norms in float32 keep 2 x 4 each, five layers a cast of the norm's output.
        (replace(GPU, precision="bf16"), 6 * (4 * 16 + 2 * 5 * 4 + 2 * 12 + 2 * 24 + 4 * 2)),
        # Of a frozen norm no gradient is wanted.
        (replace(GPU, lora=LoraShape(1)), 6 * 4 * (16 + 12 + 24 + 2)),
        # Keys for every head, and for each of 2 heads and rows a softmax of 3 x 3.
        (replace(GPU, attention="eager"), 4 * (6 * (24 + 16 + 24) + 2 * 2 * 9)),
        # What each document attended to, and all of them end to end.
        (replace(GPU, packing=True), 6 * 4 * (24 + 4 + 12 + 24 + 2)),
        # Named, sdpa has a bias of 6 x 6.
        (replace(GPU, packing=True, attention="sdpa"), 4 * (6 * (24 + 16 + 24 + 2) + 36)),
    ],
)
def test_what_a_layer_keeps(shapes, learner, kept):
    rows = replace(ROWS, count=1, length=6) if learner.packing else ROWS
    assert activations.layer_bytes(shapes, learner, rows) == kept


def test_our_own_pass_leaves_out_what_nothing_is_read_from(shapes):
    # Two of three tokens a row are computed, in rows of 16 for attention, and taken out again.
    kept = 4 * (4 * (24 + 24 + 4) + 32 * (12 + 2))
    assert activations.layer_bytes(shapes, Learner(), ROWS) == kept
    one_each = replace(ROWS, wanted=2)
    last = activations.layer_bytes(shapes, Learner(), one_each, is_last=True)
    assert last == 4 * (4 * 12 + 2 * (12 + 24 + 4) + 32 * 14)


def test_the_head_adds_gradients_in_a_third_place(shapes, monkeypatch):
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", 20)
    assert head.chunk_bytes(shapes, ROWS) == 4 * 10 * 2
    assert head.head_forward_bytes(shapes, ROWS) == 2 * 80
    assert head.head_forward_bytes(shapes, ROWS, with_entropy=True) == 5 * 80
    assert head.head_backward_bytes(shapes, GPU, ROWS) == (0, 3 * 160)
    # A frozen head has no gradient.
    assert head.head_backward_bytes(shapes, replace(GPU, lora=LoraShape(1)), ROWS) == (240, 0)
    # All in one chunk: its softmax is among what was kept.
    one = replace(ROWS, wanted=2)
    assert head.kept_bytes(shapes, one) == 80
    assert head.head_backward_bytes(shapes, GPU, one) == (160, 0)
    assert head.CHUNK_ELEMENTS != logprobs.CHUNK_ELEMENTS


def test_muon_holds_updates_and_the_stack_of_the_most_matrices(shapes):
    learner = Learner(optimizer="muon")
    # Six matrices of 4 x 6, three times, and their products of 4 x 4 twice.
    assert held.step_bytes(shapes, learner) == 4 * 240 + 4 * 6 * (3 * 24 + 2 * 16)
    assert held.step_bytes(shapes, Learner()) == 0


def test_the_steps_moments(shapes):
    moments = {each.name: each.parts for each in training_moments(shapes, GPU, Batch(ROWS))}
    layer, norm = 6 * 4 * 62, 4 * (6 * 8 + 4 * 4)
    assert moments["forward pass"]["activations"] == 2 * layer + norm
    assert moments["step"]["gradients"] == 1200
    # While the first layer is gone through the second one's gradients are there, a share of the
    # last norm with them, the head's, and that of one matrix.
    first = moments["backward pass, layer 1"]
    assert first["gradients"] == 4 * (130 + 40 + 24)
    assert first["activations"] == layer + 6 * 4 * (2 * 6 + 4)
    # Tied: the embeddings' gradient, the head's, and their sum.
    assert moments["backward pass, embeddings"]["gradients"] == 4 * (300 - 40 + 3 * 40)


def test_gradients_go_within_the_backward_pass(shapes):
    learner = replace(GPU, in_backward=True)
    moments = {each.name: each.parts for each in training_moments(shapes, learner, Batch(ROWS))}
    # The head's, which waits for that of the embeddings, and one matrix, in float32 four times.
    assert moments["backward pass, layer 1"]["gradients"] == 4 * (40 + 24)
    assert moments["backward pass, layer 1"]["step"] == 4 * 4 * 40
    assert moments["backward pass, embeddings"]["gradients"] == 4 * 3 * 40
    assert moments["step"]["gradients"] == 0


def test_processes_that_share_tokens_have_all_keys(shapes):
    rows = replace(ROWS, count=1, length=6)
    alone = activations.layer_bytes(shapes, replace(GPU, packing=True), rows)
    shared = replace(GPU, packing=True, shares_tokens=True, processes=3)
    assert activations.layer_bytes(shapes, shared, rows) == alone + 6 * 4 * 2 * 2 * 2


def test_keys_and_values(shapes):
    other = replace(shapes, family="other")
    drawing = DrawnRows(rows=4, prompt=5, answer=7, group=2)
    # Of each of 4 rows 12 positions: 2 layers, keys and values, 2 wide.
    slots = 4 * 12 * 2 * 2 * 2 * 4
    prompts = 2 * 5 * 2 * 2 * 2 * 4 + 2 * 5 * 4 * (8 + 4 * 4 + 2 * 2)
    drawn = 10 * 4 * 10 * 4
    cache = sampling_moment(other, GPU, drawing).parts["cache"]
    assert cache == slots + max(prompts, drawn)
    waiting = sampling_moment(other, GPU, replace(drawing, waiting=True)).parts["cache"]
    assert waiting - cache == slots // 4


@pytest.mark.parametrize(
    ("learner", "one"),
    [
        ({}, 12 * 300),
        ({"lora": {"rank": 1}}, 12 * 116),
        ({"ema_decay": 0.9}, 4800),
    ],
)
def test_checkpoints(shapes, learner, one):
    asked = StageQuestion(SftConfig(checkpoint_every=5, learner=learner), shapes)
    size = checkpoint_size(asked)
    assert (size.one, size.kept, size.result) == (one, 2 * one, 1200)
    assert checkpoint_size(asked.changed("checkpoint_every", 0)).kept == 0


@pytest.mark.parametrize(
    ("checkpoints", "count"),
    [({"keep": 5}, 5), ({"keep": 5, "budget": 3 * 3600 + 1}, 3), ({"budget": 3599}, 1)],
)
def test_as_many_checkpoints_stay_as_the_recipe_keeps(shapes, checkpoints, count):
    asked = StageQuestion(SftConfig(learner={"checkpoints": checkpoints}), shapes)
    assert checkpoint_size(asked).kept == count * 3600


def test_a_wide_copy_of_a_held_matrix(shapes):
    # The largest is 4 x 6; four bits become float32, and bfloat16 from there under autocast.
    held = replace(GPU, lora=LoraShape(1), weights="nf4")
    assert activations.widened_bytes(shapes, held) == 4 * 24
    assert activations.widened_bytes(shapes, replace(held, precision="bf16")) == 6 * 24
    both = replace(held, weights="bf16", precision="bf16")
    assert activations.widened_bytes(shapes, both) == 0
    assert activations.cast_bytes(shapes, both) == 0
    assert activations.widened_bytes(shapes, GPU) == 0


def test_shapes_are_read_without_memory():
    from transformers import GPTNeoXConfig, Qwen3Config

    sizes = {"hidden_size": 16, "intermediate_size": 48, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 4, "vocab_size": 32, "max_position_embeddings": 64}
    found = shapes_of(Qwen3Config(**sizes, num_key_value_heads=2, head_dim=8, pad_token_id=0))
    assert (found.attention, found.keys, found.gated, found.norms_of_heads) == (32, 16, True, True)
    assert found.parameters == found.embedding + found.head + found.in_layers
    assert found.matrices == 3 * (16 * (32 + 2 * 16 + 32) + 3 * 16 * 48)
    neox = shapes_of(GPTNeoXConfig(**sizes))
    # Its queries, keys and values are as wide together as its MLP, which has one way up.
    assert (neox.mlp, neox.gated, neox.keeps_normed) == (48, False, False)


def test_what_other_architectures_keep(shapes):
    # 2 rows of 3 tokens, in float32 on a GPU.
    rows, plain = BatchRows(2, 3, 4), activations.layer_bytes(shapes, GPU, BatchRows(2, 3, 4))

    def more(**has):
        return activations.layer_bytes(replace(shapes, **has), GPU, rows) - plain

    # Queries of 4 and keys of 2 beside the values, which are a part of the projection.
    assert more(fused=True) == 6 * 4 * (4 + 2)
    # Two experts gather a state of 4, and give one.
    assert more(experts=2) == 6 * 4 * 2 * (4 + 4)
    # Scores of 2 rows and 2 heads, 3 x 3, once more.
    eager = replace(shapes, kernel="eager")
    capped = replace(eager, caps_scores=True)
    scores = [activations.layer_bytes(each, GPU, rows) for each in (eager, capped)]
    assert scores[1] - scores[0] == 4 * 2 * 2 * 3 * 3
    # The logits of 4 wanted tokens of 10 words, softmax and cap.
    assert head.kept_bytes(replace(shapes, caps_logits=True), rows) == 2 * 4 * 10 * 4


def test_shapes_read_what_a_config_says_and_its_architecture_has():
    from transformers import Gemma2Config, GPTNeoXConfig, MixtralConfig

    sizes = {
        "vocab_size": 10,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
    }
    # A GPT-NeoX has as many keys as queries, whatever its file says.
    neox = shapes_of(GPTNeoXConfig(**sizes, num_key_value_heads=2))
    assert (neox.kv_heads, neox.fused, neox.experts) == (4, True, 0)
    gemma = shapes_of(Gemma2Config(**sizes, head_dim=2, final_logit_softcapping=None))
    assert (gemma.caps_scores, gemma.caps_logits, gemma.fused) == (True, False, False)
    mixtral = shapes_of(MixtralConfig(**sizes, num_key_value_heads=2, num_experts_per_tok=2))
    assert (mixtral.experts, mixtral.caps_logits) == (2, False)


def test_a_model_that_does_not_attend_is_not_counted():
    from transformers import MambaConfig

    with pytest.raises(UserError, match="'mamba' names no num_attention_heads; plan without"):
        shapes_of(MambaConfig(hidden_size=8, num_hidden_layers=1, vocab_size=10))
