"""Steps from one state, by what becomes of the answers that go on from them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from posttrain.data.pair_builders.base import Chosen, PairBuilder, PairCandidate


class StepPairs(PairBuilder):
    """Sets steps that were taken from one state against each other, by their values.

    A step is a line. Samples that begin alike are one path of a tree; the value of a step is the
    mean of 2 x score - 1 over the samples that go through it, each as often as it was drawn, which
    is what a tree search with `failure: -1` that made them has backed up. `signs` sets every step
    of positive value against every one of negative value; `extremes` goes along the best sample and
    sets at each of its states the step of the highest value against that of the lowest. A pair's
    scores are the  values; its texts are all up to the step, whose beginning is noted.
    """

    SOURCE = (
        "keesh0410/CPL-Reasoning at 46f1e2f, gen_data/gen_policy_model_round1_apo_data.py (signs);"
        " George-Chia/llm-agents-with-q at f93d24f, hotpot/scripts/construct_preference_data.py"
        " (extremes)"
    )
    OF_STEPS: ClassVar[bool] = True

    kind: Literal["steps"] = "steps"
    against: Literal["signs", "extremes"] = "signs"
    """Which steps of one state."""

    def of_problem(self, samples: Sequence[PairCandidate], limit: int) -> list[Chosen]:
        """Build the tree of the samples, and compare in it; see `PairBuilder.of_problem`."""
        root = _Node()
        # In the order of their texts: a tree is the same whichever sample came first.
        for sample in sorted(samples, key=lambda each: (each.text, each.context)):
            root.take(sample)
        if self.against == "signs":
            found = [*_signs(root)]
        else:
            found = [*_extremes(root, max(samples, key=lambda each: each.score, default=None))]
        return sorted(found, key=lambda pair: pair[1].score - pair[0].score)[:limit]


@dataclass
class _Node:
    """What samples have said so far, and how they went on."""

    text: str = ""
    begin: int = 1
    first: PairCandidate | None = None
    total: float = 0.0
    visits: int = 0
    children: "dict[str, _Node]" = field(default_factory=dict)

    @property
    def value(self) -> float:
        return self.total / self.visits

    def take(self, sample: PairCandidate) -> None:
        """Let a sample go through the tree."""
        node = self
        for line in _lines(sample.text):
            child = node.children.get(line)
            if child is None:
                child = _Node(node.text + line, len(node.text) + 1, sample)
                node.children[line] = child
            child.total += (2 * sample.score - 1) * sample.drawn
            child.visits += sample.drawn
            node = child

    def candidate(self) -> PairCandidate:
        """The beginning that ends with this step."""
        assert self.first is not None
        return replace(self.first, text=self.text, score=self.value, step=self.begin)


def _lines(text: str) -> list[str]:
    """The steps of a text, each with its line break."""
    return re.findall(r"[^\n]*\n|[^\n]+", text) or [""]


def _signs(node: _Node) -> Iterator[Chosen]:
    steps = [*node.children.values()]
    for better in (each for each in steps if each.value > 0):
        for worse in (each for each in steps if each.value < 0):
            yield better.candidate(), worse.candidate()
    for each in steps:
        yield from _signs(each)


def _extremes(node: _Node, best: PairCandidate | None) -> Iterator[Chosen]:
    for line in _lines(best.text) if best else ():
        steps = [*node.children.values()]
        better = max(steps, key=lambda each: each.value)
        worse = min(steps, key=lambda each: each.value)
        if better.value > worse.value:
            yield better.candidate(), worse.candidate()
        node = node.children[line]
