"""The lock of installed packages: what it says, and that any other file is found."""

import base64
import hashlib
import importlib.metadata
import json
import sysconfig

import pytest

from posttrain.publishing.release.environment import (
    altered_files,
    differences,
    environment_lock,
    requirements,
)
from posttrain.publishing.release.licenses import license_of


def record_hash(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class Site:
    """A folder of installed packages."""

    def __init__(self, root):
        self.root = root

    def install(self, name, files, *, version="1.0", metadata="License-Expression: MIT", url=None):
        """As pip leaves it: files, metadata, RECORD, and its own notes."""
        folder = self.root / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        head = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{metadata}\n"
        (folder / "METADATA").write_text(head)
        (folder / "INSTALLER").write_text("pip\n")
        rows = [f"{folder.name}/RECORD,,", f"../../bin/{name},{record_hash(b'#!here')},6"]
        for path, data in files.items():
            (self.root / path).write_bytes(data)
            rows.append(f"{path},{record_hash(data)},{len(data)}")
        rows.append(f"{folder.name}/INSTALLER,{record_hash(b'pip')},4")
        (folder / "RECORD").write_text("\n".join(rows) + "\n")
        if url is not None:
            (folder / "direct_url.json").write_text(json.dumps(url))
        return self


@pytest.fixture
def site(tmp_path, monkeypatch):
    found = Site(tmp_path / "site/lib/python")

    def installed():
        folders = sorted(found.root.glob("*.dist-info"))
        return [importlib.metadata.PathDistribution(folder) for folder in folders]

    monkeypatch.setattr(importlib.metadata, "distributions", installed)
    (tmp_path / "site/bin").mkdir(parents=True)
    for name in ("first", "Second.Part"):
        (tmp_path / "site/bin" / name).write_bytes(b"#!here")
    return found


def test_the_digest_is_that_of_the_sorted_record_without_the_installers_own(site):
    site.install("Second.Part", {"b.py": b"two", "a.py": b"one"})
    lock = environment_lock()
    lines = f"a.py\0{record_hash(b'one')}\nb.py\0{record_hash(b'two')}\n"
    assert lock["packages"] == {
        "second-part": {
            "version": "1.0",
            "license": "MIT",
            "files_sha256": hashlib.sha256(lines.encode()).hexdigest(),
        }
    }
    assert "RECORD" in lock["digests"]
    assert b"second-part==1.0  # installed files sha256:" in requirements(lock)


def test_what_an_address_led_to_has_the_digest_of_its_archive_or_commit(site):
    archive = {"url": "https://x/y.whl", "archive_info": {"hashes": {"sha256": "abc"}}}
    commit = {"url": "https://x/y.git", "vcs_info": {"vcs": "git", "commit_id": "def"}}
    site.install("first", {"a.py": b""}, url=archive).install("other", {"b.py": b""}, url=commit)
    packages = environment_lock()["packages"]
    assert packages["first"]["archive_sha256"] == "abc"
    assert packages["other"]["commit"] == "def"


def test_another_version_other_files_and_a_missing_package_are_told_apart(site):
    for name in ("first", "other", "same", "gone"):
        site.install(name, {f"{name}.py": name.encode()})
    lock = environment_lock()
    for folder in site.root.glob("*.dist-info"):
        if folder.name.startswith("gone"):
            (folder / "METADATA").rename(folder.parent / "kept")
            (folder / "RECORD").unlink()
            (folder / "INSTALLER").unlink()
            folder.rmdir()
        if folder.name.startswith("first"):
            folder.rename(folder.with_name("first-2.0.dist-info"))
            text = (site.root / "first-2.0.dist-info/METADATA").read_text()
            text = text.replace("Version: 1.0", "Version: 2.0")
            (site.root / "first-2.0.dist-info/METADATA").write_text(text)
        if folder.name.startswith("other"):
            text = (folder / "RECORD").read_text().replace("other.py,sha256=", "other.py,sha256=X")
            (folder / "RECORD").write_text(text)
    assert differences(lock, environment_lock()) == [
        "first is 2.0, it was 1.0",
        "gone 1.0 is not installed",
        "other 1.0 has other files than it had",
    ]
    elsewhere = {**environment_lock(), "processor": "another", "python": "2.7"}
    assert differences(lock, elsewhere)[0] == f"python is 2.7, it was {lock['python']}"
    assert "processor is another" in differences(lock, elsewhere)[1]


def test_a_file_that_was_altered_or_removed_after_installation_is_found(site):
    site.install("first", {"a.py": b"one", "b.py": b"two"})
    (site.root / "first-1.0.dist-info/INSTALLER").write_bytes(b"pip")
    lock = environment_lock()
    assert altered_files(lock) == []
    (site.root / "a.py").write_bytes(b"0ne")
    (said,) = altered_files(lock)
    assert said.startswith("first 1.0: a.py was altered or removed after it was installed; pip")
    (site.root / "b.py").unlink()
    assert "a.py and 1 more was altered" in altered_files(lock)[0]
    # RECORD still says what it said: comparing locks alone would not have seen it.
    assert differences(lock, environment_lock()) == []


def test_what_a_package_carries_within_itself_is_not_installed(site, monkeypatch):
    site.install("first", {"a.py": b"1"})
    for folder, names in ((site.root, {"first"}), (site.root.parent, set())):
        monkeypatch.setattr(sysconfig, "get_path", lambda _, folder=folder: str(folder))
        assert environment_lock()["packages"].keys() == names


@pytest.mark.parametrize(
    ("metadata", "license"),
    [
        ({"license_expression": "BSD-3-Clause", "license": "x"}, "BSD-3-Clause"),
        ({"license": "Apache License 2.0"}, "Apache-2.0"),
        ({"license": "EPL-2.0 OR GPL-2.0-or-later"}, "EPL-2.0 OR GPL-2.0-or-later"),
        ({"classifier": ["License :: OSI Approved :: MIT License"]}, "MIT"),
        # Two identifiers are meant by it: none is guessed.
        ({"license": "BSD", "classifier": ["License :: OSI Approved :: BSD License"]}, "BSD"),
        (
            {
                "license": "long\ntext",
                "classifier": [
                    "License :: OSI Approved :: MIT License",
                    "License :: OSI Approved :: Apache Software License",
                ],
            },
            "MIT OR Apache-2.0",
        ),
        ({"license": "The whole text\nof a license"}, "unknown"),
        ({"classifier": ["License :: OSI Approved", "Topic :: Software"]}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_a_license_is_taken_as_stated_and_never_guessed(metadata, license):
    assert license_of(metadata) == license
