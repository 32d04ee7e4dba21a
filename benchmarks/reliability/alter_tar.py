"""Alterations of a release's archive, without the key: headers, kinds, sizes, order, padding."""

import gzip
import io
import struct
import tarfile
from collections.abc import Callable, Mapping

from benchmarks.reliability.altered import Case

BLOCK = 512
FIELDS = {
    "name": (0, 100), "mode": (100, 8), "uid": (108, 8), "gid": (116, 8), "size": (124, 12),
    "mtime": (136, 12), "type": (156, 1), "link": (157, 100), "magic": (257, 8),
    "uname": (265, 32), "gname": (297, 32), "major": (329, 8), "minor": (337, 8),
    "prefix": (345, 155), "unused": (500, 12),
}  # fmt: skip
HUGE = (8 * 2**30, 2**40, 2**62)


def _headers(data: bytes) -> list[int]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [member.offset for member in tar.getmembers()]


def _with_sum(header: bytearray) -> bytes:
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _header(name: bytes, size: int | bytes, kind: bytes = b"0") -> bytes:
    header = bytearray(BLOCK)
    header[: len(name[:100])] = name[:100]
    header[100:108] = b"0000644\0"
    header[108:116] = header[116:124] = b"0000000\0"
    header[124:136] = size if isinstance(size, bytes) else b"%011o\0" % size
    header[136:148] = b"00000000000\0"
    header[156:157] = kind
    header[257:265] = b"ustar\x0000"
    return _with_sum(header)


def _base256(number: int) -> bytes:
    return (
        (b"\x80" if number >= 0 else b"\xff") + struct.pack(">11x")[:3] + struct.pack(">q", number)
    )


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def _change_field(case: Case) -> None:
    at = case.pick(_headers(bytes(case.archive)))
    field = case.pick(FIELDS)
    start, size = FIELDS[field]
    header = bytearray(case.archive[at : at + BLOCK])
    before = bytes(header)
    while bytes(header[start : start + size]) == before[start : start + size]:
        junk = case.chance.choice(
            (case.chance.randbytes(size), b"7" * size, bytes(size), b"\xff" * size, b"-1" * size)
        )
        header[start : start + size] = junk[:size]
    case.archive[at : at + BLOCK] = _with_sum(header) if case.chance.random() < 0.8 else header
    case.write_archive(bytes(case.archive))


def _kind(case: Case) -> None:
    at = case.pick(_headers(bytes(case.archive)))
    header = bytearray(case.archive[at : at + BLOCK])
    header[156:157] = bytes([case.chance.choice(b"1234567SLKgxXDMV\0A")])
    header[157:167] = b"/etc/shado"
    case.archive[at : at + BLOCK] = _with_sum(header)
    case.write_archive(bytes(case.archive))


