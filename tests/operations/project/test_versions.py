"""Where a project gets the posttrain from that wrote it: an index, a server, its own folder."""

import json

from posttrain.operations.project.versions import origin


def record(url, **kind):
    """``direct_url.json``, as pip writes it."""
    return json.dumps({"url": url, **kind})


def test_what_an_index_gave_an_index_gives_again():
    assert origin("1.2.3", None) == ("posttrain==1.2.3", False, None)


def test_what_came_from_an_address_comes_from_there_again():
    git = record("https://host.test/posttrain.git", vcs_info={"vcs": "git", "commit_id": "a1b2c3"})
    lines = "posttrain @ git+https://host.test/posttrain.git@a1b2c3"
    assert origin("1.2.3", git) == (lines, False, None)
    wheel = "https://host.test/posttrain-1.2.3-py3-none-any.whl"
    assert origin("1.2.3", record(wheel, archive_info={})) == (f"posttrain @ {wheel}", False, None)


def test_a_wheel_of_this_machine_goes_with_the_project(tmp_path):
    wheel = tmp_path / "a b" / "posttrain-1.2.3-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    found = origin("1.2.3", record(wheel.as_uri(), archive_info={}))
    assert found == ("--find-links wheels\nposttrain==1.2.3", True, wheel)


def test_of_a_folder_or_a_wheel_that_is_gone_the_way_is_said(tmp_path):
    for place in (tmp_path, tmp_path / "posttrain-1.2.3-py3-none-any.whl"):
        found = origin("1.2.3", record(place.as_uri(), dir_info={}))
        first, *_, links, pinned = found.lines.splitlines()
        assert first.startswith("# posttrain was installed from ")
        assert (links, pinned) == ("--find-links wheels", "posttrain==1.2.3")
        assert (found.local, found.wheel) == (True, None)
        assert str(tmp_path) not in found.lines
