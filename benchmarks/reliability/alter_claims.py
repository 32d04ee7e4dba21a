"""Alterations of claims.jsonl, without the key."""

import base64
import json
from collections.abc import Callable, Mapping

from benchmarks.reliability.altered import CLAIMS, Case, envelope_of
from posttrain.publishing.release import keys
from posttrain.publishing.release.statements import canonical, sign


def _envelope(case: Case, edit: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    """Change the envelope of one claim, spelled as it should be."""
    lines = case.lines()
    place = case.chance.randrange(len(lines))
    envelope = json.loads(lines[place])
    edit(envelope)
    lines[place] = canonical(envelope)
    case.write_lines(lines)


def _edit_statement(case: Case) -> None:
    def edit(envelope: dict) -> None:  # type: ignore[type-arg]
        statement = json.loads(base64.b64decode(envelope["payload"]))
        holder = statement
        while isinstance(holder, dict | list) and holder:
            key = (
                case.pick(holder)
                if isinstance(holder, dict)
                else case.chance.randrange(len(holder))
            )
            if not isinstance(holder[key], dict | list) or not holder[key]:
                holder[key] = case.chance.choice((None, 1e300, "x", [], {}, -1, "\x1b[2K"))
                break
            holder = holder[key]
        envelope["payload"] = base64.b64encode(canonical(statement)).decode()

    _envelope(case, edit)


def _further_signature(case: Case) -> None:
    other = {"keyid": case.chance.choice(("aaaa", "", "0" * 64)), "sig": "AAAA"}
    where = case.chance.choice((0, 1))
    _envelope(case, lambda envelope: envelope["signatures"].insert(where, other))


def _strip(case: Case) -> None:
    _envelope(case, lambda envelope: envelope["signatures"].clear())


def _other_key(case: Case) -> None:
    keys.make_pair(case.folder / "other")
    signer = keys.load_signer(case.folder / "other/release.key")
    claimed = keys.load_public(case.place / "keys/release.pub").keyid
    lines = [sign(each, signer) for each in case.statements()]
    if case.chance.random() < 0.5:
        lines = [line.replace(signer.public_key.keyid.encode(), claimed.encode()) for line in lines]
    case.write_lines(lines)


def _payload_type(case: Case) -> None:
    kind = case.chance.choice(("text/plain", "", "\x1b[2K", "application/json"))
    _envelope(case, lambda envelope: envelope.update(payloadType=kind))


def _extra_field(case: Case) -> None:
    _envelope(case, lambda envelope: envelope.update(extra=case.chance.choice((1, [], "\u001b"))))


def _spelling(case: Case) -> None:
    lines = case.lines()
    place = case.chance.randrange(len(lines))
    line = lines[place]
    lines[place] = case.chance.choice(
        (
            line.replace(b":", b": ", 1),
            b" " + line,
            line + b"\r",
            line.replace(b"payload", b"\\u0070ayload", 1),
            line.replace(b'"payload":"', b'"payload":"\\n', 1),
            line.replace(b'{"payload"', b'{"payload":"","payload"', 1),
            line.replace(b'"sig":"', b'"sig":"A', 1),
            line.replace(b'"sig":"', b'"sig":"====', 1),
            line.replace(b'=="', b'="', 1) if b'=="' in line else line + b" ",
            b"\xef\xbb\xbf" + line,
            line[:-1],
            line + line,
        )
    )
    case.write_lines(lines)


def _order(case: Case) -> None:
    lines = case.lines()
    first, second = case.chance.sample(range(len(lines)), 2)
    lines[first], lines[second] = lines[second], lines[first]
    case.write_lines(lines)


def _doubled(case: Case) -> None:
    lines = case.lines()
    lines.insert(case.chance.randrange(len(lines)), case.chance.choice(lines))
    case.write_lines(lines)


def _dropped(case: Case) -> None:
    lines = case.lines()
    del lines[case.chance.randrange(len(lines))]
    case.write_lines(lines)


def _replayed(case: Case) -> None:
    old = (case.place / "project/releases/mini/v1.0.0" / CLAIMS).read_bytes().splitlines()
    lines = case.lines()
    fresh = [line for line in old if line not in lines]
    if case.chance.random() < 0.5:
        lines.insert(case.chance.randrange(len(lines)), case.pick(fresh))
    else:
        lines[-1] = old[-1]
    case.write_lines(lines)


def _nested(case: Case) -> None:
    deep = case.chance.choice((b"[" * 200_000, b'{"a":' * 200_000, b"[" * 10**6 + b"]" * 10**6))
    keyid = keys.load_public(case.place / "keys/release.pub").keyid
    case.write_lines([*case.lines()[:-1], case.chance.choice((deep, envelope_of(deep, keyid)))])


def _large(case: Case) -> None:
    size = case.chance.choice((5 * 2**20, 20 * 2**20, 40 * 2**20))
    line = case.chance.choice((b"[" + b"[]," * (size // 3), b"A" * size, b"\n" * size, b"1" * size))
    (case.release / CLAIMS).write_bytes(line + b"\n")


def _blank(case: Case) -> None:
    data = (case.release / CLAIMS).read_bytes()
    made = case.chance.choice((b"", b"\n", data[:-1], data + b"\n", b"\n" + data, b"\0" + data))
    (case.release / CLAIMS).write_bytes(made)


ALTER_CLAIMS: Mapping[str, Callable[[Case], str | None]] = {
    "statement": _edit_statement,
    "further signature": _further_signature,
    "no signature": _strip,
    "other key": _other_key,
    "payload type": _payload_type,
    "extra field": _extra_field,
    "spelling": _spelling,
    "order": _order,
    "doubled": _doubled,
    "dropped": _dropped,
    "of another release": _replayed,
    "deep nesting": _nested,
    "large": _large,
    "blank or cut": _blank,
}
