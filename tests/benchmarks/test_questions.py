"""The two questions: where curves cross, and that page and pictures are those of the figures."""

import json
import re
from xml.etree import ElementTree

import pytest

from benchmarks.questions import __main__ as questions

KS = [1, 2, 4, 8]


def test_curves_cross_where_the_mean_is_not_ahead_and_for_certain_where_the_interval_is_below():
    """Gaps of two runs: 0.3 and 0.3, 0.2 and 0.1, 0.1 and -0.1, -0.2 and -0.2.

    Their means are ahead up to k = 2 and 0 at 4. Student's interval of two runs reaches 12.7 times
    half their difference: it holds 0 from k = 2 on (0.15 - 0.635), and lies below it only at 8,
    where both runs agree.
    """
    before = [[0.5, 0.5, 0.5, 0.5]] * 2
    after = [[0.8, 0.7, 0.6, 0.3], [0.8, 0.6, 0.4, 0.3]]
    assert questions.crossing(KS, after, before) == [4, 2, 8]


def test_curves_that_do_not_cross_are_told_as_twice_the_last_k():
    before, after = [[0.1] * 4] * 2, [[0.2] * 4] * 2
    assert questions.crossing(KS, after, before) == [16, 16, 16]


@pytest.mark.parametrize("picture", [questions.SHARPENS, questions.FIFTH], ids=lambda p: p.stem)
def test_pages_and_pictures_are_drawn_from_the_kept_figures(picture, tmp_path, monkeypatch):
    page = tmp_path / "README.md"
    page.write_text(questions.PAGE.read_text())
    monkeypatch.setattr(questions, "FIGURES", tmp_path / "figures.json")
    monkeypatch.setattr(questions, "PAGE", page)
    for name in ("SHARPENS", "FIFTH"):
        monkeypatch.setattr(questions, name, tmp_path / getattr(questions, name).name)
    questions.write(json.loads((questions.HERE / "figures.json").read_text()))
    assert page.read_text() == (questions.HERE / "README.md").read_text()
    drawn = (tmp_path / picture.name).read_text()
    assert drawn == picture.read_text()
    texts = [each.text for each in ElementTree.fromstring(drawn).iter() if each.text]
    assert any(re.search(r"\d+%", text) for text in texts)


def test_every_run_has_its_dot():
    figures = json.loads((questions.HERE / "figures.json").read_text())["fifth"]
    runs = [value for name, values in figures.items() if name != "start" for value in values]
    dots = [
        each for each in ElementTree.parse(questions.FIFTH).iter() if each.tag.endswith("circle")
    ]
    small = [each for each in dots if each.get("r") == "2.5"]
    assert len(small) == len(runs) + 1  # and the legend's
