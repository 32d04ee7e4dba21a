"""Precision, adapters, activation checkpointing and averages, each against what it must equal."""

import json

import pytest
import torch

from posttrain.data.rows import TokenRow, TokenTable
from posttrain.learning.models.adapters import attach_adapter, load_adapter, plain_weights
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.checkpoint import read_checkpoint
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.training.config import LearnerConfig, TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.prepare import prepare_for_training, without_dropout
from posttrain.learning.training.supervised import train
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.token_batches import next_token_loss, token_batches
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

ROWS = [
    TokenRow((1, *(3 + (index * step) % 200 for step in range(2 + index % 5)), 2), start=1)
    for index in range(24)
]


class Killed(BaseException):
    """Stands for a kill."""


def fit(policy, scratch, *, kill=None, **learner):
    config = TrainingConfig(
        steps=8,
        batch_tokens=60,
        optimization={"learning_rate": 0.01, "warmup_steps": 1},
        checkpoint_every=3,
        learner=LearnerConfig(**learner),
    )

    def emit(event):
        if event["kind"] == "progress" and event["done"] == kill:
            raise Killed

    context = StageContext(seed=0, threads=1, device="cpu", scratch=scratch, emit=emit)
    trainable = prepare_for_training(policy.model, config.learner, seed=0)
    curve = Curve(context)
    batches = token_batches(policy, ROWS, config=config, seed=0)
    train(
        trainable,
        SupervisedObjective(batches, next_token_loss),
        config=config,
        context=context,
        curve=curve,
        prefix="fit",
    )
    return trainable, curve


def gradient(model, learner):
    trainable = prepare_for_training(model, learner, seed=0)
    model.train()
    batch = TokenTable(ROWS, pad=0).batch(range(8))
    with trainable.computing():
        loss, _ = next_token_loss(model, batch, float(batch.num_units))
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def test_activation_checkpointing_gives_the_same_gradient_bit_for_bit(fresh):
    calls = []

    def watched(*, again):
        model = fresh().model
        model.model.layers[0].self_attn.register_forward_hook(lambda *_: calls.append(1))
        return gradient(model, LearnerConfig(activation_checkpointing=again))

    plain_loss, plain = watched(again=False)
    loss, recomputed = watched(again=True)
    assert len(calls) == 1 + 2  # Forward, and again in the backward pass.
    assert torch.equal(plain_loss, loss)
    assert plain.keys() == recomputed.keys()
    assert all(torch.equal(plain[name], recomputed[name]) for name in plain)


def test_bf16_computes_in_bfloat16_and_keeps_weights_logits_and_loss_in_float32(fresh):
    plain_loss, plain = gradient(fresh().model, LearnerConfig())
    model = fresh().model
    seen = []
    model.model.layers[0].mlp.down_proj.register_forward_hook(lambda *a: seen.append(a[2].dtype))
    loss, rounded = gradient(model, LearnerConfig(precision="bf16"))
    assert seen == [torch.bfloat16]
    assert loss.dtype == torch.float32
    assert all(g.dtype == torch.float32 for g in rounded.values())
    assert 0 < abs(float(loss - plain_loss)) < 0.02
    flat, other = (torch.cat([g.flatten() for g in grads.values()]) for grads in (plain, rounded))
    assert torch.cosine_similarity(flat, other, dim=0) > 0.99


def test_bf16_learns_what_fp32_learns(fresh, tmp_path):
    losses = [
        fit(fresh(), tmp_path / precision, precision=precision)[1].last("fit/loss")
        for precision in ("fp32", "bf16")
    ]
    assert losses[1] == pytest.approx(losses[0], abs=0.05)


