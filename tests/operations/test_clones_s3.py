"""Two clones and a bucket: what one made the other has, and nothing is run."""

from dataclasses import replace

import pytest

from tests.conftest import made_toy
from tests.operations.test_clones import RESTORE, actions, git, save

CONFIG = """\
[core]
    analytics = false
    remote = team
['remote "team"']
    url = s3://lake/dvc
    endpointurl = {endpoint}
"""


@pytest.fixture
def bucket(monkeypatch):
    """An empty bucket of a moto server, which can be stopped."""
    boto3, server = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    pytest.importorskip("dvc_s3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    moto = server.ThreadedMotoServer(port=0)
    moto.start()
    endpoint = "http://{}:{}".format(*moto.get_host_and_port())
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="lake")
    yield endpoint, moto
    moto.stop()


@pytest.mark.slow
def test_a_clone_of_a_project_with_a_bucket_has_nothing_to_run(bucket, tmp_path):
    endpoint, moto = bucket
    with made_toy(tmp_path / "origin") as origin:
        (origin.root / ".dvc/config").write_text(CONFIG.format(endpoint=endpoint))
        origin.run()
        save(origin)
        sent = origin.cli("push")
        assert sent.returncode == 0, sent.stderr
        assert "3 artifacts are in the remote 'team', 3 of them new" in sent.stdout
        clones = []
        for name in ("one", "two", "late"):
            git(tmp_path, "clone", "-q", str(origin.root), str(tmp_path / name))
            clones.append(replace(origin, root=tmp_path / name))
        one, two, late = clones
        # Fetched when they are needed, which is when the recipe runs.
        assert actions(one) == dict.fromkeys(["first", "second", "third"], RESTORE)
        assert {each.status for each in one.run().values()} == {"restored"}
        assert {action for action, _ in actions(one).values()} == {"cached"}
        made = "data/third/result.json"
        assert (one.root / made).read_bytes() == (origin.root / made).read_bytes()
        # Or all at once, with the ledgers of others.
        pulled = two.cli("pull")
        assert pulled.returncode == 0, pulled.stderr
        assert "3 of 3 stages fetched: first, second, third." in pulled.stdout
        assert {action for action, _ in actions(two).values()} == {"cached"}
        # What one changes the other has after a push and a pull.
        one.recipe("third: {amount: 7}\n")
        assert [each.status for each in one.run().values()] == ["cached", "cached", "succeeded"]
        save(one, "third")
        assert "1 of them new" in one.cli("push").stdout
        git(two.root, "pull", "-q", str(one.root), "HEAD")
        assert two.cli("pull").returncode == 0
        assert {action for action, _ in actions(two).values()} == {"cached"}
        moto.stop()
        for verb in ("push", "pull"):
            refused = late.cli(verb)
            assert refused.returncode == 2, refused.stderr
            assert "the DVC remote" in refused.stderr
            assert "cannot be read" in refused.stderr or "cannot be written" in refused.stderr
            assert refused.stderr.count("\n") == 1
        # Without the bucket there is nothing to fetch, and the recipe runs.
        assert {action for action, _ in actions(late).values()} <= {"run", "pending"}
