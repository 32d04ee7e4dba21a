"""The signed claims of a release: their signatures, and the form that every check relies on."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from posttrain.publishing.release.contents import CLAIMS, Contents
from posttrain.publishing.release.names import parse_tag
from posttrain.publishing.release.statements import (
    PROVENANCE,
    RELEASE,
    TEST_RESULT,
    BadEnvelope,
    check_statement,
    open_envelope,
)
from posttrain.publishing.release.statistics import STATISTICS
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of

if TYPE_CHECKING:
    from securesystemslib.signer import Key

Statement = Mapping[str, Any]
_Text = Annotated[str, Field(min_length=1)]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class SignedClaims:
    """The statements of a release whose signatures held, by kind; `last` is about all of it."""

    last: Statement
    stages: tuple[Statement, ...]
    gates: tuple[Statement, ...]
    digests: tuple[str, ...]

    @property
    def about(self) -> Mapping[str, Any]:
        """What the last claim says of the release."""
        about: Mapping[str, Any] = self.last["predicate"]
        return about

    @property
    def statistics(self) -> int:
        """Version of the rules that its gates were decided by."""
        return int(self.about.get("statistics", 1))


def read_claims(contents: Contents, key: "Key") -> tuple[SignedClaims | None, list[str]]:
    """The statements of claims.jsonl, or what is wrong with them, line by line."""
    if CLAIMS not in contents.names():
        return None, [f"{CLAIMS} is missing: nothing in the release is signed"]
    lines = contents.read(CLAIMS).split(b"\n")
    findings = [] if lines.pop() == b"" else [f"{CLAIMS}: its last line is cut off"]
    statements, digests = [], []
    for number, line in enumerate(lines, 1):
        try:
            statement, payload = open_envelope(line, key)
            check_statement(statement)
            _check_form(statement)
        except (BadEnvelope, UserError, ValueError, KeyError, TypeError, RecursionError) as error:
            findings.append(f"{CLAIMS}, claim {number}: {_reason(error)}")
            if len(findings) == _MOST_FINDINGS:
                break
            continue
        statements.append(statement)
        digests.append(sha256_of(payload))
    if findings:
        return None, findings
    kinds = [each["predicateType"] for each in statements]
    if not statements or kinds[-1] != RELEASE:
        return None, [f"{CLAIMS}: the last claim, which is about the whole release, is missing"]
    if kinds.count(RELEASE) > 1:
        return None, [f"{CLAIMS}: {kinds.count(RELEASE)} claims are about a whole release"]
    stages, gates = (
        tuple(each for each in statements if each["predicateType"] == kind)
        for kind in (PROVENANCE, TEST_RESULT)
    )
    claims = SignedClaims(statements[-1], stages, gates, tuple(digests[:-1]))
    return claims, list(_find_doubles(claims))


_MOST_FINDINGS = 100


def stage_of(claim: Statement) -> str:
    """Name of the stage that a claim is about."""
    return str(claim["predicate"]["buildDefinition"]["externalParameters"]["stage"])


def gate_name(claim: Statement) -> str:
    """Name of the gate that a claim is about."""
    return str(claim["predicate"]["configuration"][0]["name"])


def _find_doubles(claims: SignedClaims) -> Iterator[str]:
    """Two stages, gates or subjects of one name: which of them counts, nobody could say."""
    names = [
        ("stage", [stage_of(each) for each in claims.stages]),
        ("gate", [gate_name(each) for each in claims.gates]),
        *(
            ("subject", [each["name"] for each in claim["subject"]])
            for claim in (*claims.stages, *claims.gates, claims.last)
        ),
    ]
    for what, named in names:
        for name, count in Counter(named).items():
            if count > 1:
                yield f"{CLAIMS}: the {what} {ascii(name)} is claimed {count} times"


class _Digest(BaseModel):
    sha256: _Sha256


class _Producer(BaseModel):
    producer: str | None = None


class _Subject(BaseModel):
    name: _Text
    digest: _Digest
    annotations: _Producer = _Producer()


class _Dependency(BaseModel):
    name: _Text
    digest: Mapping[str, _Text]
    annotations: _Producer = _Producer()


class _Named(BaseModel):
    stage: _Text


class _Keyed(BaseModel):
    key: _Text
    components: Mapping[str, Mapping[str, Any]]


class _Definition(BaseModel):
    externalParameters: _Named
    internalParameters: _Keyed
    resolvedDependencies: list[_Dependency] = []


class _Stage(BaseModel):
    buildDefinition: _Definition


class _Kind(BaseModel):
    name: _Text
    kind: _Text


class _Decided(BaseModel):
    gate: _Kind
    figures: Mapping[str, FiniteFloat]


class _Configuration(BaseModel):
    name: _Text
    digest: _Digest
    annotations: _Decided


class _Gate(BaseModel):
    result: Literal["PASSED", "FAILED"]
    configuration: Annotated[list[_Configuration], Field(min_length=1, max_length=1)]


class _Policy(BaseModel):
    sha256: _Sha256
    path: _Text
    files: list[_Text]


class _Release(BaseModel):
    name: _Text
    version: _Text
    commit: _Text
    level: Literal["L0", "L1", "L2", "L3"]
    policy: _Policy
    claims: list[_Sha256]
    statistics: Annotated[int, Field(ge=1, le=STATISTICS)] = 1


class _Subjects(BaseModel):
    subject: list[_Subject]


_FORMS: Mapping[str, type[BaseModel]] = {PROVENANCE: _Stage, TEST_RESULT: _Gate, RELEASE: _Release}


def _check_form(statement: Statement) -> None:
    """Raise where a statement lacks what the checks after this one look at."""
    _Subjects.model_validate(statement)
    about = statement["predicate"]
    _FORMS[statement["predicateType"]].model_validate(about)
    if statement["predicateType"] == PROVENANCE:
        for each in about["buildDefinition"].get("resolvedDependencies", []):
            if each["name"] != "code":
                _Digest.model_validate(each["digest"])
    if statement["predicateType"] == RELEASE:
        parse_tag(f"{about['name']}@{about['version']}")


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"its {'.'.join(map(str, first['loc']))} is none: {first['msg']}"
    return str(error) or type(error).__name__
