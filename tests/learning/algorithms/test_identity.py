"""One digest for one algorithm however it is written, and another for each switch that differs."""

import json
import subprocess
import sys
from typing import Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from posttrain.learning.algorithms.config import AggregationConfig, Algorithm, CriticConfig
from posttrain.learning.algorithms.digests_format_1 import FORMAT_1
from posttrain.learning.algorithms.identity import canonical, digest, flat, name_by_digest
from posttrain.learning.algorithms.presets import PREFERENCE_PRESETS, PRESETS, AlgorithmConfig
from tasks.rl.config import RlStageConfig

# Written down so that a change of any name or spelling is noticed: digests are in the records of
# runs and in papers. A default that changes raises its class's `DEFAULTS_VERSION`.
PINNED = {
    "default": "c2cf8dee571fe5501b90ec76741336565b9f72e1e9130cb6585b3575d4dfc3cd",
    "grpo": "12e73de1595e36ed651583ac8d8826515f31403a6b07eeffb8f76801e12d4306",
    "ppo": "cb1ee9ed5146aa014b1628ac4808e37716a5b57c6909d8711d46f66423a9ded6",
    "cispo_open_instruct": "0ea9d8a967af73ace49e30ba554ee59de492cc92c2e315d34400945e0c83f512",
}

EVERYTHING_ON = {
    "advantage": {
        "kind": "group",
        "scale": "sample",
        "whiten": "sample",
    },
    "old_policy": "recomputed",
    "token_weights": {
        "importance": {"bound": "clamp", "low": 0.5, "high": 2.0},
        "band": {"low": 0.5, "high": 2.0},
        "drift": {"threshold": 0.5},
    },
    "aggregation": {"kind": "constant_length", "length": 8},
    "regularizers": {
        "kl": {"coefficient": 0.1, "ratio_weighted": True, "ceiling": 10.0},
        "entropy": {"coefficient": 0.01},
    },
    "overlong": {"share": 0.2, "limit": 100},
    "surrogate": {"kind": "clip", "dual": 3.0},
}


def validated(value):
    return TypeAdapter(AlgorithmConfig).validate_python(value)


def test_pinned_digests():
    assert {name: digest(PRESETS[name].algorithm) for name in PINNED} == PINNED


@pytest.mark.parametrize(
    "spelling",
    [
        "grpo",
        {"preset": "grpo"},
        {"preset": "grpo", "surrogate": {"low": 0.2}},
        {
            "preset": "dapo",
            "overlong": None,
            "surrogate": {"high": 2e-1},
            "aggregation": {"kind": "sequence_mean_token_mean"},
            "regularizers": {"kl": {"coefficient": 0.04, "place": "loss"}},
        },
        {
            "regularizers": {"kl": {"estimator": "k3", "coefficient": 4e-2}},
            "surrogate": {"high": 0.2, "kind": "clip"},
            "aggregation": {"kind": "sequence_mean_token_mean"},
            "advantage": {"epsilon": 0, "scale": "sample"},
        },
        json.loads(json.dumps(PRESETS["grpo"].algorithm.model_dump(mode="json"))),
    ],
)
def test_equal_settings_written_differently_are_one(spelling):
    assert canonical(validated(spelling)) == canonical(PRESETS["grpo"].algorithm)
    assert digest(validated(spelling)) == digest(PRESETS["grpo"].algorithm)


def test_switches_without_effect_do_not_count():
    plain = digest(Algorithm())
    assert digest(validated({"advantage": {"epsilon": 0.5, "whiten_epsilon": 0.5}})) == plain
    assert digest(validated({"advantage": {"epsilon": 0.5, "scale": "sample"}})) != digest(
        validated({"advantage": {"scale": "sample"}})
    )


def others(kind, value):
    """Other values that a field of this type might take."""
    if get_origin(kind) is Literal:
        return [each for each in get_args(kind) if each != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value / 2, value * 2, value + 0.125, value + 1, (value + 1) / 2]
    return [each for inner in get_args(kind) for each in others(inner, value)]


