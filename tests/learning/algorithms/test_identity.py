"""One digest for one algorithm however it is written, and another for each switch that differs."""

import json
import subprocess
import sys
from typing import Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from posttrain.learning.algorithms.choice import Chosen
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.identity import canonical, digest, flat, switches
from posttrain.learning.algorithms.presets import PRESETS

# Written down so that a change of any default, name or spelling is noticed: digests are in the
# records of runs and in papers, and must then get a new format number.
PINNED = {
    "default": "e0b8d621ce88a614ca3369a34285937617e8dbc16af4afce11d66a4fe36e4cf4",
    "grpo": "650b55e45c0f45248c83c226e52393d32a58ef67d60fda532f4e32602ec90042",
    "ppo": "fc3e301a6ebc42582bebd62865db8a034f569e581f907cf482c782d684f7ee7c",
    "cispo_open_instruct": "efafdd345febf1493f1b1a3e9048daa9065281abe247cdd957d3568d4ce7795d",
}

EVERYTHING_ON = {
    "advantage": {
        "estimator": "group",
        "scale": "sample",
        "whiten": "sample",
        "turns": {"groups": "state", "gamma": 0.9, "episode_weight": 1.0},
    },
    "correction": {
        "old": "recomputed",
        "weights": {"bound": "clamp", "low": 0.5, "high": 2.0},
        "band": {"low": 0.5, "high": 2.0},
        "max_drift": 0.5,
    },
    "aggregation": {"kind": "constant_length", "length": 8},
    "kl": {"coefficient": 0.1, "ratio_weighted": True, "ceiling": 10.0},
    "entropy": {"coefficient": 0.01},
    "overlong": {"share": 0.2, "limit": 100},
    "ratio": {"surrogate": "clip", "dual": 3.0},
}


def validated(value):
    return TypeAdapter(Chosen).validate_python(value)


def test_pinned_digests():
    assert {name: digest(PRESETS[name].algorithm) for name in PINNED} == PINNED


@pytest.mark.parametrize(
    "spelling",
    [
        "grpo",
        {"preset": "grpo"},
        {"preset": "grpo", "ratio": {"low": 0.2}},
        {
            "preset": "dapo",
            "advantage": {"truncated": "keep"},
            "overlong": None,
            "ratio": {"high": 2e-1},
            "aggregation": {"kind": "sequence_mean_token_mean"},
            "kl": {"coefficient": 0.04, "place": "loss"},
        },
        {
            "kl": {"estimator": "k3", "coefficient": 4e-2},
            "ratio": {"high": 0.2, "surrogate": "clip"},
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
        return [value / 2, value * 2, value + 0.125, value + 1]
    return [each for inner in get_args(kind) for each in others(inner, value)]


def neighbours(model, rebuild):
    """Every algorithm that differs from this one in a single switch, by the path of the switch."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)

        def changed(inner, name=name):
            return rebuild(model.model_dump() | {name: inner})

        if isinstance(value, BaseModel):
            yield from neighbours(value, changed)
            continue
        for candidate in others(field.annotation, value):
            try:
                yield f"{type(model).__name__}.{name}", changed(candidate)
            except ValidationError:
                continue


def all_algorithms():
    yield from (preset.algorithm for preset in PRESETS.values())
    yield validated(EVERYTHING_ON)


def test_any_one_switch_changes_the_digest():
    touched = set()
    for algorithm in all_algorithms():
        own = digest(algorithm)
        for path, other in neighbours(algorithm, Algorithm.model_validate):
            if flat(other) != flat(algorithm):
                touched.add(path)
                assert digest(other) != own, path
            else:
                assert other == algorithm or path.endswith("epsilon"), path
    assert touched >= set(all_numbers_and_choices())


def all_numbers_and_choices():
    """Paths of every field that a neighbour can differ in: all but the choice of a whole model."""
    for algorithm in all_algorithms():
        models = [algorithm]
        while models:
            model = models.pop()
            for name in type(model).model_fields:
                value = getattr(model, name)
                if isinstance(value, BaseModel):
                    models.append(value)
                elif value is not None and name not in ("estimator", "surrogate"):
                    yield f"{type(model).__name__}.{name}"


def test_taking_a_section_out_changes_the_digest():
    whole = validated(EVERYTHING_ON)
    without = [whole.model_copy(update={name: None}) for name in ("kl", "entropy", "overlong")]
    assert len({digest(each) for each in [whole, *without]}) == 4


def test_every_preset_has_a_digest_of_its_own():
    assert len({digest(preset.algorithm) for preset in PRESETS.values()}) == len(PRESETS)


def test_the_canonical_text_states_everything_in_one_spelling():
    text = canonical(PRESETS["dapo"].algorithm)
    assert " " not in text
    told = json.loads(text)
    assert list(told) == sorted(told)
    assert told.pop("format") == 1
    assert told == switches(PRESETS["dapo"].algorithm)
    assert set(told) == set(Algorithm.model_fields)


def test_the_digest_is_the_same_in_another_process_without_torch():
    program = (
        "import sys; from posttrain.learning.algorithms.presets import PRESETS;"
        "from posttrain.learning.algorithms.identity import digest;"
        "assert 'torch' not in sys.modules;"
        "print(*[digest(each.algorithm) for each in PRESETS.values()])"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [digest(each.algorithm) for each in PRESETS.values()]
