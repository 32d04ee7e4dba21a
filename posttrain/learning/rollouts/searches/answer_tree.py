"""The tree of a problem's answers: nodes are beginnings, edges are steps of a line each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from posttrain.learning.rollouts.engines.beginnings import AnswerStart, drawn_behind, drawn_steps
from posttrain.learning.rollouts.engines.stop import text_of_answer
from posttrain.learning.rollouts.searches.base import SearchBench

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams
    from posttrain.learning.rollouts.scoring import ScoredSample


@dataclass(eq=False)
class AnswerNode:
    """A beginning of an answer."""

    parent: "AnswerNode | None" = None
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    ended: "Sample | None" = None
    """Its last step, where nothing can follow it."""
    children: "list[AnswerNode]" = field(default_factory=list)
    visits: int = 0
    total: float = 0.0

    @property
    def value(self) -> float:
        """Mean of what was backed up; 0 where it was never visited."""
        return self.total / self.visits if self.visits else 0.0

    def leaf(self, bound: "Callable[[AnswerNode], float]") -> "AnswerNode":
        """Go down by the highest bound; of equal ones by the first."""
        node = self
        while node.children:
            node = max(node.children, key=bound)
        return node

    def add(self, step: "Sample", *, goes_on: bool) -> None:
        """Put a step behind it.

        Args:
            step: Tokens that are new.
            goes_on: Whether anything can follow them.

        """
        tokens, logprobs = (*self.tokens, *step.token_ids), (*self.logprobs, *step.logprobs)
        self.children.append(AnswerNode(self, tokens, logprobs, None if goes_on else step))

    def back_up(self, value: float) -> None:
        """Count a visit of this and of all before it."""
        node: AnswerNode | None = self
        while node is not None:
            node.visits, node.total = node.visits + 1, node.total + value
            node = node.parent


@dataclass(eq=False)
class AnswerTree:
    """What was tried of a problem."""

    problem: "Problem"
    prompt: "Prompt"
    root: AnswerNode = field(default_factory=AnswerNode)
    made: "list[ScoredSample]" = field(default_factory=list)
    """Its attempts, in their order."""
    done: bool = False

    def start(self, node: AnswerNode, what: str) -> AnswerStart:
        """Return what is drawn behind.

        Args:
            node: Of this tree.
            what: Tells this drawing from all others of the tree.

        """
        return AnswerStart(f"{self.prompt.id}/{what}", self.prompt.token_ids, node.tokens)


def widen(
    trees: Sequence[AnswerTree],
    leaves: Sequence[AnswerNode],
    params: "SamplingParams",
    bench: SearchBench,
    *,
    iteration: int,
    children: int,
) -> None:
    """Draw the next steps of leaves behind which something can follow.

    Args:
        trees: What is searched.
        leaves: One of each.
        params: How to sample.
        bench: Engine and policy.
        iteration: 0-based; what is drawn is named by it.
        children: Steps of each leaf; equal ones are one.

    """
    open_leaves = [
        (leaf, tree.start(leaf, f"{iteration}/step"))
        for tree, leaf in zip(trees, leaves, strict=True)
        if leaf.ended is None
    ]
    starts, several = [start for _, start in open_leaves], replace(params, num_samples=children)
    drawn = drawn_steps(bench.engine, bench.policy.tokenizer, starts, several)
    for (leaf, _), steps in zip(open_leaves, drawn, strict=True):
        known = set[tuple[int, ...]]()
        for step, goes_on in steps:
            if step.token_ids not in known:
                known.add(step.token_ids)
                leaf.add(step, goes_on=goes_on)


def finished(
    trees: Sequence[AnswerTree],
    nodes: Sequence[AnswerNode],
    params: "SamplingParams",
    bench: SearchBench,
    *,
    iteration: int,
) -> "list[Sample]":
    """Write the answers that begin so to their ends.

    Args:
        trees: What is searched.
        nodes: One of each.
        params: How to sample.
        bench: Engine and policy.
        iteration: 0-based; what is drawn is named by it.

    Returns:
        A whole answer of each tree, numbered behind its attempts.

    """
    both = list(zip(trees, nodes, strict=True))
    starts = [tree.start(node, f"{iteration}/rest") for tree, node in both if node.ended is None]
    rests = iter(drawn_behind(bench.engine, starts, replace(params, num_samples=1)))
    found = []
    for tree, node in both:
        if node.ended is None:
            (last,) = next(rests)
            tokens, logprobs = (*node.tokens, *last.token_ids), (*node.logprobs, *last.logprobs)
        else:
            last, tokens, logprobs = node.ended, node.tokens, node.logprobs
        found.append(
            replace(
                last,
                prompt_id=tree.prompt.id,
                index=len(tree.made),
                token_ids=tokens,
                logprobs=logprobs,
                text=text_of_answer(bench.policy.model, bench.policy.tokenizer, tokens),
            )
        )
    return found