def test_an_adapter_starts_at_the_base_trains_alone_and_merges_into_a_plain_model(fresh, tmp_path):
    policy, base = fresh(), fresh()
    before = {name: p.clone() for name, p in base.model.state_dict().items()}
    batch = TokenTable(ROWS, pad=0).batch(range(8))
    first = next_token_loss(base.model, batch, 1.0)[0]
    trainable = prepare_for_training(policy.model, LearnerConfig(lora={"rank": 2}), seed=0)
    assert torch.equal(next_token_loss(policy.model, batch, 1.0)[0], first)

    policy = fresh()
    trainable, _ = fit(policy, tmp_path / "run", lora={"rank": 2, "alpha": 8})
    trained = [name for name, p in policy.model.named_parameters() if p.requires_grad]
    # Seven linear layers in each of two blocks, two factors each; the head has none.
    assert len(trained) == 2 * 7 * 2
    assert all("lora" in name for name in trained)
    adapted = next_token_loss(policy.model, batch, 1.0)[0]
    assert adapted < first
    trainable.save(policy.tokenizer, tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    assert loaded.model.state_dict().keys() == before.keys()
    merged = next_token_loss(loaded.model, batch, 1.0)[0]
    assert merged.item() == pytest.approx(adapted.item(), rel=1e-5)
    changed = {n for n, p in loaded.model.state_dict().items() if not torch.equal(p, before[n])}
    assert changed == {n for n in before if "proj" in n}


def test_an_adapter_saved_alone_goes_onto_its_base_and_names_it(fresh, tmp_path):
    policy = fresh()
    digest = weights_digest(policy.model)
    trainable, _ = fit(policy, tmp_path / "run", lora={"rank": 2, "save": "adapter"})
    batch = TokenTable(ROWS, pad=0).batch(range(8))
    adapted = next_token_loss(policy.model, batch, 1.0)[0].item()
    trainable.save(policy.tokenizer, tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    assert str(tmp_path) not in (tmp_path / "adapter" / "adapter_config.json").read_text()
    base = fresh()
    load_adapter(base.model, tmp_path / "adapter")
    assert next_token_loss(base.model, batch, 1.0)[0].item() == pytest.approx(adapted, rel=1e-5)
    assert json.loads((tmp_path / "adapter" / "base.json").read_text()) == {"base": digest}
    with pytest.raises(UserError, match="the adapter belongs to weights .* give the base that it"):
        load_adapter(fresh(seed=1).model, tmp_path / "adapter")
    with pytest.raises(UserError, match="this is an adapter without its base; .*load_adapter$"):
        load_policy(tmp_path / "adapter")
    (tmp_path / "adapter" / "base.json").unlink()
    with pytest.raises(UserError, match="this is no adapter that posttrain saved"):
        load_adapter(fresh().model, tmp_path / "adapter")


@pytest.mark.parametrize("weights", ["fp32", "bf16", "nf4"])
@pytest.mark.parametrize("dora", [False, True])
def test_merged_weights_say_what_the_adapters_said(fresh, tmp_path, weights, dora):
    lora = {"rank": 2, "alpha": 8, "dora": dora}
    policy, batch = fresh(), TokenTable(ROWS, pad=0).batch(range(8))
    trainable, _ = fit(policy, tmp_path / "run", lora=lora, weights=weights)
    trained = [name for name, p in policy.model.named_parameters() if p.requires_grad]
    # Two factors for each of 14 layers, and under DoRA the lengths of the rows.
    assert len(trained) == 14 * (3 if dora else 2)
    assert all(p.dtype == torch.float32 for p in policy.model.parameters() if p.requires_grad)
    adapted = next_token_loss(policy.model, batch, 1.0)[0].item()
    with trainable.adapter.switched_off() as model:
        before = next_token_loss(model, batch, 1.0)[0].item()
    assert next_token_loss(policy.model, batch, 1.0)[0].item() == adapted < before
    for_engines = dict(plain_weights(policy.model, ()))
    trainable.save(policy.tokenizer, tmp_path / "policy")
    merged = load_policy(tmp_path / "policy").model
    assert next_token_loss(merged, batch, 1.0)[0].item() == pytest.approx(adapted, rel=1e-5)
    wanted = dict(merged.named_parameters())
    assert for_engines.keys() == wanted.keys()
    assert all(torch.allclose(for_engines[n].float(), wanted[n], atol=1e-6) for n in wanted)


def test_an_engine_is_given_lengths_of_rows_also_where_weights_lie_the_other_way_around():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2)).eval()
    adapter = attach_adapter(model, rank=2, alpha=4, dora=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    for_engines = {name: weight.clone() for name, weight in plain_weights(model, ())}
    adapter.merge()
    for name, parameter in model.named_parameters():
        assert torch.allclose(for_engines[name], parameter, atol=1e-6), name


def test_the_base_is_read_without_dropout_while_the_policy_trains(fresh, tmp_path):
    policy = fresh()
    trainable, _ = fit(policy, tmp_path / "run", lora={"rank": 2})
    policy.model.train()
    with trainable.adapter.switched_off() as model:
        assert not any(module.training for module in model.modules())
    assert policy.model.training


def test_rows_of_a_weight_have_the_lengths_that_dora_has_learned(fresh, tmp_path):
    """DoRA, equation 5: W' = m (W + BA) / ||W + BA||, so each row of W' is m long."""
    policy = fresh()
    trainable, _ = fit(policy, tmp_path / "run", lora={"rank": 2, "dora": True})
    layer = policy.model.model.layers[0].mlp.up_proj
    lengths = layer.lora_magnitude_vector["default"].weight.detach().clone()
    before = torch.linalg.norm(layer.base_layer.weight, dim=1)
    assert (lengths - before).abs().max() > 1e-3
    trainable.merge()
    weight = policy.model.model.layers[0].mlp.up_proj.weight
    assert torch.allclose(torch.linalg.norm(weight, dim=1), lengths, atol=1e-6)


def test_an_adapter_on_4_bits_names_the_stored_base_and_goes_onto_its_4_bits(fresh, tmp_path):
    policy = fresh()
    digest = weights_digest(policy.model)
    learner = {"weights": "nf4", "lora": {"rank": 2, "save": "adapter"}}
    trainable, _ = fit(policy, tmp_path / "run", **learner)
    batch = TokenTable(ROWS, pad=0).batch(range(8))
    adapted = next_token_loss(policy.model, batch, 1.0)[0].item()
    trainable.save(policy.tokenizer, tmp_path / "adapter")
    facts = json.loads((tmp_path / "adapter" / "base.json").read_text())
    assert facts == {"base": digest, "weights": "nf4"}
    base = fresh()
    load_adapter(base.model, tmp_path / "adapter")
    assert next_token_loss(base.model, batch, 1.0)[0].item() == pytest.approx(adapted, rel=1e-5)


def test_4_bits_are_for_weights_that_are_not_trained():
    with pytest.raises(UserError, match="learner: .*nf4 holds weights that are not trained.*rank"):
        LearnerConfig.parse({"weights": "nf4"}, where="learner")


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_adapters_alone_are_moved_whatever_the_optimizer(fresh, optimizer):
    policy = fresh()
    prepare_for_training(policy.model, LearnerConfig(lora={"rank": 2, "dora": True}), seed=0)
    optimizer = build_optimizer(policy.model, OptimizationConfig(optimizer=optimizer))
    batch = TokenTable(ROWS, pad=0).batch(range(8))
    losses = []
    for _ in range(3):
        loss = next_token_loss(policy.model, batch, float(batch.num_units))[0]
        loss.backward()
        losses.append(loss.item())
        optimizer.step(learning_rate=0.01, max_grad_norm=1.0)
    assert losses[2] < losses[0]


def test_adapters_of_one_seed_are_equal_bytes(fresh, tmp_path):
    for name in ("a", "b"):
        policy = fresh()
        fit(policy, tmp_path / f"run-{name}", lora={"rank": 2})[0].save(
            policy.tokenizer, tmp_path / name
        )
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b")]
    assert files[0] == files[1]


def test_only_named_layers_are_adapted_and_a_wrong_name_is_refused(fresh):
    model = fresh().model
    prepare_for_training(model, LearnerConfig(lora={"targets": ("q_proj",)}), seed=0)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert len(trained) == 4
    assert all("q_proj" in name for name in trained)
    with pytest.raises(UserError, match="no linear layer is called 'query'; there are: down_proj"):
        prepare_for_training(fresh().model, LearnerConfig(lora={"targets": ("query",)}), seed=0)


def test_the_average_is_saved_and_follows_its_equation(fresh, tmp_path):
    decay, seen = 0.5, []
    policy = fresh()
    expected = policy.model.lm_head.weight.detach().clone()
    config = LearnerConfig(ema_decay=decay)
    trainable = prepare_for_training(policy.model, config, seed=0)
    for step in range(3):
        with torch.no_grad():
            policy.model.lm_head.weight.add_(step + 1.0)
        seen.append(policy.model.lm_head.weight.detach().clone())
        trainable.after_step()
    for weight in seen:
        expected = decay * expected + (1 - decay) * weight
    trainable.finish()
    assert torch.allclose(policy.model.lm_head.weight, expected, atol=1e-6)
    policy, plain = fresh(), fresh()
    fit(policy, tmp_path / "average", ema_decay=0.9)
    fit(plain, tmp_path / "plain")
    assert weights_digest(policy.model) != weights_digest(plain.model)


@pytest.mark.parametrize(
    "learner",
    [
        {"lora": {"rank": 2, "dropout": 0.3}},
        {"lora": {"rank": 2, "dora": True}, "weights": "nf4"},
        {"ema_decay": 0.9},
        {"precision": "bf16", "packing": True},
        {"activation_checkpointing": True},
    ],
    ids=["lora", "dora_nf4", "average", "bf16_packed", "recomputed"],
)
def test_a_run_cut_anywhere_ends_with_the_same_weights(fresh, tmp_path, learner):
    def attempt(scratch, kill=None):
        policy = fresh()
        trainable, _ = fit(policy, scratch, kill=kill, **learner)
        trainable.merge()
        return weights_digest(policy.model)

    whole = attempt(tmp_path / "whole")
    for kill in (2, 3, 7):
        with pytest.raises(Killed):
            attempt(tmp_path / str(kill), kill)
        assert attempt(tmp_path / str(kill)) == whole, kill


def test_an_adapters_checkpoint_holds_no_weight_of_the_base(fresh, tmp_path):
    fit(fresh(), tmp_path / "lora", lora={"rank": 2})
    fit(fresh(), tmp_path / "full")
    size = {
        name: sum(f.stat().st_size for f in (tmp_path / name).rglob("tensors-*"))
        for name in ("lora", "full")
    }
    newest = max((tmp_path / "lora").rglob("step-*"))
    assert all("lora" in name for name in read_checkpoint(newest).states["model"])
    assert size["lora"] < size["full"]


def test_a_checkpoint_of_another_setting_or_seed_is_refused_by_field(fresh, tmp_path):
    fit(fresh(), tmp_path)
    with pytest.raises(UserError, match=r"config\.learner\.precision=\"fp32\", now it is \"bf16\""):
        fit(fresh(), tmp_path, precision="bf16")


def test_without_dropout_training_mode_computes_what_evaluation_does(tokenizer):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        attention_dropout=0.5,
    )
    model = LlamaForCausalLM(config)
    ids = torch.arange(10)[None]
    expected = model.eval()(ids).logits
    assert not torch.equal(model.train()(ids).logits, expected)
    without_dropout(model)
    assert torch.allclose(model(ids).logits, expected, atol=1e-6)


def test_a_merged_checkpoint_needs_no_peft_to_load(fresh, tmp_path):
    policy = fresh()
    trainable, _ = fit(policy, tmp_path / "run", lora={"rank": 2})
    trainable.save(policy.tokenizer, tmp_path / "policy")
    again = tmp_path / "again"
    save_policy(load_policy(tmp_path / "policy").model, policy.tokenizer, again)
    assert (again / "model.safetensors").read_bytes() == (
        tmp_path / "policy" / "model.safetensors"
    ).read_bytes()
