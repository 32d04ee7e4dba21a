"""Guidance says what is told before a second try at what failed. In the recipe:

probe_told:
  task: tasks.probe
  inputs: {policy: sft.policy, problems: curate.problems}
  num_samples: 2
  max_tokens: 6
  guidance: [{kind: length, words: "letters:"}]
"""

from typing import Literal

from posttrain.learning.episodes.guidance.base import Guidance


class Length(Guidance):
    """Tell how long the answer is."""

    kind: Literal["length"] = "length"
    words: str
    """What stands before the number."""

    def tell(self, failed, draw):
        return f"{self.words} {len(failed.problem.answer)}"


PARTS = {"guidance": {"length": Length}}
