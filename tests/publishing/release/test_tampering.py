"""At least 200 alterations of a real release; each must be found, and the finding must name it."""

import base64
import json
import random
import tarfile

import pytest

from posttrain.publishing.release import keys
from posttrain.publishing.release.contents import (
    CLAIMS,
    ArchiveContents,
    FolderContents,
    MemoryContents,
)
from posttrain.publishing.release.names import parse_tag
from posttrain.publishing.release.statements import canonical, sign
from posttrain.publishing.release.verify import verify_contents, verify_path
from posttrain.stage.hashing import sha256_of_json

pytestmark = [pytest.mark.slow, pytest.mark.core]

RANDOM = 20261121
NUM_BYTES, NUM_ARCHIVE_BYTES = 80, 30


@pytest.fixture(scope="module")
def files(released):
    """Every file of the second release."""
    contents = FolderContents(released.second)
    return {name: contents.read(name) for name in contents.names()}


@pytest.fixture(scope="module")
def old_files(released):
    """Every file of the release before it."""
    contents = FolderContents(released.first)
    return {name: contents.read(name) for name in contents.names()}


@pytest.fixture
def findings(released, files):
    """What verify says of the release with some files replaced (None removes one)."""

    def verify(changes, **options):
        altered = {name: data for name, data in {**files, **changes}.items() if data is not None}
        assert altered != files
        return verify_contents(MemoryContents(altered), released.key, **options)

    return verify


def lines_of(data):
    return data.splitlines()


def joined(lines):
    return b"\n".join(lines) + b"\n"


def statement_of(line):
    return json.loads(base64.b64decode(json.loads(line)["payload"]))


def test_the_release_itself_has_no_finding(files, released):
    assert verify_contents(MemoryContents(files), released.key) == []


def test_every_random_alteration_of_a_byte_is_found_and_named(files, findings):
    chance = random.Random(RANDOM)
    names = sorted(files)
    # Every file at least once, then wherever chance falls.
    chosen = names + [chance.choice(names) for _ in range(NUM_BYTES - len(names))]
    assert len(chosen) == NUM_BYTES
    for name in chosen:
        data = bytearray(files[name])
        place = chance.randrange(len(data))
        data[place] ^= 1 << chance.randrange(8)
        found = findings({name: bytes(data)})
        assert any(finding.startswith(name) for finding in found), (name, place)


