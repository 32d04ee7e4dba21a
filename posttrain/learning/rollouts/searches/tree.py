"""Monte Carlo tree search over the steps of an answer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.searches.base import Search, SearchBench

if TYPE_CHECKING:
    from collections.abc import Callable

    from posttrain.data.schemas import Problem
    from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams
    from posttrain.learning.rollouts.engines.beginnings import AnswerStart
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

        trees = [_Tree(*each) for each in zip(problems, prompts, strict=True)]
        for iteration in range(self.iterations):
            going = [tree for tree in trees if not tree.done]
            if not going:
                break
            leaves = [tree.root.leaf(self._bound) for tree in going]
            _widen(going, leaves, params, bench, iteration=iteration, children=self.children)
            for place, (tree, leaf) in enumerate(zip(going, leaves, strict=True)):
                if leaf.children:
                    lot = shuffler(params.seed, "search", tree.problem.id, iteration)
                    leaves[place] = lot.choice(leaf.children)
            answers = _finished(going, leaves, params, bench, iteration=iteration)
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

    def _bound(self, node: "_Node") -> float:
        assert node.parent is not None
        every, own = node.parent.visits, node.visits
        if self.rule == "puct":
            return node.value + self.exploration * math.sqrt(every) / (1 + own)
        if not own:
            return math.inf
        return node.value + self.exploration * math.sqrt(math.log(every) / own)


@dataclass(eq=False)
class _Node:
    """A beginning of an answer."""

    parent: "_Node | None" = None
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    ended: "Sample | None" = None
    """Its last step, where nothing can follow it."""
    children: "list[_Node]" = field(default_factory=list)
    visits: int = 0
    total: float = 0.0

    @property
    def value(self) -> float:
        return self.total / self.visits if self.visits else 0.0

    def leaf(self, bound: "Callable[[_Node], float]") -> "_Node":
        """Go down by the highest bound; of equal ones by the first."""
        node = self
        while node.children:
            node = max(node.children, key=bound)
        return node

    def back_up(self, value: float) -> None:
        """Count a visit of this and of all before it."""
        node: _Node | None = self
        while node is not None:
            node.visits, node.total = node.visits + 1, node.total + value
            node = node.parent


@dataclass(eq=False)
class _Tree:
    problem: "Problem"
    prompt: "Prompt"
    root: _Node = field(default_factory=_Node)
    made: "list[ScoredSample]" = field(default_factory=list)
    done: bool = False


def _widen(
    trees: Sequence[_Tree],
    leaves: Sequence[_Node],
    params: "SamplingParams",
    bench: SearchBench,
    *,
    iteration: int,
    children: int,
) -> None:
    """Draw the next steps of leaves behind which something can follow."""
    from posttrain.learning.rollouts.engines.beginnings import drawn_behind, step_ended

    places = [place for place, leaf in enumerate(leaves) if leaf.ended is None]
    asked = [_beginning(trees[place], leaves[place], iteration, "step") for place in places]
    several = replace(params, num_samples=children, stop=("\n",))
    for place, behind, group in zip(
        places, asked, drawn_behind(bench.engine, asked, several), strict=True
    ):
        leaf, known = leaves[place], set[tuple[int, ...]]()
        for drawn in group:
            if drawn.token_ids in known:
                continue
            known.add(drawn.token_ids)
            step, goes_on = step_ended(
                drawn,
                behind,
                bench.policy.tokenizer,
                max_tokens=params.max_tokens,
                context_length=bench.engine.context_length,
            )
            tokens = (*leaf.tokens, *step.token_ids)
            logprobs = (*leaf.logprobs, *step.logprobs)
            leaf.children.append(_Node(leaf, tokens, logprobs, None if goes_on else step))


def _finished(
    trees: Sequence[_Tree],
    leaves: Sequence[_Node],
    params: "SamplingParams",
    bench: SearchBench,
    *,
    iteration: int,
) -> "list[Sample]":
    """Write the answers that begin so to their ends, as whole answers."""
    from posttrain.learning.rollouts.engines.beginnings import drawn_behind
    from posttrain.learning.rollouts.engines.stop import end_tokens, without_end

    places = [place for place, leaf in enumerate(leaves) if leaf.ended is None]
    asked = [_beginning(trees[place], leaves[place], iteration, "rest") for place in places]
    rests = drawn_behind(bench.engine, asked, replace(params, num_samples=1))
    last = {place: group[0] for place, group in zip(places, rests, strict=True)}
    ends = end_tokens(bench.policy.model, bench.policy.tokenizer)
    found = []
    for place, (tree, leaf) in enumerate(zip(trees, leaves, strict=True)):
        rest, more = last.get(place), last[place].token_ids if place in last else ()
        ended = rest or leaf.ended
        assert ended is not None
        tokens = (*leaf.tokens, *more)
        text = bench.policy.tokenizer.decode(without_end(tokens, ends), skip_special_tokens=True)
        found.append(
            replace(
                ended,
                prompt_id=tree.prompt.id,
                index=len(tree.made),
                token_ids=tokens,
                logprobs=(*leaf.logprobs, *(rest.logprobs if rest else ())),
                text=str(text),
            )
        )
    return found


def _beginning(tree: _Tree, leaf: _Node, iteration: int, what: str) -> "AnswerStart":
    from posttrain.learning.rollouts.engines.beginnings import AnswerStart

    return AnswerStart(f"{tree.prompt.id}/{iteration}/{what}", tree.prompt.token_ids, leaf.tokens)
