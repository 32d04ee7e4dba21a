"""A DVC remote on a real S3 implementation: a release and the run behind it, there and back."""

import os
import shutil
import subprocess
import sys

import pytest

from posttrain.stage.hashing import digest_path


@pytest.fixture
def bucket(monkeypatch):
    """An empty bucket of a moto server: its endpoint, and a client of it."""
    boto3, server = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    pytest.importorskip("dvc_s3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    moto = server.ThreadedMotoServer(port=0)
    moto.start()
    endpoint = "http://{}:{}".format(*moto.get_host_and_port())
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="lake")
    yield endpoint, client
    moto.stop()


@pytest.fixture
def call(released, monkeypatch):
    """Run a module's command in a folder, as a user with a key would."""
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    monkeypatch.setenv("POSTTRAIN_KEYS", str(released.project.keys))

    def run(place, *command):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=place,
            env={**os.environ, "COLUMNS": "250"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_a_run_and_a_release_come_back_from_a_bucket(released, bucket, call, tmp_path):
    endpoint, client = bucket
    project = released.project.copy(tmp_path / "copy")
    config = project.root / ".dvc/config"
    remote = "    remote = lake\n['remote \"lake\"']\n    url = s3://lake/dvc\n"
    config.write_text(f"{config.read_text()}{remote}    endpointurl = {endpoint}\n")
    project.commit("remote")
    made = {place: digest_path(place).sha256 for place in (project.root / "data").glob("*/*")}
    assert len(made) > 4
    call(project.root, "dvc", "push", "-q")
    assert "is in the DVC remote" in call(
        project.root, "posttrain", "release", "push", "mini@v1.1.0", "--dvc"
    )
    listed = client.list_objects_v2(Bucket="lake", Prefix="dvc/files/md5/")
    assert listed["KeyCount"] > len(made)

    # Elsewhere: the clone has neither data nor cache nor ledger, only git and the bucket.
    clone = tmp_path / "clone"
    project.git("clone", "-q", str(project.root), str(clone))
    shutil.rmtree(project.root / ".dvc/cache")
    call(clone, "dvc", "pull", "-q")
    for place, digest in made.items():
        assert digest_path(clone / place.relative_to(project.root)).sha256 == digest
    assert "Data and pipelines are up to date" in call(clone, "dvc", "status")
    assert not (clone / "releases").exists()
    key = str(released.project.keys / "release.pub")
    said = call(clone, "posttrain", "release", "verify", "mini@v1.1.0", "--key", key)
    assert said.count("every byte, claim, link and signature holds") == 2
