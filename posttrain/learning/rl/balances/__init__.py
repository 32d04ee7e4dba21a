"""How much each objective of an RL step counts, where it has several."""
