"""A kept batch, passed through the weights that it met, tells a broken model from a broken loss."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from posttrain.cli.main import main
from posttrain.data.rows import TokenRow
from posttrain.learning.models.load import weights_digest
from posttrain.learning.models.reward_head import start_reward_model
from posttrain.learning.preference.objective import PreferenceBatch
from posttrain.learning.training.batch_replay import replay_batch
from posttrain.learning.training.config import LearnerConfig, LoraConfig, TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.failed_batch import save_failed_batch, weights_beside
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.learning.training.supervised import train
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.token_batches import next_token_loss, token_batches
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

ROWS = [TokenRow((1, 5 + index, 6, 2), start=1) for index in range(12)]
CONFIG = TrainingConfig(
    steps=6, batch_tokens=12, micro_batch_tokens=8, optimization={"warmup_steps": 1}
)
PACKED = LearnerConfig(packing=True)


def not_a_number(model, batch, denominator):
    """A loss that breaks by itself; weights, logits and log-probabilities are sound."""
    loss, metrics = next_token_loss(model, batch, denominator)
    return loss * math.nan, metrics


def fail(policy, scratch, loss=next_token_loss, config=CONFIG):
    """Train until a number is not finite; returns the file that the message names."""
    context = StageContext.quiet(scratch)
    batches = token_batches(policy, ROWS, config=config, seed=0)
    trainable = prepare_for_training(policy.model, config.learner, seed=0)
    with pytest.raises(UserError, match="so training stopped") as caught:
        train(
            trainable,
            SupervisedObjective(batches, loss),
            config=config,
            context=context,
            curve=Curve(context),
            prefix="fit",
        )
    return Path(re.search(r"the batch is kept in (\S+)", str(caught.value)).group(1))


def poison(model, name="model.layers.1.mlp.up_proj.weight"):
    with torch.no_grad():
        model.get_parameter(name)[0, 0] = math.nan


@pytest.mark.parametrize("learner", [LearnerConfig(), PACKED])
def test_a_broken_weight_is_named_and_so_is_the_first_layer_that_gives_it_on(
    fresh, tmp_path, learner
):
    policy = fresh()
    poison(policy.model)
    path = fail(policy, tmp_path, config=CONFIG.model_copy(update={"learner": learner}))
    found = replay_batch(path)
    assert found.weights == weights_digest(policy.model)
    assert found.step == 1
    # 12 tokens are three rows, the first token of which bears no loss; 8 are two of them.
    assert (found.num_parts, found.num_tokens) == (2, 9)
    assert found.findings == (
        "the weight model.layers.1.mlp.up_proj.weight is not finite",
        "micro-batch 0: the output of model.layers.1.mlp.up_proj is not finite",
        "micro-batch 1: the output of model.layers.1.mlp.up_proj is not finite",
    )


@pytest.mark.parametrize("learner", [LearnerConfig(), PACKED])
def test_a_broken_loss_on_a_sound_model_leaves_nothing_to_find(fresh, tmp_path, learner):
    config = CONFIG.model_copy(update={"learner": learner})
    found = replay_batch(fail(fresh(), tmp_path, not_a_number, config))
    assert found.findings == ()
    assert found.num_tokens == 9


def test_both_sets_of_rows_of_a_pair_pass_through_the_model(fresh, tmp_path):
    """The weights are sound; what came with the second set of rows is not."""
    policy = fresh()
    tokens, extra = (
        next(iter(token_batches(policy, rows, config=CONFIG, seed=0).micro_batches(0)))
        for rows in (ROWS[:2], ROWS[2:3])
    )
    zeros = torch.zeros(2)
    batch = PreferenceBatch(tokens, zeros, extra, torch.tensor([math.inf]), torch.zeros(()), 1)
    facts = {"step": 3, "seed": 0, "weights": weights_digest(policy.model)}
    path = save_failed_batch(tmp_path, [batch], facts=facts)
    policy.model.save_pretrained(weights_beside(path))
    found = replay_batch(path)
    assert found.findings == (
        "micro-batch 0: the batch itself holds extra_reference_B, which is not finite",
    )
    # Three rows with three tokens each that bear loss.
    assert found.num_tokens == 9


@pytest.mark.slow
def test_a_reward_model_with_a_head_is_loaded_with_it(fresh, tmp_path):
    policy = fresh()
    policy.model.save_pretrained(tmp_path / "policy")
    policy.tokenizer.save_pretrained(tmp_path / "policy")
    model = start_reward_model(tmp_path / "policy", parameterization="head").model
    poison(model, "score.weight")
    batch = token_batches(policy, ROWS, config=CONFIG, seed=0).micro_batches(0)[0]
    facts = {"step": 1, "seed": 0, "weights": weights_digest(model)}
    path = save_failed_batch(tmp_path, [batch], facts=facts)
    model.save_pretrained(weights_beside(path))
    assert replay_batch(path).findings == (
        "the weight score.weight is not finite",
        "micro-batch 0: the output of score is not finite",
    )


@pytest.fixture(scope="module")
def kept(tokenizer, tmp_path_factory):
    """A folder with a batch that a broken weight failed on, and that weight."""
    from posttrain.learning.models.build import build_llama
    from posttrain.learning.models.load import Policy

    policy = Policy(build_llama(tokenizer, hidden=16, layers=2, heads=2, seed=0), tokenizer)
    poison(policy.model)
    return fail(policy, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def mine(kept, tmp_path):
    """A copy of it to spoil."""
    shutil.copyfile(kept, tmp_path / kept.name)
    shutil.copytree(weights_beside(kept), weights_beside(tmp_path / kept.name))
    return tmp_path / kept.name


def other_weights(path):
    file = weights_beside(path) / "model.safetensors"
    weights = load_file(file)
    weights["model.norm.weight"][0] += 1
    save_file(weights, file, metadata={"format": "pt"})


def a_pickle(path):
    file = weights_beside(path) / "model.safetensors"
    torch.save(load_file(file), file.with_name("pytorch_model.bin"))
    file.unlink()


def tokens_of_another_model(path):
    parts, metadata = load_file(path), {"facts": facts_of(path)}
    parts["1.input_ids_BT"][0, 0] = 270
    save_file(parts, path, metadata=metadata)


def facts_of(path):
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return file.metadata()["facts"]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (other_weights, "these weights are not those that the batch met"),
        (a_pickle, "safetensors"),
        (tokens_of_another_model, "its rows are not of this model"),
        (lambda path: shutil.rmtree(weights_beside(path)), "no weights were kept with this batch"),
        (lambda path: (weights_beside(path) / "config.json").write_text("[]"), "no architecture"),
        (lambda path: path.write_bytes(b"no"), "this is no kept batch"),
    ],
)
def test_what_is_not_as_it_was_written_is_refused(mine, spoil, sentence):
    spoil(mine)
    with pytest.raises(UserError, match=sentence):
        replay_batch(mine)


def test_adapters_are_not_kept_and_the_way_out_is_named(fresh, tmp_path):
    config = CONFIG.model_copy(update={"learner": LearnerConfig(lora=LoraConfig(rank=2))})
    path = fail(fresh(), tmp_path, not_a_number, config)
    with pytest.raises(UserError, match="run the stage again, which goes on from its last"):
        replay_batch(path)


@pytest.fixture
def command(monkeypatch):
    """Exit code of `posttrain replay` with these arguments."""

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["posttrain", "replay", *map(str, arguments)])
        try:
            main()
        except SystemExit as stopped:
            return stopped.code
        return 0

    return call


def test_the_command_names_the_weight_and_exits_with_1(kept, command, capfd):
    assert command("--batch", kept) == 1
    out = capfd.readouterr().out
    assert out.startswith("step 1: 9 tokens that bear loss, in 2 micro-batches\n")
    assert "the weight model.layers.1.mlp.up_proj.weight is not finite" in out
    assert command("--batch", kept, "--json") == 1
    assert json.loads(capfd.readouterr().out)["findings"][0].startswith("the weight model.layers.1")


def test_the_command_says_that_the_loss_is_the_cause_and_exits_with_0(
    fresh, tmp_path, command, capfd
):
    assert command("--batch", fail(fresh(), tmp_path, not_a_number)) == 0
    assert "a term of the stage's own loss is the cause" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "name a run, such as latest, or --batch FILE"),
        (("latest", "--batch", "x"), "and not both"),
        (("--batch", "nowhere.safetensors"), "nowhere.safetensors: this is no kept batch"),
    ],
)
def test_the_command_refuses_in_one_sentence(arguments, sentence, command, capfd):
    assert command(*arguments) == 2
    error = capfd.readouterr().err.strip()
    assert sentence in error
    assert "\n" not in error