def neighbors(model, rebuild):
    """Every algorithm that differs from this one in a single switch, by the path of the switch."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)

        def changed(inner, name=name):
            return rebuild(model.model_dump() | {name: inner})

        if isinstance(value, BaseModel):
            yield from neighbors(value, changed)
            continue
        if isinstance(value, dict):
            for key, part in value.items():
                whole = model.model_dump()[name]
                yield from neighbors(
                    part, lambda inner, c=changed, k=key, w=whole: c(w | {k: inner})
                )
            continue
        for candidate in others(field.annotation, value):
            try:
                yield f"{type(model).__name__}.{name}", changed(candidate)
            except ValidationError:
                continue


def all_algorithms():
    yield from (preset.algorithm for preset in PRESETS.values())
    yield validated(EVERYTHING_ON)
    for kind in ("turns", "entropy_modulated"):
        yield validated({"advantage": {"kind": kind, "baseline": "none", "whiten": "sample"}})
    for more in ({"baseline": "none", "whiten": "sample"}, {"scale": "sample"}):
        yield validated(
            {"advantage": {"kind": "outcome_credit", **more}, "critic": {"target": "outcome"}}
        )


WITHOUT_EFFECT = (
    "epsilon",
    "TdValues.recalled",
    "OutcomeValues.gamma",
    "LearnedAdvantage.beta",
    "LearnedAdvantage.most",
)
"""Switches that mean nothing where another one is as it is: they are put back to their default."""


def test_any_one_switch_changes_the_digest():
    touched = set()
    for algorithm in all_algorithms():
        own, switches = digest(algorithm), flat(algorithm)
        for path, other in neighbors(algorithm, Algorithm.model_validate):
            if flat(other) != switches:
                touched.add(path)
                assert digest(other) != own, path
            else:
                assert other == algorithm or path.endswith(WITHOUT_EFFECT), path
    # A schedule is what a number is in a step; what it is by is of the recipe.
    expected = {each for each in all_numbers_and_choices() if "ScheduledNumber" not in each}
    never = {
        "TdValues.recalled",
        "OutcomeValues.gamma",
        "LearnedAdvantage.whiten_epsilon",
        # It follows from the advantage, and is refused where it does not.
        "CriticConfig.target",
    }
    assert touched >= expected - never


def all_numbers_and_choices():
    """Paths of every field that a neighbor can differ in: all but the choice of a whole model."""
    for algorithm in all_algorithms():
        models = [algorithm]
        while models:
            model = models.pop()
            for name in type(model).model_fields:
                value = getattr(model, name)
                if isinstance(value, BaseModel):
                    models.append(value)
                elif isinstance(value, dict):
                    models += value.values()
                elif value is not None and name != "kind":
                    yield f"{type(model).__name__}.{name}"


def test_taking_a_section_out_changes_the_digest():
    whole = validated(EVERYTHING_ON)
    without = [validated({**EVERYTHING_ON, "regularizers": {}})]
    without.append(whole.model_copy(update={"overlong": None}))
    without.append(whole.model_copy(update={"token_weights": {}}))
    assert len({digest(each) for each in [whole, *without]}) == 4


def test_presets_share_a_digest_where_they_share_an_algorithm_alone():
    # What sets methods of episodes apart is often who plays and what is paid, not the algorithm.
    own = {digest(preset.algorithm): canonical(preset.algorithm) for preset in PRESETS.values()}
    assert len({canonical(preset.algorithm) for preset in PRESETS.values()}) == len(own)
    assert len(own) > len(PRESETS) / 2


def test_the_canonical_text_states_what_is_not_at_its_default_in_one_spelling():
    assert canonical(PRESETS["dapo"].algorithm) == (
        '{"advantage":{"epsilon":0.0,"kind":"group","scale":"sample"},'
        '"format":2,"of":"policy-gradient","overlong":{}}'
    )
    assert canonical(Algorithm()) == '{"format":2,"of":"policy-gradient"}'


class WithOneMore(Algorithm):
    """The algorithm as a later version may have it."""

    novelty: CriticConfig | None = None
    strength: float = 1.0


@pytest.mark.parametrize("name", ["default", "dapo", "ppo", "grpo_verl"])
def test_a_section_or_switch_more_renames_nothing(name):
    algorithm = PRESETS[name].algorithm
    later = WithOneMore.model_validate(algorithm.model_dump())
    assert digest(later) == digest(algorithm)
    assert digest(later.model_copy(update={"strength": 2.0})) != digest(algorithm)


def test_changed_defaults_of_a_section_are_another_algorithm(monkeypatch):
    before = digest(Algorithm())
    monkeypatch.setattr(AggregationConfig, "DEFAULTS_VERSION", 2)
    assert digest(Algorithm()) != before


def test_digests_of_format_1_are_found_by_name():
    known = {name: preset.algorithm for name, preset in PRESETS.items()}
    # From the reports of 0.1, and from papers that cite them.
    assert (
        name_by_digest("e0b8d621ce88a614ca3369a34285937617e8dbc16af4afce11d66a4fe36e4cf4", known)
        == "default"
    )
    assert name_by_digest("650b55e45c0f", known) == "grpo"
    assert name_by_digest(digest(known["ppo"])[:12], known) == "ppo"
    assert name_by_digest("650b", known) is None
    assert name_by_digest("00000000", known) is None
    # Those of today that 0.1 did not have are in none of its reports.
    assert set(FORMAT_1.values()) <= {*PRESETS, *PREFERENCE_PRESETS}


SAME_METHOD = [
    {"steps": 500},
    {"engine": "vllm"},
    {"checkpoint_every": 0},
    {"max_logprob_gap": 0.5},
    {"updates": {"micro_batch_tokens": 64}},
    {"learner": {"precision": "bf16", "activation_checkpointing": True, "attention": "eager"}},
    {"optimization": {"offload": True}},
]
OTHER_METHOD = [
    {"algorithm": "grpo"},
    {"draw": {"max_rounds": 4, "train_on": "signal"}},
    {"draw": {"sampler": "solve_rate"}},
    {"temperature": {"from": 1.0, "to": 0.7, "over": 10}},
    {"draw": {"train_on": "signal"}},
    {"group_size": 16},
    {"problems_per_step": 16},
    {"updates": {"epochs": 2}},
    {"updates": {"minibatches": 2}},
    {"optimization": {"lr_schedule": "constant"}},
    {"temperature": 0.7},
    {"max_tokens": 128},
    {"staleness": 1},
    {"optimization": {"optimizer": "adamw"}},
    {"optimization": {"learning_rate": 1e-4}},
    {"learner": {"lora": {}}},
    {"learner": {"weights": "bf16"}},
    {"learner": {"weights": "bf16"}, "optimization": {"rounding": "nearest"}},
    {"learner": {"weights": "bf16"}, "optimization": {"rounding": "kahan"}},
    {"algorithm": "grpo", "reference": {"kind": "periodic", "every": 4}},
]


@pytest.mark.parametrize("changes", SAME_METHOD)
def test_what_is_no_mathematics_leaves_a_methods_digest(changes):
    assert digest(RlStageConfig(**changes)) == digest(RlStageConfig())


def test_whatever_changes_the_mathematics_changes_a_methods_digest():
    digests = [
        digest(RlStageConfig()),
        *(digest(RlStageConfig(**changes)) for changes in OTHER_METHOD),
    ]
    assert len(set(digests)) == len(OTHER_METHOD) + 1


def test_the_rounding_that_is_there_unasked_is_no_other_method():
    unasked = RlStageConfig(learner={"weights": "bf16"})
    asked = RlStageConfig(learner={"weights": "bf16"}, optimization={"rounding": "stochastic"})
    assert digest(asked) == digest(unasked)
    assert asked.keyed() != unasked.keyed()


@pytest.mark.slow
def test_the_digest_is_the_same_in_another_process_without_torch():
    program = (
        "import sys; from posttrain.learning.algorithms.presets import PRESETS;"
        "from posttrain.learning.algorithms.identity import digest;"
        "assert 'torch' not in sys.modules;"
        "print(*[digest(each.algorithm) for each in PRESETS.values()])"
    )
    # One whose strings hash alike, as no process of tests is told to.
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [digest(each.algorithm) for each in PRESETS.values()]
