"""Whether the stages of a recipe fit: `posttrain plan --memory`.

`models.py` finds the architecture of each stage's models through the flow, `machine.py` what there
is room in, `savings.py` tries settings, and `plan.py` puts all of it together.
"""
