"""Tell a judge by what it does: the digest of all first-party code that its verdict hangs on."""

import hashlib
import json

from posttrain.provenance.code import CodeReader, version
from posttrain.stage.errors import UserError

_REWARDS = "posttrain.learning.rewards"
# Every table's schema is written in it; no verdict is computed with it.
_INCIDENTAL = frozenset({"polars"})


def judge_digest(reader: CodeReader, name: str) -> str:
    """SHA-256 over a verifier's name, its code and the packages that its code imports.

    The verifier `x` is the function `verify_x`; for one of another name all verifiers count. A name
    `x/...` says what a model is asked with besides: it counts whole.
    """
    try:
        closure = reader.closure(f"{_REWARDS}:verify_{name.partition('/')[0]}")
    except UserError:
        closure = reader.closure(f"{_REWARDS}:verify")
    packages = {each: version(each) for each in sorted(closure.packages - _INCIDENTAL)}
    return hashlib.sha256(json.dumps([name, closure.digest, packages]).encode()).hexdigest()
