"""A search attempts a problem until it is content. In the recipe:

probe_again:
  task: tasks.probe
  inputs: {policy: sft.policy, problems: curate.problems}
  search: {kind: again, most: 3}
  max_tokens: 6
"""

from dataclasses import replace
from typing import Literal

from posttrain.learning.rollouts.searches.base import Search


class Again(Search):
    """Draws again what was wrong."""

    kind: Literal["again"] = "again"
    most: int
    """Attempts of a problem."""

    def attempts(self, problems, prompts, params, bench):
        """Draw all that is wrong still, with another seed each time."""
        made, left = {each.id: [] for each in problems}, [*zip(problems, prompts, strict=True)]
        for number in range(self.most):
            again = replace(params, num_samples=1, seed=params.seed + number)
            drawn = bench.engine.sample([prompt for _, prompt in left], again)
            scored = bench.score([*zip([each for each, _ in left], drawn, strict=True)])
            for each in scored:
                made[each.problem.id].append(each)
            wrong = [not each.score.correct for each in scored]
            left = [each for each, failed in zip(left, wrong, strict=True) if failed]
            if not left:
                break
        bench.report(len(problems))
        return [each for problem in problems for each in made[problem.id]]


PARTS = {"search": {"again": Again}}