def test_every_random_alteration_of_the_archive_is_found(released, tmp_path):
    chance = random.Random(RANDOM)
    whole = (released.second.parent / "mini-v1.1.0.tar").read_bytes()
    copy = tmp_path / "copy.tar"
    # Small files have the most headers: half of the places are within the first of them.
    places = [chance.randrange(len(whole)) for _ in range(NUM_ARCHIVE_BYTES // 2)]
    with tarfile.open(released.second.parent / "mini-v1.1.0.tar") as tar:
        headers = [member.offset for member in tar.getmembers()]
    places += [
        chance.choice(headers) + chance.randrange(512) for _ in range(NUM_ARCHIVE_BYTES // 2)
    ]
    for place in places:
        data = bytearray(whole)
        data[place] ^= 1 << chance.randrange(8)
        copy.write_bytes(data)
        assert verify_path(copy, released.key), place


@pytest.mark.parametrize("change", [b"x", b"\0" * 10240])
def test_an_archive_with_something_appended_is_found(released, tmp_path, change):
    copy = tmp_path / "copy.tar"
    copy.write_bytes((released.second.parent / "mini-v1.1.0.tar").read_bytes() + change)
    assert verify_path(copy, released.key)


def test_every_dropped_file_and_every_added_one_is_named(files, findings):
    for name in files:
        assert any(finding.startswith(name) for finding in findings({name: None}))
    assert findings({"release/extra.txt": b"hello"}) == [
        "release/extra.txt: it was added; no claim is about it"
    ]


def test_every_dropped_doubled_and_moved_claim_is_found(files, findings):
    lines = lines_of(files[CLAIMS])
    for place in range(len(lines)):
        assert findings({CLAIMS: joined(lines[:place] + lines[place + 1 :])})
        assert findings({CLAIMS: joined([*lines[:place], lines[place], *lines[place:]])})
    swapped = [lines[1], lines[0], *lines[2:]]
    assert "order" in findings({CLAIMS: joined(swapped)})[0]
    dropped, *missing = findings({CLAIMS: joined(lines[1:])})
    assert dropped.startswith(f"{CLAIMS}: claim 1 (")
    assert dropped.endswith("was dropped")
    assert missing[0].startswith("stage pretrain: no claim is about data/synthesize/corpus")


def test_a_swapped_artifact_is_found(files, old_files, findings):
    assert files["model.safetensors"] != old_files["model.safetensors"]
    (found,) = findings({"model.safetensors": old_files["model.safetensors"]})
    assert found.startswith("model.safetensors: its bytes were altered")
    exchanged = {"config.json": files["README.md"], "README.md": files["config.json"]}
    assert len(findings(exchanged)) == 2


def test_an_edited_metric_is_found_wherever_it_is_edited(files, findings):
    metrics = json.loads(files["release/metrics.json"])
    metrics["evaluation"]["pass_at_1"]["value"] += 0.1
    (found,) = findings({"release/metrics.json": json.dumps(metrics).encode()})
    assert "release/metrics.json" in found
    lines = lines_of(files[CLAIMS])
    for place, line in enumerate(lines):
        envelope = json.loads(line)
        statement = statement_of(line)
        if "test-result" not in statement["predicateType"]:
            continue
        statement["predicate"]["configuration"][0]["annotations"]["figures"]["value"] = 1.0
        envelope["payload"] = base64.b64encode(canonical(statement)).decode()
        altered = [*lines[:place], canonical(envelope), *lines[place + 1 :]]
        (found,) = findings({CLAIMS: joined(altered)})
        assert found == f"{CLAIMS}, claim {place + 1}: its signature does not fit its bytes"


def test_another_key_is_refused_even_if_everything_else_fits(files, findings, tmp_path, released):
    keys.make_pair(tmp_path)
    other = keys.load_signer(tmp_path / "release.key")
    signed = joined([sign(statement_of(line), other) for line in lines_of(files[CLAIMS])])
    altered = {**files, CLAIMS: signed}
    # Nothing is wrong with it but the key.
    assert verify_contents(MemoryContents(altered), other.public_key) == []
    assert all("not signed with the given key" in each for each in findings({CLAIMS: signed}))
    assert verify_contents(MemoryContents(files), other.public_key)


def test_every_statement_replayed_from_another_release_is_found(files, old_files, findings):
    lines, old = lines_of(files[CLAIMS]), lines_of(old_files[CLAIMS])
    new_claims = set(lines)
    replayed = 0
    for place, line in enumerate(old):
        if line in new_claims:
            continue
        replayed += 1
        assert findings({CLAIMS: joined([*lines[:place], line, *lines[place + 1 :]])})
        assert findings({CLAIMS: joined([*lines[:-1], line, lines[-1]])})
    assert replayed >= 4
    assert findings({CLAIMS: old_files[CLAIMS]})


def test_a_whole_release_in_the_place_of_another_is_found(released, old_files):
    contents = MemoryContents(old_files)
    assert verify_contents(contents, released.key, expect=parse_tag("mini@v1.0.0")) == []
    (found,) = verify_contents(contents, released.key, expect=parse_tag("mini@v1.1.0"))
    assert found == "it is the release mini@v1.0.0, not mini@v1.1.0"


def resigned(files, signer, edit):
    """The release as its own signer would forge it: `edit` the statements, sign all anew."""

    statements = [statement_of(line) for line in lines_of(files[CLAIMS])]
    statements = edit(statements)
    statements[-1]["predicate"]["claims"] = [sha256_of_json(each) for each in statements[:-1]]
    return {**files, CLAIMS: joined([sign(each, signer) for each in statements])}


def gate_named(statements, name):
    for each in statements:
        configuration = each["predicate"].get("configuration")
        if configuration and configuration[0]["name"] == name:
            return each
    raise AssertionError(name)


def drop_stage(statements):
    return statements[1:]


def drop_gate(statements):
    return [each for each in statements if each is not gate_named(statements, "works")]


def edit_figure(statements):
    configuration = gate_named(statements, "works")["predicate"]["configuration"][0]
    configuration["annotations"]["figures"]["low"] = 0.9
    return statements


def edit_parameter(statements):
    components = statements[1]["predicate"]["buildDefinition"]["internalParameters"]["components"]
    components["params"]["steps"] = "4"
    return statements


def fail_gate(statements):
    gate_named(statements, "works")["predicate"]["result"] = "FAILED"
    return statements


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (drop_stage, "no claim is about"),
        (drop_gate, "gate works: the recipe asks for it"),
        (edit_figure, "gate works: its figures do not follow"),
        (edit_parameter, "stage pretrain: its key does not fit"),
        (fail_gate, "gate works: it did not pass"),
    ],
)
def test_even_the_signer_cannot_sign_what_does_not_hang_together(files, released, edit, said):
    forged = resigned(files, released.signer, edit)
    found = verify_contents(MemoryContents(forged), released.key)
    assert any(said in finding for finding in found), found


def test_names_in_an_archive_never_lead_out_of_a_folder(tmp_path):
    from posttrain.publishing.release.contents import write_folder
    from posttrain.stage.errors import UserError

    for name in ("../outside", "/absolute", "a/../../b"):
        with pytest.raises(UserError, match="leads out"):
            write_folder(MemoryContents({name: b""}), tmp_path / "into")
    assert list(tmp_path.rglob("*")) == []


def test_what_is_read_of_an_archive_is_what_the_folder_holds(released):
    archive = ArchiveContents(released.second.parent / "mini-v1.1.0.tar")
    folder = FolderContents(released.second)
    assert archive.names() == folder.names()
    assert all(archive.read(name) == folder.read(name) for name in folder.names())
