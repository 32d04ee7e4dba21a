"""Digests, paths, stage@run, tags; and what is said when a name fits nothing or too much."""

import pytest

from posttrain.provenance.ledger import ArtifactRecord, Run, StageRun
from posttrain.provenance.lineage.names import find_node, find_run
from posttrain.stage.errors import UserError


@pytest.fixture
def find(project):
    def resolve(name, cwd=None):
        return find_node(project.ledger, name, root=project.root, cwd=cwd or project.root).id

    return resolve


def test_the_four_ways_to_name_a_node(project, find):
    policy = f"checkpoint:{project.digest('policy')}"
    assert find(project.digest("policy")[:8]) == policy
    assert find(f"checkpoint:{project.digest('policy')[:8]}") == policy
    assert find("data/sft/policy") == policy
    assert find("sft@first") == "first-sft"
    assert find("v1") == "release:v1"


def test_more_ways(project, find):
    policy = f"checkpoint:{project.digest('policy')}"
    assert find("./data/sft/policy") == find("data/sft/policy/") == policy
    assert find(str(project.root / "data/sft/policy")) == policy
    assert find("policy", cwd=project.root / "data" / "sft") == policy
    assert find("sft") == find("sft@latest") == find("sft@fir") == find("first-sft") == "first-sft"


def test_a_path_means_the_bytes_that_are_there_now(project, find):
    old = find("data/sft/policy")
    (project.root / "data/sft/policy/model.safetensors").write_text("second weights")
    with pytest.raises(
        UserError, match=f"holds bytes that no run .*{project.digest('policy')[:12]}"
    ):
        find("data/sft/policy")
    record = project.artifact("policy2", "checkpoint", "data/sft/policy", producer="sft")
    project.stage("second", "sft", ["kept", "base"], ["policy2"])
    assert find("data/sft/policy") == f"checkpoint:{record.digest}" != old
    # The older bytes come back, as a checkout of an older commit brings them.
    (project.root / "data/sft/policy/model.safetensors").write_text("weights of sft/policy")
    assert find("data/sft/policy") == old


def test_a_path_without_bytes_means_what_was_last_there(project, find):
    (project.root / "data/evaluate/report.json").unlink()
    assert find("data/evaluate/report.json") == f"report:{project.digest('report')}"
    newer = ArtifactRecord("report", "report", "data/evaluate/report.json", "ab" * 32, 5)
    fields = {"stage": "evaluate", "task": "t", "started": 0.0, "ended": 1.0}
    project.ledger.record(
        StageRun("e2", "r2", key="x", status="succeeded", outputs=(newer,), **fields),
    )
    assert find("data/evaluate/report.json") == f"report:{'ab' * 32}"
    again = (project.records["report"],)
    inputs = (project.records["tuned"],)
    fields |= {"key": "y", "inputs": inputs, "outputs": again}
    project.ledger.record(StageRun("e3", "r3", status="cached", **fields))
    assert find("data/evaluate/report.json") == f"report:{project.digest('report')}"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("data/sft/polcy", r"knows no node 'data/sft/polcy' .*did you mean 'data/sft/policy'\?"),
        ("v2", r"knows no node 'v2'.*did you mean 'v1'"),
        ("0123456789abcdef", "knows no node '0123456789abcdef'"),
        ("sftt@first", r"run first has no stage 'sftt'; did you mean 'sft'\?"),
        ("sft@frist", r"knows no run 'frist'; did you mean 'first'\?"),
        ("sfft@latest", r"no stage 'sfft' was run; did you mean 'sft'\?"),
        ("", "knows no node ''"),
    ],
)
def test_unknown_names_get_the_nearest_candidate(find, name, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        find(name)
    assert "\n" not in str(error.value)


def test_an_ambiguous_digest_lists_what_it_could_mean(project, find):
    outputs = tuple(
        ArtifactRecord("o", "report", f"data/{end}", "feedc0de" + end * 56, 1) for end in "123456"
    )
    fields = {"stage": "s", "task": "t", "started": 0.0, "ended": 1.0}
    project.ledger.record(
        StageRun("x", "r", key="x", status="succeeded", outputs=outputs, **fields)
    )
    expected = "'feedc0de' fits 6 artifacts: report:feedc0de1111, .*; give more of the digest"
    with pytest.raises(UserError, match=expected):
        find("feedc0de")
    assert find("feedc0de1") == "report:feedc0de" + "1" * 56


def test_one_digest_of_two_types_needs_the_type(project, find):
    twin = ArtifactRecord("raw", "problems", "data/copy", project.digest("raw"), 3)
    fields = {"stage": "s", "task": "t", "started": 0.0, "ended": 1.0}
    project.ledger.record(
        StageRun("x", "r", key="x", status="succeeded", outputs=(twin,), **fields)
    )
    with pytest.raises(UserError, match="fits 2 artifacts"):
        find(project.digest("raw"))
    assert find(f"problems:{project.digest('raw')}") == f"problems:{project.digest('raw')}"


def test_a_failed_stage_cannot_be_looked_at(project, find):
    project.ledger.append_run(Run("second", "gsm8k", 20.0), process="elsewhere 1 x")
    project.stage("second", "sft", ["kept"], [], status="failed")
    with pytest.raises(UserError, match="stage 'sft' of run second failed"):
        find("sft@second")


def test_runs_by_prefix_and_by_age(project):
    for name in ("second", "section"):
        project.ledger.append_run(Run(name, "gsm8k", 20.0), process="elsewhere 1 x")
    ledger = project.ledger
    assert find_run(ledger, "latest").id == "section"
    assert find_run(ledger, "latest~1").id == "second"
    assert find_run(ledger, "fir").id == "first"
    with pytest.raises(UserError, match="'sec' fits 2 runs: section, second; give more of the id"):
        find_run(ledger, "sec")
    with pytest.raises(UserError, match="the ledger's number of runs is 3"):
        find_run(ledger, "latest~3")
