"""What cannot be worked on is refused in one sentence."""

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.errors import UserError
from posttrain.stage.resources import RayResources, Resources

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="run: pip install 'posttrain[ray]'"
)


def refusal(resources):
    from posttrain.backends.cluster.connection import connected

    with pytest.raises(UserError) as caught, connected(resources):
        pass
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("address", ["nonsense", "host:", ":1", "ray://127.0.0.1:10001", "host:x"])
def test_what_is_no_address_is_refused_at_once(address):
    assert refusal(RayResources(address=address)) == (
        f"resources.ray: '{address}' is no address of a cluster; write host:port, auto or local"
    )


def test_an_address_where_nothing_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        sentence = refusal(RayResources(address=address))
    assert sentence == (
        f"resources.ray: no Ray cluster answers at {address}; check the address and that"
        " `ray status` works there"
    )


def in_a_process_of_its_own(before, address):
    """What a program says last that connects; Ray keeps a token for as long as a process lives."""
    program = (
        f"{before}\n"
        "from posttrain.backends.cluster.connection import connected\n"
        "from posttrain.stage.resources import RayResources\n"
        f"with connected(RayResources(address={address!r})): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    return done.stderr.splitlines()[-1].removeprefix("posttrain.stage.errors.UserError: ")


def test_auto_where_no_cluster_was_started():
    sentence = in_a_process_of_its_own("import os; os.environ.pop('RAY_ADDRESS', 0)", "auto")
    assert sentence.startswith("resources.ray: auto finds no Ray cluster on this machine; start")


@pytest.mark.slow
def test_more_actors_than_the_cluster_has_cpus(cluster):
    sentence = refusal(RayResources(actors=1000, cpus=2))
    assert sentence.startswith("resources.ray: 1000 actors want 2000 CPUs together, but the")
    assert sentence.endswith("lower actors or cpus")
    assert "GPUs together, but the cluster has 0" in refusal(RayResources(gpus=1, cpus=0.1))


def test_without_ray_the_install_line():
    assert in_a_process_of_its_own("import sys; sys.modules['ray'] = None", "auto") == (
        "resources.ray: Ray is not installed; run: pip install 'posttrain[ray]', or leave"
        " resources.ray out"
    )


def test_only_what_can_change_bytes_is_in_the_key():
    def keyed(**values):
        return Resources.parse(values, where="x").keyed()

    assert keyed() == {}
    on = keyed(ray="auto")
    assert on == keyed(ray={"address": "h:1", "actors": 7, "cpus": 3, "gpus": 1}) != {}
    assert keyed(ray={"rows": 64}) != on


def test_a_section_changes_single_fields_of_what_the_run_says_of_ray():
    run = Resources.parse({"ray": {"address": "h:1", "actors": 7}, "processes": 2}, where="x")

    def ray(**own):
        return Resources.parse(run.changed(own), where="x").ray

    assert ray() == run.ray
    assert ray(ray={"actors": 3}) == RayResources(address="h:1", actors=3)
    assert ray(ray="auto") == RayResources(address="auto", actors=7)
    assert ray(ray=None) is None
    assert Resources().changed({"ray": "auto"})["ray"] == "auto"
    assert run.told() == "2 processes that train together and Ray (h:1) with 7 actors"
    assert Resources().told() == ""


def test_a_stage_without_work_for_ray_refuses_it_and_the_run_skips_it(toy):
    toy.recipe("first: {resources: {ray: auto}}\n")
    with pytest.raises(UserError) as caught:
        load_recipe(toy.root).resolve(toy.root)
    assert str(caught.value).startswith("first.resources.ray: ")
    assert str(caught.value).endswith("has no work for it; leave it out")
    toy.recipe("run: {resources: {ray: auto}}\n")
    stages = load_recipe(toy.root).resolve(toy.root).stages
    assert stages["first"].resources.ray is None


@pytest.mark.slow
def test_the_folder_of_a_cluster_that_a_stage_is_to_join(ray):
    from posttrain.backends.cluster.connection import session_folders

    context = ray.get_runtime_context()
    port = context.gcs_address.rpartition(":")[2]
    folder = Path(ray._private.worker.global_worker.node.get_session_dir_path())
    assert session_folders(f"localhost:{port}") == [folder]
    assert folder in session_folders("auto")
    assert session_folders("127.0.0.1:1") == session_folders("local") == []
