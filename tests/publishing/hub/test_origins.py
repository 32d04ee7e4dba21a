"""Base models, data sets, methods and licenses of a card, from stage runs written by hand."""

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from posttrain.provenance.key import flattened
from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.publishing.hub import origins
from posttrain.publishing.hub.licenses import HUB_LICENSES, hub_license, license_metadata
from posttrain.publishing.hub.results import EvaluatedOn, benchmark_file
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind

COMMIT = "c" * 40
GSM8K = {"kind": "huggingface", "name": "gsm8k", "hub": "openai/gsm8k", "revision": COMMIT}
FIGURES = {"pass_at_1": {"value": 0.5, "low": 0.25, "high": 0.75, "problems": 100.0, "seeds": 2.0}}


def record(role, digest, kind=ArtifactKind.CHECKPOINT):
    return ArtifactRecord(role, kind, f"data/{digest}", digest, 1)


def run(stage, task, *, inputs=(), outputs=(), **params):
    components = {"params": flattened(params)}
    return StageRun(
        stage, "run", stage, f"tasks.{task}", "key", "succeeded", 0.0, 1.0,
        components=components, inputs=tuple(inputs), outputs=tuple(outputs),
    )  # fmt: skip


STAGES = [
    run(
        "synthesize",
        "synthesize",
        outputs=[record("traces", "t", ArtifactKind.COMPLETIONS)],
        sources=[
            {**GSM8K, "subset": "main", "split": "train", "use": "train"},
            {**GSM8K, "subset": "main", "split": "test", "use": "heldout"},
            {"kind": "huggingface", "name": "local", "path": "../rows"},
        ],
    ),
    run("base", "import_model", name="org/base", outputs=[record("policy", "b")]),
    run("judge", "import_model", name="org/judge", outputs=[record("policy", "j")]),
    run(
        "sft",
        "sft",
        inputs=[record("policy", "b"), record("traces", "t")],
        outputs=[record("policy", "s")],
    ),
    run(
        "rl",
        "rl",
        inputs=[record("policy", "s"), record("reward_model", "j")],
        outputs=[record("policy", "r")],
    ),
]


def test_weights_are_followed_through_policies_and_not_through_judges():
    assert origins.base_models(STAGES, "r") == ["org/base"]
    assert origins.trainers_behind(STAGES, "r") == ["sft", "rl"]
    assert [each.stage for each in origins.runs_behind(STAGES, "r")] == [
        "synthesize", "base", "judge", "sft", "rl",
    ]  # fmt: skip
    assert origins.trainers_behind(STAGES, "s") == ["sft"]
    assert not origins.is_merged(STAGES, "r")


def test_data_sets_of_the_hub_are_told_with_what_was_held_out_and_folders_are_not():
    assert [(each.name, each.split, each.heldout) for each in origins.hub_data(STAGES)] == [
        ("openai/gsm8k", "train", False),
        ("openai/gsm8k", "test", True),
    ]


def test_methods_are_those_that_the_recipe_names_with_the_ids_of_their_papers():
    sections = {"rl": {"algorithm": {"preset": "grpo"}}, "preference": {"algorithm": "no such"}}
    names = origins.names_of_methods(sections, "dapo")
    assert names == ["dapo", "grpo", "no such"]
    used = {each.name: each.papers for each in origins.methods_used(names)}
    assert used == {"dapo": ("2503.14476",), "grpo": ("2402.03300",)}


@pytest.mark.parametrize(
    ("spdx", "hub"),
    [
        ("MIT", "mit"),
        ("AGPL-3.0-only", "agpl-3.0"),
        ("LGPL-2.1-or-later", "lgpl-2.1"),
        ("ODC-By-1.0", "odc-by"),
        ("llama3.2", "llama3.2"),
        ("MIT OR Apache-2.0", None),
    ],
)
def test_licenses_are_spelled_as_the_hub_lists_them(spdx, hub):
    assert hub_license(spdx) == hub
    assert hub is None or hub in HUB_LICENSES


def test_a_license_that_the_hub_does_not_list_is_other_with_a_name_and_a_link():
    link = "https://example.org/l"
    assert license_metadata("Qwen Research", link, where="x") == {
        "license": "other",
        "license_name": "qwen-research",
        "license_link": link,
    }
    assert license_metadata(None, None, where="x") == {}
    with pytest.raises(UserError, match="^x: 'Qwen Research' is none of the licenses"):
        license_metadata("Qwen Research", None, where="x")


def test_a_result_on_a_benchmark_is_read_back_by_the_hubs_library():
    heldout = [each for each in origins.hub_data(STAGES) if each.heldout]
    measured = EvaluatedOn("d" * 64, {"num_samples": 4, "temperature": 1.0}, 86400.0, heldout)
    ((name, text),) = benchmark_file("openai/gsm8k", "gsm8k", FIGURES, measured).items()
    assert name.startswith(".eval_results/posttrain-")
    (entry,) = parse_eval_result_entries(yaml.safe_load(text))
    assert (entry.dataset_id, entry.task_id, entry.value) == ("openai/gsm8k", "gsm8k", 0.5)
    assert (entry.dataset_revision, entry.date) == (COMMIT, "1970-01-02")
    assert entry.notes == (
        "pass@1, 95% interval over problems 0.2500 to 0.7500; 100 problems of split test, 2 seeds;"
        " num_samples 4, temperature 1.0"
    )
    with pytest.raises(UserError, match="must come from org/other alone"):
        benchmark_file("org/other", "default", FIGURES, measured)