def _sparse(case: Case) -> None:
    """A hole of gigabytes, in GNU's or in pax's form, in the place of a file or before the rest."""
    size, name = case.chance.choice(HUGE), case.chance.choice((b"README.md", b"claims.jsonl"))
    if case.chance.random() < 0.5:
        header = bytearray(_header(name, 0, b"S"))
        header[257:265] = b"ustar  \0"
        header[386:398], header[398:410] = b"%011o\0" % 0, b"%011o\0" % 0
        header[483:495] = _base256(size)
        entry = _with_sum(header)
    else:
        records = b"".join(
            _record(*each)
            for each in (
                (b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"),
                (b"GNU.sparse.name", name), (b"GNU.sparse.realsize", b"%d" % size),
            )
        )  # fmt: skip
        blocks = _padded(b"1\n%d\n0\n" % size)
        entry = _header(b"pax", len(records), b"x") + _padded(records)
        entry += _header(name, len(blocks)) + blocks
    case.write_archive(entry + bytes(case.archive))


def _record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    digits = len(str(length + len(str(length))))
    return b"%d %s=%s\n" % (length + digits, key, value)


def _pax(case: Case) -> None:
    """A header that tells of the next file what is not so."""
    key, value = case.chance.choice(
        (
            (b"size", b"-5"), (b"size", b"9" * 30), (b"size", b"1e9"), (b"path", b"../../outside"),
            (b"path", b"\x1b[2K holds"), (b"path", b""), (b"path", b"x" * 7000),
            (b"linkpath", b"/etc/passwd"), (b"mtime", b"nan"), (b"comment", b"hello"),
            (b"hdrcharset", b"BINARY"), (b"GNU.sparse.map", b"0,1099511627776"), (b"size", b"10"),
        )
    )  # fmt: skip
    records = _record(key, value) * case.chance.choice((1, 1, 2))
    if case.chance.random() < 0.3:
        records = case.chance.choice((b"999999999 path=x\n", b"0 a=b\n", b"-1 a=b\n", b"7 path\n"))
    kind = case.chance.choice((b"x", b"x", b"g"))
    at = case.pick(_headers(bytes(case.archive)))
    entry = _header(b"././@PaxHeader", len(records), kind) + _padded(records)
    case.write_archive(bytes(case.archive[:at]) + entry + bytes(case.archive[at:]))


def _sizes(case: Case) -> None:
    at = case.pick(_headers(bytes(case.archive)))
    header = bytearray(case.archive[at : at + BLOCK])
    size = case.chance.choice((-1, -512, -(2**40), *HUGE, 2**33))
    header[124:136] = (
        _base256(size) if size < 0 or size >= 8**11 else b"%011o\0" % min(size, 8**11 - 1)
    )
    case.archive[at : at + BLOCK] = _with_sum(header)
    case.write_archive(bytes(case.archive))


def _extra(case: Case) -> None:
    """A file more: of a name that is there, that leads elsewhere, or that a terminal obeys."""
    name = case.chance.choice(
        (b"README.md", b"claims.jsonl", b"../outside", b"/etc/cron.d/x", b"a/../../b",
         b"./README.md", b"\x1b[2Kholds", b"line\nholds", b"", b"release//x",
         b"README.md/", b"\xff\xfe", b"new")
    )  # fmt: skip
    data = case.chance.choice((b"", b"x", b"y" * 5000))
    entry = _header(name, len(data)) + _padded(data)
    at = case.pick([*_headers(bytes(case.archive))])
    case.write_archive(bytes(case.archive[:at]) + entry + bytes(case.archive[at:]))


def _reorder(case: Case) -> None:
    data = bytes(case.archive)
    places = _headers(data)
    first = case.chance.randrange(len(places) - 1)
    start, middle = places[first], places[first + 1]
    end = places[first + 2] if first + 2 < len(places) else len(data.rstrip(b"\0")) // BLOCK * BLOCK
    end += BLOCK if first + 2 >= len(places) else 0
    case.write_archive(data[:start] + data[middle:end] + data[start:middle] + data[end:])


def _padding(case: Case) -> None:
    data = bytearray(case.archive)
    with tarfile.open(fileobj=io.BytesIO(bytes(data))) as tar:
        ends = [each.offset_data + each.size for each in tar.getmembers() if each.size % BLOCK]
    at = case.chance.choice((case.pick(ends), len(data) - 1, len(data) - 3000))
    data[at] ^= 1 << case.chance.randrange(8)
    case.write_archive(bytes(data))


def _cut_or_lengthen(case: Case) -> None:
    data = bytes(case.archive)
    case.write_archive(
        case.chance.choice(
            (
                data[: case.chance.randrange(len(data))],
                data[:-BLOCK],
                data + bytes(BLOCK),
                data + data,
                data + b"x",
                b"",
                bytes(10240),
                data[BLOCK:],
                b"\0" + data,
                gzip.compress(data, 1),
            )
        )  # fmt: skip
    )


def _flip(case: Case) -> None:
    data = bytearray(case.archive)
    for _ in range(case.chance.choice((1, 3, 100))):
        data[case.chance.randrange(len(data))] ^= 1 << case.chance.randrange(8)
    case.write_archive(bytes(data))


def _other_format(case: Case) -> None:
    form = case.chance.choice((tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT))
    target = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(bytes(case.archive))) as tar,
        tarfile.open(fileobj=target, mode="w", format=form) as made,
    ):
        for member in tar.getmembers():
            member.mtime = 1.5 if form == tarfile.PAX_FORMAT else 1
            made.addfile(member, tar.extractfile(member))
    case.write_archive(target.getvalue())


def _many(case: Case) -> None:
    """Headers alone, many of them, of one file or of headers for the next."""
    count = case.chance.choice((30_000, 100_000))
    entry = case.chance.choice(
        (_header(b"x", 0), _header(b"y", 0, b"x"), _header(b"z", 0, b"5"), _header(b"w", 0, b"L"))
    )
    named = [_header(b"%d" % number, 0) for number in range(count)]
    case.write_archive(case.chance.choice((entry * count, b"".join(named))) + bytes(case.archive))


ALTER_TAR: Mapping[str, Callable[[Case], str | None]] = {
    "field of a header": _change_field,
    "kind of entry": _kind,
    "sparse": _sparse,
    "pax header": _pax,
    "size": _sizes,
    "a file more": _extra,
    "order": _reorder,
    "padding": _padding,
    "cut or lengthened": _cut_or_lengthen,
    "flip": _flip,
    "other format": _other_format,
    "too many entries": _many,
}
