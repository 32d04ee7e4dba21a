"""What an upload leaves on a stand-in of the hub, by the hub's own client."""

import pytest
from huggingface_hub import HfApi

from posttrain import __version__
from posttrain.publishing.hub.upload import push_folder
from posttrain.stage.errors import UserError

CARD = "---\nlicense: mit\n---\n# A model\n"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    (made / "release").mkdir(parents=True)
    (made / "README.md").write_text(CARD)
    (made / "model.safetensors").write_bytes(b"weights")
    (made / "release" / "data.json").write_text("{}")
    return made


def push(folder, api, tag="v0.1.0", **more):
    return push_folder(folder, "me/tiny", message="Release tiny", tag=tag, hub=api, **more)


def test_a_new_repository_is_private_has_the_files_and_the_tag(hub, api, folder):
    said = push(folder, api)
    there = hub.model("me/tiny")
    assert there.private
    assert said.startswith("me/tiny: http://127.0.0.1")
    assert there.files == {
        ".gitattributes": b"",
        "README.md": CARD.encode(),
        "model.safetensors": b"weights",
        "release/data.json": b"{}",
    }
    assert there.tags == {"v0.1.0": there.head}
    assert any(f"posttrain/{__version__}" in each for each in hub.agents)


def test_files_of_before_go_and_results_of_others_stay(hub, api, folder):
    push(folder, api)
    others = HfApi(endpoint=hub.endpoint, token="hf_of_others")
    others.upload_file(
        path_or_fileobj=b"- value: 1\n",
        path_in_repo=".eval_results/of-others.yaml",
        repo_id="me/tiny",
    )
    (folder / "release" / "data.json").unlink()
    (folder / "release" / "new[1].json").write_text("1")
    (folder / "README.md").write_text(CARD + "2")
    push(folder, api, tag="v0.2.0")
    there = hub.model("me/tiny")
    assert sorted(there.files) == [
        ".eval_results/of-others.yaml",
        ".gitattributes",
        "README.md",
        "model.safetensors",
        "release/new[1].json",
    ]
    assert there.tags["v0.2.0"] == there.head != there.tags["v0.1.0"]


def test_a_tag_is_never_moved_and_the_same_again_is_said(hub, api, folder):
    push(folder, api)
    commits = len(hub.model("me/tiny").commits)
    assert push(folder, api) == "me/tiny: v0.1.0 is there already"
    (folder / "README.md").write_text(CARD + "other")
    with pytest.raises(UserError, match=r"me/tiny has the tag v0.1.0 for something else"):
        push(folder, api)
    assert len(hub.model("me/tiny").commits) == commits


def test_a_push_that_ended_before_its_tag_gets_it_when_run_again(hub, api, folder):
    push(folder, api, tag=None)
    before = hub.model("me/tiny").head
    push(folder, api)
    assert hub.model("me/tiny").tags["v0.1.0"]
    assert hub.model("me/tiny").commits[before] == hub.model("me/tiny").files


def test_a_card_that_the_hub_refuses_is_one_sentence(hub, api, folder):
    (folder / "README.md").write_text("---\nlicense: qwen research license\n---\n")
    with pytest.raises(UserError, match=r"^cannot upload to me/tiny: .*license must be one of"):
        push(folder, api)
    assert list(hub.model("me/tiny").files) == [".gitattributes"]


def test_a_data_set_is_a_repository_of_its_own_kind(hub, api, folder):
    push_folder(folder, "me/tiny", message="rows", kind="dataset", hub=api)
    assert hub.dataset("me/tiny").private
    assert "models/me/tiny" not in hub.repositories
