"""What the plan says of memory: which model a stage has, what fits, and what would help."""

from dataclasses import replace

import pytest

from posttrain.learning.memory.asked import StageQuestion
from posttrain.learning.memory.peak import POLICY
from posttrain.learning.memory.shapes import ModelShapes
from posttrain.learning.memory.stages import TASKS
from posttrain.learning.training.config import LoraConfig
from posttrain.operations.memory_plan.machine import Machine, named_machine
from posttrain.operations.memory_plan.models import split_models
from posttrain.operations.memory_plan.plan import plan_memory
from posttrain.operations.memory_plan.savings import trials
from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.errors import UserError, UserErrors
from posttrain.stage.resources import Resources
from posttrain.stage.spec import Dag, Reference, Stage
from tasks.pretrain import TASK as PRETRAIN
from tasks.rl import TASK as RL
from tasks.sft import TASK as SFT

SHAPES = ModelShapes(
    family="llama",
    parameters=1_000_000,
    embedding=100_000,
    head=0,
    vocabulary=1000,
    hidden=100,
    layers=9,
    heads=4,
    kv_heads=4,
    head_size=25,
    mlp=400,
    gated=True,
    context=4096,
    linears=(),
)


class Finder:
    """Every model is of one size."""

    def models(self, stage):
        return {"policy": SHAPES}


def sft(**section):
    config = SFT.config.parse({"max_length": 512, **section}, where="sft")
    policy = Reference(ArtifactKind.CHECKPOINT, stage="base", output="policy")
    return Stage("sft", SFT, config, {"policy": policy})


def planned(stage, capacity, gpus=1):
    machine = Machine("cuda", capacity, gpus)
    return plan_memory(Dag({stage.name: stage}), Finder(), machine, prompt_tokens=16)


def test_what_does_not_fit_is_refused_with_what_each_setting_saves():
    plan = planned(sft(batch_tokens=8192), capacity=10**8, gpus=2)
    (stage,) = plan.stages
    assert not stage.fits
    saved = [each.saves for each in stage.savings]
    assert len(saved) == 3
    assert min(saved) > 0
    with pytest.raises(UserErrors) as refused:
        plan.refuse()
    (sentence,) = refused.value.sentences
    assert sentence.startswith("sft does not fit: at its peak (backward pass, head) it takes ")
    assert sentence.endswith(", which fits")
    for each in stage.savings:
        assert f"{each.told('sft')} (saves " in sentence


def section_of(saving):
    """What a recipe would say."""
    section = {}
    for each in saving.settings:
        name, _, field = each.path.partition(".")
        section.setdefault(name, {}).update({field: each.value}) if field else section.update(
            {name: each.value}
        )
    return section


def test_each_saving_is_what_the_setting_takes_away():
    plain = planned(sft(batch_tokens=8192), capacity=10**8).stages[0]
    first = plain.savings[0]
    then = planned(sft(batch_tokens=8192, **section_of(first)), capacity=10**8).stages[0]
    assert plain.peak.total - then.peak.total == first.saves
    # Each goes beside those before it.
    assert plain.with_savings == plain.peak.total - sum(each.saves for each in plain.savings)
    # What is in use already is not offered.
    assert first.told("sft") not in [each.told("sft") for each in then.savings]


def test_in_backward_is_offered_with_the_norm_that_it_cannot_hold():
    asked = StageQuestion(sft().config, SHAPES, device="cuda")
    told = {each.told("sft"): each for each in trials(asked, 1) if each.put_in(asked)}
    saving = told["sft.optimization.max_grad_norm=null with sft.optimization.in_backward=true"]
    found = saving.put_in(asked)
    assert found.config.optimization.in_backward
    assert found.config.optimization.max_grad_norm is None
    # Alone it is refused, and 4 bits are for frozen weights alone.
    assert "sft.learner.weights=nf4" not in told
    adapted = asked.changed("learner.lora", LoraConfig())
    assert "sft.learner.weights=nf4" in [
        each.told("sft") for each in trials(adapted, 1) if each.put_in(adapted)
    ]


def test_what_several_processes_refuse_is_not_offered():
    asked = StageQuestion(sft().config, SHAPES, device="cuda", processes=2)
    paths = {
        each.path for saving in trials(asked, 2) if saving.put_in(asked) for each in saving.settings
    }
    assert {"learner.offload", "optimization.states", "learner.weights"} <= paths
    assert "optimization.offload" not in paths
    alone = replace(asked, processes=1)
    assert all(
        each.settings[-1].path != "learner.offload" or each.put_in(alone) is None
        for each in trials(alone, 1)
    )


