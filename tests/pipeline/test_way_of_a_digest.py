"""How far an artifact's digest goes from its bytes to the ledger, and how often bytes are hashed.

Followed is the SHA-256 of the output of a real stage of a small project, from the instant at which
its bytes are hashed until the ledger has the record of the stage run. A file counts where a frame
of its code has the digest in hand (`tests.way`): itself, or by way of two records, as a stage run
whose outputs are artifacts that have digests, alone or in lists and mappings of any depth. Left out
are the trackers (`posttrain.views`), which hear that the stage ended and hand nothing on.
"""

import hashlib
import json
import sys
from collections import Counter

import pytest

from tests.way import Way

MAKERS = {"posttrain/stage/hashing.py": "sha256", "dvc_data/hashfile/hash.py": "md5"}
_watched = {}


def _note_open(event, arguments):
    """Count who opens a watched file, by what is on the stack: a hash, or somebody else."""
    if event != "open" or not _watched or str(arguments[0]).rpartition("/")[2] not in _watched:
        return
    frame, names = sys._getframe(1), []
    while frame is not None:
        names.append(frame.f_code.co_filename)
        frame = frame.f_back
    for file, kind in MAKERS.items():
        if any(name.endswith(file) for name in names):
            _watched[str(arguments[0]).rpartition("/")[2]][kind] += 1


sys.addaudithook(_note_open)


@pytest.fixture
def opened():
    """Counts how often outputs of that name are opened to be hashed, by algorithm."""
    _watched["result.json"] = Counter()
    yield _watched["result.json"]
    _watched.clear()


@pytest.mark.slow
def test_a_digest_reaches_the_ledger_in_at_most_six_files(toy):
    digest = hashlib.sha256(json.dumps({"sum": 3}).encode()).hexdigest()

    with Way(digest, end="Ledger.record", records=2) as way:
        runs = toy.run()
    assert way.ended
    assert runs["third"].outputs[0].digest == digest
    assert sorted(file for file in way.files if not file.startswith("posttrain/views/")) == [
        "posttrain/pipeline/execution/executor.py",
        "posttrain/pipeline/execution/outputs.py",
        "posttrain/provenance/ledger/ledger.py",
        "posttrain/provenance/ledger/store.py",
        "posttrain/provenance/ledger/writing.py",
        "posttrain/stage/hashing.py",
    ], way


def test_each_algorithm_reads_an_output_once(toy, opened, edit):
    # A file that is as young as its hash may change unseen: only an older one is remembered.
    last = "    return {"
    edit(
        toy.root / toy.package / "stage.py",
        last,
        f"    import os\n    os.utime(outputs['result'], (1, 1))\n{last}",
    )
    toy.run()
    # DVC names what it keeps by MD5, so its bytes are read for that as well.
    assert opened == {"sha256": 3, "md5": 3}
    assert {each.action for each in toy.plan().values()} == {"cached"}
    assert toy.run() == {}
    assert opened == {"sha256": 3, "md5": 3}
