"""The picture of the pipeline: what is joined, what is above what."""

from markupsafe import escape

from posttrain.views.report.dag import draw_dag, reduced

DIAMOND = {"a": set(), "b": {"a"}, "c": {"a"}, "d": {"b", "c", "a"}, "e": {"d", "a"}}


def test_edges_that_a_longer_way_implies_are_left_out():
    assert reduced(DIAMOND) == {
        "a": set(),
        "b": {"a"},
        "c": {"a"},
        "d": {"b", "c"},
        "e": {"d"},
    }


def test_the_drawing_has_a_node_for_each_stage_and_an_edge_for_each_step(workspace):
    drawn = draw_dag(workspace.stages)
    names = [node["heading"] for node in drawn.nodes]
    assert names == ["make", "train", "probe", "grade", "judge"]
    # make -> train -> probe -> grade and judge; make and train -> judge follow from those.
    assert drawn.edges == [(0, 1, ""), (1, 2, ""), (2, 3, ""), (2, 4, "")]
    assert drawn.nodes[0]["style"] == "cached"
    assert drawn.nodes[0]["lines"] == ["up to date (12 s)"]
    assert "<svg" not in escape(draw_dag([]))