def test_what_fits_is_offered_nothing():
    plan = planned(sft(), capacity=10**10)
    plan.refuse()
    assert plan.stages[0].savings == ()


def test_several_processes_share_a_model_and_each_has_a_gpu_of_its_own():
    alone = planned(sft(), capacity=10**10).stages[0]
    two = replace(sft(), resources=Resources(processes=2))
    shared = planned(two, capacity=10**10, gpus=2).stages[0]
    assert (shared.processes, shared.room) == (2, 10**10)
    assert shared.peak.parts["states"] * 2 == alone.peak.parts["states"]
    of_the_host = plan_memory(Dag({"sft": two}), Finder(), Machine("cpu", 10**10), prompt_tokens=16)
    assert of_the_host.stages[0].room == 5 * 10**9


def rl(**section):
    config = RL.config.parse({"max_tokens": 64, "algorithm": "grpo", **section}, where="rl")
    return Stage("rl", RL, config, {})


def test_vllm_has_its_share_beside_the_trainer():
    capacity = 10**10
    ours = planned(rl(), capacity).stages[0].peak.parts
    theirs = planned(rl(engine={"kind": "vllm", "gpu_memory_utilization": 0.3}), capacity)
    assert theirs.stages[0].peak.parts["cache"] == 3 * 10**9
    assert theirs.stages[0].peak.parts["states"] == ours["states"]
    asleep = planned(rl(engine={"kind": "vllm", "sleep": True}), capacity).stages[0]
    assert asleep.peak.name == "sampling"


def test_a_reference_and_a_value_model_stand_beside_the_policy():
    parts = planned(rl(), 10**11).stages[0].peak.parts
    assert parts["reference"] == 4 * 1_000_000
    adapted = planned(rl(learner={"lora": {"rank": 4}}), 10**11).stages[0].peak.parts
    assert adapted["reference"] == 0
    valued = planned(rl(algorithm="ppo"), 10**11).stages[0].peak.parts
    assert valued["values"] > 16 * 1_000_000


def test_a_model_from_nothing_is_counted_by_its_stages_config(tmp_path):
    from posttrain.operations.memory_plan.models import ModelFinder

    sizes = {"vocab_size": 300, "hidden": 8, "layers": 3, "heads": 2}
    base = Stage("base", PRETRAIN, PRETRAIN.config.parse(sizes, where="base"), {})
    dag = Dag({"base": base, "sft": sft()})
    finder = ModelFinder(dag, lambda relative: tmp_path / relative)
    (found,) = finder.models(dag.stages["sft"]).values()
    assert (found.layers, found.hidden, found.vocabulary, found.context) == (3, 8, 300, 512)
    # Attention and MLP, two norms; the last norm; the embeddings, tied.
    assert found.parameters == 3 * (4 * 64 + 3 * 8 * 16 + 2 * 8) + 8 + 300 * 8


def test_of_several_policies_the_largest_is_counted():
    small = replace(SHAPES, parameters=10)
    assert split_models({"policies.a": small, "policies.b": SHAPES}) == (
        SHAPES,
        {"policies.a": small},
    )


@pytest.mark.parametrize(
    ("size", "count", "told"),
    [("80GB", 8, "8 GPUs of 80 GB each"), ("24 GiB", 1, "a GPU of 25.8 GB")],
)
def test_a_machine_is_named_as_people_write_it(size, count, told):
    assert named_machine(size, count).told() == told


@pytest.mark.parametrize(("size", "said"), [("80", "80 B"), ("a lot", "no amount of bytes")])
def test_what_is_no_gpu_is_refused(size, said):
    with pytest.raises(UserError, match=said):
        named_machine(size, 1)


@pytest.mark.parametrize(("weights", "width"), [("fp32", 4), ("bf16", 2)])
def test_processes_draw_from_a_whole_copy_that_is_gone_before_they_learn(weights, width):
    config = rl(learner={"weights": weights}, optimization={"optimizer": "adamw"}).config
    moments = TASKS["rl"](StageQuestion(config, SHAPES, processes=2))
    held = {each.name: each.parts[POLICY] for each in moments}
    # Half of a million parameters is in shards, and all of it is drawn from and saved.
    assert held.pop("sampling") == 1.5 * width * SHAPES.parameters
    assert held.pop("saving") == 1.5 * width * SHAPES.parameters
    assert "loading" not in held
    assert set(held.values()) == {0.5 * width * SHAPES.parameters}
