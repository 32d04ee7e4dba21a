"""How many bytes training and sampling take at their peak, by what takes them.

Pure functions of a model's shapes and a stage's config: nothing is loaded, nothing is measured.
`shapes.py` reads a model's config, `learner.py` a stage's; `held.py`, `activations.py`, `head.py`
and `sampling.py` count one part each, and `training.py` and `peak.py` find when most of them stand
together. What they count is held against measured peaks in benchmarks/learner.
"""
