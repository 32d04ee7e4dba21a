"""A subnetwork alone is trained: what moves, what stays bit for bit, and what is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file

from posttrain.learning.models.load import load_policy, save_policy
from posttrain.learning.models.subnetwork import FILE, Subnetwork, moved_weights
from posttrain.learning.rl.ahead import portable
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.import_model.config import ImportModelConfig
from tasks.import_model.stage import run as import_model
from tasks.rl import TASK as RL
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run as rl
from tasks.sft.config import SftConfig
from tasks.sft.stage import run as sft
from tasks.subnetwork import TASK
from tasks.subnetwork.config import SubnetworkConfig
from tasks.subnetwork.stage import run

SFT = {"steps": 4, "batch_tokens": 256, "optimization": {"learning_rate": 0.01}}
# Weight decay pulls at every weight of a matrix, and Muon moves them all.
MUON = {"optimizer": "muon", "learning_rate": 0.01, "weight_decay": 0.1, "warmup_steps": 0}


def weights(folder):
    return {n: w.detach() for n, w in load_policy(folder).model.named_parameters()}


def subnetwork(folder, policy, *, before=None, after=None, **config):
    folder.mkdir()
    compared = {"before": before, "after": after} if after else {}
    outputs = {"policy": folder / "policy", "report": folder / "report.json"}
    metrics = run(
        SubnetworkConfig(**config),
        {"policy": policy, **compared},
        outputs,
        StageContext.quiet(folder / "scratch"),
    )
    return outputs["policy"], metrics


def tune(policy, traces, folder, **config):
    outputs = {"policy": folder / "policy", "curve": folder / "curve.parquet"}
    folder.mkdir(exist_ok=True)
    context = StageContext.quiet(folder / "scratch")
    sft(SftConfig(**SFT | config), {"policy": policy, "traces": traces}, outputs, context)
    return outputs["policy"]


@pytest.fixture
def traces(answers, write):
    return write(answers.filter("verified"))


def test_what_moved_is_seen_in_the_precision_that_is_asked_for(base):
    """1 + 2^-10 is 1 in bfloat16, which has 8 bits; 1 + 2^-6 is not."""
    one, other = load_policy(base).model, load_policy(base).model
    name, weight = next(iter(other.named_parameters()))
    with torch.no_grad():
        next(iter(one.parameters()))[0, :3] = 1.0
        weight[0, 0], weight[0, 1], weight[0, 2] = 1.0, 1.0 + 2**-10, 1.0 + 2**-6
    half = moved_weights(one, other, precision=torch.bfloat16, tolerance=1e-5)
    assert half[name][0, :3].tolist() == [False, False, True]
    assert sum(int(mask.sum()) for mask in half.values()) == 1
    full = moved_weights(one, other, precision=torch.float32, tolerance=1e-5)
    assert full[name][0, :3].tolist() == [False, True, True]


def test_the_mask_is_of_what_moved_in_tensors_that_are_named(base, tmp_path):
    policy = load_policy(base)
    moved = dict(policy.model.named_parameters())
    inside = next(name for name in moved if "q_proj" in name)
    outside = next(name for name in moved if "k_proj" in name)
    with torch.no_grad():
        moved[inside][0, 1] += 1.0
        moved[outside][0, 1] += 1.0
    save_policy(policy.model, policy.tokenizer, tmp_path / "after")
    made, metrics = subnetwork(
        tmp_path / "made", base, before=base, after=tmp_path / "after", names=("*q_proj*",)
    )
    masks = load_file(made / FILE)
    assert masks.keys() == moved.keys()
    assert {name for name, mask in masks.items() if mask.any()} == {inside}
    assert masks[inside].nonzero().tolist() == [[0, 1]]
    assert metrics["subnetwork/share"] == 1 / sum(each.numel() for each in moved.values())
    report = json.loads((tmp_path / "made" / "report.json").read_text())
    assert report["weights"][inside] == 1
    # The weights are those of the policy, not of the run that it is told by.
    assert all(torch.equal(each, weights(base)[n]) for n, each in weights(made).items())


@pytest.mark.parametrize("learner", [{}, {"ema_decay": 0.5}])
@pytest.mark.parametrize("optimization", [SFT["optimization"], MUON])
def test_all_else_stays_bit_for_bit(base, traces, tmp_path, optimization, learner):
    full = tune(base, traces, tmp_path / "full", optimization=optimization)
    # Weights that moved far are a part of each tensor.
    made, metrics = subnetwork(tmp_path / "made", base, before=base, after=full, tolerance=0.01)
    assert 0.02 < metrics["subnetwork/share"] < 0.98
    alone = tune(made, traces, tmp_path / "alone", optimization=optimization, learner=learner)
    masks, before, after = load_file(made / FILE), weights(base), weights(alone)
    differ = torch.cat([(after[n] != before[n]).flatten() for n in before])
    inside = torch.cat([masks[n].flatten() for n in before])
    assert not (differ & ~inside).any()
    # All but the embeddings of tokens that no trace has.
    assert differ[inside].double().mean() > 0.9
    # What comes of it is a model like any other.
    assert not (alone / FILE).exists()


def test_a_whole_model_is_trained_as_without_a_mask(base, traces, tmp_path):
    made, metrics = subnetwork(tmp_path / "made", base, names=("*",))
    assert metrics["subnetwork/share"] == 1.0
    one = weights(tune(base, traces, tmp_path / "one"))
    other = weights(tune(made, traces, tmp_path / "other"))
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())


def test_reinforcement_moves_the_subnetwork_alone(guesser, coins_path, tmp_path):
    made, _ = subnetwork(tmp_path / "made", guesser, names=("*.mlp.*",))
    outputs = {
        name: tmp_path / file
        for name, file in {
            "policy": "policy",
            "rollouts": "rollouts.parquet",
            "curve": "curve.parquet",
            "report": "rl.json",
        }.items()
    }
    config = RlStageConfig(
        steps=3, problems_per_step=8, group_size=6, max_tokens=8, optimization=MUON
    )
    given = {"policy": made, "problems": coins_path}
    rl(config, given, outputs, StageContext.quiet(tmp_path / "scratch"))
    before, after = weights(guesser), weights(outputs["policy"])
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {name for name in before if ".mlp." in name}


def test_drawing_ahead_takes_the_policy_without_what_holds_it(guesser, tmp_path):
    made, _ = subnetwork(tmp_path / "made", guesser, names=("*.mlp.*",))
    config = RlStageConfig()
    trainable = prepare_for_training(load_policy(made).model, config.learner, seed=0)
    assert trainable.subnetwork is not None
    passes = ModelPasses(trainable, None, None, config, 0, "cpu")
    assert portable(passes).trainable.subnetwork is None


def test_an_imported_model_keeps_its_subnetwork(base, tmp_path):
    def bring(folder):
        outputs = {"policy": tmp_path / "in", "report": tmp_path / "in.json"}
        context = StageContext.quiet(tmp_path / "scratch")
        import_model(ImportModelConfig(path="x"), {"files.model": folder}, outputs, context)
        return outputs["policy"]

    made, _ = subnetwork(tmp_path / "made", base, names=("*.mlp.*",))
    masks, kept = load_file(made / FILE), load_file(bring(made) / FILE)
    assert masks.keys() == kept.keys()
    assert all(torch.equal(mask, kept[name]) for name, mask in masks.items())
    (made / FILE).write_bytes((made / FILE).read_bytes()[:40])
    with pytest.raises(UserError, match=r"made/policy/subnetwork.mask: no masks can be read: "):
        bring(made)


def test_gradients_outside_are_none_and_do_not_count_in_the_norm():
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(model.weight, 2.0)
    held = Subnetwork(model, {"weight": torch.tensor([[True, False]])})
    model(torch.tensor([[3.0, 4.0]])).sum().backward()
    model(torch.tensor([[1.0, 4.0]])).sum().backward()
    assert model.weight.grad.tolist() == [[4.0, 0.0]]
    with torch.no_grad():
        model.weight.fill_(7.0)
    held.restore()
    assert model.weight.tolist() == [[7.0, 2.0]]


def test_a_mask_of_another_model_is_refused():
    with pytest.raises(UserError, match="a mask of 'bias', of which the model has no tensor"):
        Subnetwork(torch.nn.Linear(2, 1, bias=False), {"bias": torch.tensor([True])})


def test_a_mask_of_weights_that_adapters_leave_alone_is_refused():
    model = torch.nn.LayerNorm(2)
    model.weight.requires_grad_(False)
    with pytest.raises(UserError, match="a mask of 'weight', and adapters are trained"):
        Subnetwork(model, {"weight": torch.tensor([True, False])})


def test_what_leaves_nothing_to_train_is_refused(base, tmp_path):
    with pytest.raises(UserError, match="no tensor is called 'mpl'"):
        subnetwork(tmp_path / "a", base, names=("mpl",))
    with pytest.raises(UserError, match=r"no weight may move, .* by more than 1e-05 in bfloat16"):
        subnetwork(tmp_path / "b", base, before=base, after=base)


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        ({"before"}, "only before is connected; connect the other one too"),
        (set(), "nothing says which weights may move; give names, or connect before and after"),
    ],
)
def test_the_plan_refuses_what_says_nothing(ports, said):
    made = Reference(ArtifactKind.CHECKPOINT, stage="sft", output="policy")
    stage = Stage("some", TASK, SubnetworkConfig(), dict.fromkeys({"policy", *ports}, made))
    with pytest.raises(UserError, match=said):
        TASK.refuse(stage, Dag())


def reader_of(port, **learner):
    made = Reference(ArtifactKind.CHECKPOINT, stage="norms", output="policy")
    return Stage("alone", RL, RlStageConfig(learner=learner), {port: made})


def test_the_plan_refuses_adapters_beside_a_subnetwork():
    named = Stage("norms", TASK, SubnetworkConfig(names=("*norm*",)), {})
    with pytest.raises(UserError) as refused:
        TASK.refuse(named, Dag({"alone": reader_of("policy", lora={"rank": 2})}))
    assert str(refused.value) == (
        "alone.learner.lora leaves every weight as it is, so that none of norms would be trained;"
        " leave lora out, or connect another policy"
    )
    # Weights are trained, or the policy is read and not trained.
    for reader in (reader_of("policy"), reader_of("reference", lora={"rank": 2})):
        TASK.refuse(named, Dag({"alone": reader}))
