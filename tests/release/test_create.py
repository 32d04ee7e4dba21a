"""What a release is made of, and when none is made."""

import json

from posttrain.release.contents import FolderContents
from posttrain.release.verify import verify_path


def test_a_release_verifies_as_folder_and_as_archive(released):
    archive = released.second.parent / "mini-v1.1.0.tar"
    assert verify_path(released.second, released.key) == []
    assert verify_path(archive, released.key) == []
