"""A method's file is short, and what was tried before it came to its claims stands elsewhere."""

from statistics import median

import pytest

from posttrain.methods.claim import FIRST_TRIAL
from posttrain.methods.find import SHIPPED
from tests.methods.write_claims import ROOT

FILES = [each for each in sorted(SHIPPED.glob("*/*.yaml")) if each.parent.name != "arenas"]
RECORD = "docs/claims.md"


def test_half_of_the_files_have_thirty_lines_or_less():
    lines = [len(file.read_text(encoding="utf-8").splitlines()) for file in FILES]
    assert len(lines) >= 175
    assert median(lines) <= 30


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_line_is_crammed(file):
    lines = file.read_text(encoding="utf-8").splitlines()
    long = {number: len(line) for number, line in enumerate(lines, 1) if len(line) > 120}
    assert not long


def test_what_was_tried_is_in_the_record_alone():
    record = (ROOT / RECORD).read_text(encoding="utf-8").splitlines()
    told = {line.removeprefix("## ") for line in record if line.startswith("## ")}
    texts = {file.stem: file.read_text(encoding="utf-8") for file in FILES}
    assert told == {name for name, text in texts.items() if RECORD in text}
    trial = f"run {FIRST_TRIAL}"
    assert not [name for name, text in texts.items() if trial in text]
