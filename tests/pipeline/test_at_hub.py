"""What a plan says of models and data at the hub, and of a GPU that is not there."""

import pytest
from huggingface_hub import constants

from posttrain.pipeline.at_hub import notes_on_hub
from posttrain.pipeline.programs import note_on_gpu
from posttrain.pipeline.recipe import RunSettings
from posttrain.stage.spec import Dag, Stage
from tasks.import_model import TASK as IMPORT
from tasks.synthesize import TASK as SYNTHESIZE

COMMIT = "0123456789ab" + 28 * "c"
DATA = {
    "sources": [
        {"kind": "huggingface", "name": side, "hub": "own/data", "revision": COMMIT, "use": use}
        for side, use in (("train", "train"), ("test", "heldout"))
    ]
}
OFFLINE = (
    " is not in the hub's cache on this machine, CACHE, and HF_HUB_OFFLINE keeps it from being"
    " fetched%s; unset it, fetch this first where there is a network (hf download %s --revision"
    f" {COMMIT}), or give a folder as path"
)


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """Of a model and a data set, with the hub's cache in a folder of its own."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    def of(model="own/base-0.5B-Instruct", *, offline=False, cached=()):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        for folder in cached:
            (tmp_path / folder / "snapshots" / COMMIT).mkdir(parents=True)
        configs = {
            "data": (SYNTHESIZE, DATA),
            "base": (IMPORT, {"name": model, "revision": COMMIT}),
            "local": (IMPORT, {"path": "model"}),
        }
        stages = {
            name: Stage(name, task, task.config.parse(values, where=name), {})
            for name, (task, values) in configs.items()
        }
        told = [*notes_on_hub(Dag(stages), stages)]
        return [each.replace(str(tmp_path), "CACHE") for each in told]

    return of


def test_what_is_at_the_hub_is_told_once_with_the_size_in_its_name(notes):
    assert notes() == [
        "data: data set own/data at 0123456789ab is fetched from the hub when the stage runs",
        "base: model own/base-0.5B-Instruct at 0123456789ab is fetched from the hub when the stage"
        " runs (some 1 GB: 0.5B by its name, in 2 bytes each)",
    ]


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("own/SmolLM2-135M", "270 MB"),
        ("own/Llama-3.1-8B", "16 GB"),
        ("own/base", None),
        ("own/Mixtral-8x7B-v0.1", None),
        ("7B/base", None),
    ],
)
def test_a_size_is_told_where_the_name_has_one(notes, model, size):
    told = notes(model)[1]
    assert ("some" in told) == (size is not None)
    assert size is None or f"(some {size}: " in told


def test_offline_it_has_to_be_in_the_cache(notes):
    assert notes(offline=True) == [
        "data: data set own/data at 0123456789ab" + OFFLINE % ("", "own/data --repo-type dataset"),
        "base: model own/base-0.5B-Instruct at 0123456789ab"
        + OFFLINE % (" (some 1 GB: 0.5B by its name, in 2 bytes each)", "own/base-0.5B-Instruct"),
    ]
    cached = ("datasets--own--data", "models--own--base-0.5B-Instruct")
    assert [each.rpartition(" is in ")[2] for each in notes(offline=True, cached=cached)] == [
        "the hub's cache on this machine, CACHE"
    ] * 2


def test_what_is_in_the_cache_is_taken_from_it_online_too(notes):
    told = notes(cached=("datasets--own--data", "models--own--base-0.5B-Instruct"))
    assert [each.rpartition(" is in ")[2] for each in told] == [
        "the hub's cache on this machine, CACHE"
    ] * 2


def test_a_gpu_that_is_asked_for_and_not_there_is_told(tmp_path):
    cuda = RunSettings(device="cuda")
    assert note_on_gpu(cuda, tmp_path) == (
        "run.device is cuda, and this machine has no GPU: the recipe can be planned here and not"
        " run; run it where there is one, or set run.device to cpu"
    )
    assert note_on_gpu(RunSettings(), tmp_path) is None
    (tmp_path / "nvidiactl").touch()
    assert note_on_gpu(cuda, tmp_path) is not None
    (tmp_path / "nvidia0").touch()
    assert note_on_gpu(cuda, tmp_path) is None
