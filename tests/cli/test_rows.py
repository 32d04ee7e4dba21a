"""What `posttrain rows` says above the rows."""

from posttrain.cli.rows import _made_by
from posttrain.provenance.lineage.graph import Node


def test_a_long_parameter_is_cut_and_a_short_one_is_whole():
    facts = {"run": "r", "param sources": "[" + "x" * 200, "param num_problems": "6000"}
    said = _made_by(Node("s", "stage", "synthesize", "synthesize@r", facts))
    assert said.endswith(f" with sources=[{'x' * 56}..., num_problems=6000")
