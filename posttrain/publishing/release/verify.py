"""Check a release: every byte, claim, link and signature, with nothing but a public key."""

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.publishing.hub.results import RESULTS
from posttrain.publishing.release.claims import SignedClaims, gate_name, read_claims, stage_of
from posttrain.publishing.release.contents import (
    CLAIMS,
    ArchiveContents,
    Contents,
    is_canonical,
    open_contents,
)
from posttrain.publishing.release.judging import judge
from posttrain.publishing.release.names import Tag
from posttrain.publishing.release.statements import last_statement
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_of_files, sha256_of_json

if TYPE_CHECKING:
    from securesystemslib.signer import Key


def verify_path(
    path: Path, key: "Key", *, expect: Tag | None = None, proven: Collection[str] = ()
) -> list[str]:
    """Everything that is wrong with the folder or archive at `path`; empty where nothing is.

    Files that are `proven` need no claim about them: somebody else has vouched for their bytes.
    """
    if not path.exists():
        raise UserError(f"there is no release at {path}; name its folder, its archive or its tag")
    try:
        contents = open_contents(path)
        findings = verify_contents(contents, key, expect=expect, proven=proven)
        packed = isinstance(contents, ArchiveContents) and not findings
        if packed and not is_canonical(path, contents):
            findings.append(
                f"{path.name}: bytes between its files were altered (headers, padding or order)"
            )
    except UserError as error:
        return [str(error)]
    except OSError as error:
        return [f"{path.name} cannot be read: {error.strerror or error}"]
    return findings


def verify_contents(
    contents: Contents, key: "Key", *, expect: Tag | None = None, proven: Collection[str] = ()
) -> list[str]:
    """Check signatures first; what no signature covers is not looked into any further."""
    claims, findings = read_claims(contents, key)
    if claims is None or findings:
        return findings
    checks = (
        _check_claims(claims),
        _check_name(claims, expect),
        _check_files(claims, contents, proven),
        _check_links(claims),
    )
    findings += [finding for check in checks for finding in check]
    if not findings:
        # These read the files, whose bytes are known to be the signed ones now.
        findings += [*_check_policy(claims, contents), *judge(claims, contents)]
    return findings


def _check_claims(claims: SignedClaims) -> Iterator[str]:
    """The last claim names every other one, in order; nothing dropped, added or replayed."""
    named = list(claims.about["claims"])
    present = list(claims.digests)
    if named == present:
        return
    for digest in named:
        if digest not in present:
            yield f"{CLAIMS}: claim {named.index(digest) + 1} ({digest[:12]}) was dropped"
    for number, digest in enumerate(present, 1):
        if digest not in named:
            yield f"{CLAIMS}, claim {number}: it was signed, but for another release"
    twice = [digest for digest, count in Counter(present).items() if count > 1]
    for digest in twice:
        yield f"{CLAIMS}: claim {present.index(digest) + 1} is there more than once"
    if Counter(named) == Counter(present):
        yield f"{CLAIMS}: its claims are in another order than they were signed in"


def _check_name(claims: SignedClaims, expect: Tag | None) -> Iterator[str]:
    stated = f"{claims.about['name']}@{claims.about['version']}"
    if expect is not None and stated != str(expect):
        yield f"it is the release {stated}, not {expect}"


def _check_files(
    claims: SignedClaims, contents: Contents, proven: Collection[str]
) -> Iterator[str]:
    """Every file is the signed one, none is missing and none was added."""
    signed = {each["name"]: each["digest"]["sha256"] for each in claims.last["subject"]}
    sizes = {each["name"]: each.get("annotations", {}) for each in claims.last["subject"]}
    present = set(contents.names()) - {CLAIMS, *proven}
    for name in sorted(signed.keys() - present):
        yield f"{name}: it is missing"
    # In a repository of the hub others add results by pull request.
    added = present - signed.keys()
    if not isinstance(contents, ArchiveContents):
        added = {name for name in added if not name.startswith(f"{RESULTS}/")}
    for name in sorted(added):
        yield f"{name}: it was added; no claim is about it"
    for name in sorted(present & signed.keys()):
        size = contents.size(name)
        if size != (stated := sizes[name].get("bytes", size)):
            yield f"{name}: its bytes were altered ({size} of them, signed {stated})"
            continue
        found = contents.sha256(name)
        if found != signed[name]:
            yield f"{name}: its bytes were altered ({found[:12]}, signed {signed[name][:12]})"


def _check_links(claims: SignedClaims) -> Iterator[str]:
    """Whatever a stage read is what the stage before it made; keys fit what they are made of."""
    made = {
        (each.get("annotations", {}).get("producer"), each["digest"]["sha256"])
        for claim in claims.stages
        for each in claim["subject"]
    }
    commit = str(claims.about["commit"])
    for claim in claims.stages:
        definition = claim["predicate"]["buildDefinition"]
        stage = stage_of(claim)
        parameters = definition["internalParameters"]
        if sha256_of_json(parameters["components"]) != parameters["key"]:
            yield f"stage {stage}: its key does not fit the parameters, code and inputs it names"
        for each in definition.get("resolvedDependencies", []):
            producer = each.get("annotations", {}).get("producer")
            if (at := each["digest"].get("gitCommit", commit)) != commit:
                yield f"stage {stage}: its code is at {at[:12]}, the release at {commit[:12]}"
            if producer and (producer, each["digest"]["sha256"]) not in made:
                yield f"stage {stage}: no claim is about {each['name']}, which {producer} made"
    policy = claims.about["policy"]["sha256"]
    if policy not in {digest for _, digest in made}:
        yield "the policy: no stage's claim is about it"
    for claim in claims.gates:
        if [each["digest"]["sha256"] for each in claim["subject"]] != [policy]:
            yield f"gate {gate_name(claim)}: it is about another policy"
        about = claim["predicate"]
        if about["result"] != "PASSED" or about.get("failedTests"):
            yield f"gate {gate_name(claim)}: it did not pass"


def _check_policy(claims: SignedClaims, contents: Contents) -> Iterator[str]:
    """The model files together are the artifact that the claims are about."""
    about = claims.about["policy"]
    if missing := sorted({*about["files"]} - {*contents.names()}):
        yield f"the policy: there is no file {ascii(missing[0])}, which it is said to have"
        return
    files = ((name.encode(), contents.sha256(name)) for name in about["files"])
    if digest_of_files(files) != about["sha256"]:
        yield "the policy: its files are not the artifact that its stage made"


def said_about(contents: Contents) -> dict[str, Any]:
    """The last claim's own words, unchecked: for listings, never for a decision."""
    return dict(last_statement(contents)[1]["predicate"])
