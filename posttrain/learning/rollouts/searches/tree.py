"""Monte Carlo tree search over the steps of an answer."""

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.searches.answer_tree import AnswerNode, AnswerTree, finished, widen
from posttrain.learning.rollouts.searches.base import Search, SearchBench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from posttrain.data.schemas import Problem
    from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
    from posttrain.learning.rollouts.scoring import ScoredSample


class TreeSearch(Search):
    """Goes down a tree of steps by upper confidence bounds, widens it at a leaf, and tries out.

    An iteration goes from the root to a leaf by the highest bound, draws `children` next steps
    there, takes one of them by chance, writes the answer to its end, and backs its score up. A step
    is a line. A problem is done with its first right answer (`until_solved`), or after all its
    iterations; how many it took is how hard it is.
    """

    SOURCE = (
        "ThinkLite-VL, arXiv 2504.07934; si0wang/ThinkLite-VL at 34904f5, mcts.py; the rule puct:"
        " keesh0410/CPL-Reasoning at 46f1e2f, mcts_plan/mcts/mcts_node.py"
    )

    kind: Literal["tree"] = "tree"
    iterations: int = Field(default=50, ge=1)
    """Most attempts of a problem."""
    children: int = Field(default=3, ge=1)
    """Next steps that are drawn at a leaf; equal ones are one."""
    rule: Literal["uct", "puct"] = "uct"
    """Bound of a step: its value + c sqrt(ln N / n), or + c sqrt(N) / (1 + n), of n visits among
    the N of its state; by `uct` what was never visited goes first."""
    exploration: float = Field(default=1.0, ge=0.0)
    """Their c."""
    failure: float = Field(default=0.0, ge=-1.0, le=0.0)
    """What a score of 0 is worth; a score of 1 is worth 1, and a step that was never visited 0."""
    until_solved: bool = True
    """Stop at a problem's first right answer."""

    def attempts(
        self,
        problems: "Sequence[Problem]",
        prompts: "Sequence[Prompt]",
        params: "SamplingParams",
        bench: SearchBench,
    ) -> "list[ScoredSample]":
        """Search all problems side by side, an iteration at a time; see `Search.attempts`."""
        from posttrain.stage.seeds import shuffler

        trees = [AnswerTree(*each) for each in zip(problems, prompts, strict=True)]
        for iteration in range(self.iterations):
            going = [tree for tree in trees if not tree.done]
            if not going:
                break
            leaves = [tree.root.leaf(self._bound) for tree in going]
            widen(going, leaves, params, bench, iteration=iteration, children=self.children)
            for place, (tree, leaf) in enumerate(zip(going, leaves, strict=True)):
                if leaf.children:
                    lot = shuffler(params.seed, "search", tree.problem.id, iteration)
                    leaves[place] = lot.choice(leaf.children)
            answers = finished(going, leaves, params, bench, iteration=iteration)
            scored = bench.score(
                [(tree.problem, each) for tree, each in zip(going, answers, strict=True)]
            )
            for tree, leaf, made in zip(going, leaves, scored, strict=True):
                tree.made.append(made)
                tree.done = self.until_solved and bool(made.score.correct)
                leaf.back_up(self.failure + (1.0 - self.failure) * (made.score.value or 0.0))
            bench.report(sum(tree.done for tree in trees))
        bench.report(len(trees))
        return [made for tree in trees for made in tree.made]

    def _bound(self, node: AnswerNode) -> float:
        assert node.parent is not None
        every, own = node.parent.visits, node.visits
        if self.rule == "puct":
            return node.value + self.exploration * math.sqrt(every) / (1 + own)
        if not own:
            return math.inf
        return node.value + self.exploration * math.sqrt(math.log(every) / own)
