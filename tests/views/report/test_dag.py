"""The picture of the pipeline: what is joined, what is above what."""

import re

from markupsafe import escape

from posttrain.views.report.dag import draw_dag, layered, reduced

DIAMOND = {"a": set(), "b": {"a"}, "c": {"a"}, "d": {"b", "c", "a"}, "e": {"d", "a"}}


def test_edges_that_a_longer_way_implies_are_left_out():
    assert reduced(DIAMOND) == {
        "a": set(),
        "b": {"a"},
        "c": {"a"},
        "d": {"b", "c"},
        "e": {"d"},
    }


def test_a_stage_stands_below_everything_that_it_reads():
    assert layered(reduced(DIAMOND)) == [["a"], ["b", "c"], ["d"], ["e"]]
    assert layered({"late": {"x"}, "x": set(), "alone": set()}) == [["x", "alone"], ["late"]]
    assert layered({}) == []


def test_stages_stand_below_their_parents_so_that_edges_do_not_cross():
    parents = {"a": set(), "b": set(), "of_b": {"b"}, "of_a": {"a"}}
    assert layered(parents) == [["a", "b"], ["of_a", "of_b"]]


def test_the_drawing_has_a_node_for_each_stage_and_an_edge_for_each_step(workspace):
    drawn = escape(draw_dag(workspace.stages))
    assert re.findall(r'class="name"[^>]*>(\w+)<', drawn) == [
        "make",
        "train",
        "probe",
        "grade",
        "judge",
    ]
    # make -> train -> probe -> grade and judge; make and train -> judge follow from those.
    assert drawn.count('class="edge"') == 4
    assert 'class="node cached"' in drawn
    assert "up to date (12 s)" in drawn
    assert "<svg" not in escape(draw_dag([]))
