"""Shares of the sources: which source a drawn problem is from, whichever sampler draws it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from posttrain.learning.curriculum.base import GroupResult, ProblemStream


class SourceShares(ProblemStream):
    """Lets the sources take turns, and a sampler choose within each.

    Every draw owes each source its share, and goes to the one that is owed most: after any number
    of draws each has had its share, to within one.
    """

    def __init__(
        self, inner: ProblemStream, shares: Mapping[str, float], sources: Sequence[str]
    ) -> None:
        total = sum(shares.values())
        self.inner = inner
        self.shares = {name: share / total for name, share in shares.items()}
        self.sources = sources
        self.owed = dict.fromkeys(shares, 0.0)

    def draw(
        self, count: int, *, seed: int, step: int, without: Collection[int] = ()
    ) -> Sequence[int]:
        """Take the sources in turn, in the sampler's order; a source that is out is passed."""
        order = self.inner.draw(len(self.sources), seed=seed, step=step, without=without)
        lines: dict[str, Iterator[int]] = {
            name: iter([index for index in order if self.sources[index] == name])
            for name in self.shares
        }
        heads = {name: next(line, None) for name, line in lines.items()}
        chosen: list[int] = []
        while len(chosen) < count:
            waiting = {name: head for name, head in heads.items() if head is not None}
            if not waiting:
                break
            self.owed = {name: owed + self.shares[name] for name, owed in self.owed.items()}
            name = max(waiting, key=lambda each: self.owed[each])
            self.owed[name] -= 1
            chosen.append(waiting[name])
            heads[name] = next(lines[name], None)
        return chosen

    def observe(self, results: Sequence[GroupResult]) -> None:
        """Let the sampler observe."""
        self.inner.observe(results)

    def state_dict(self) -> dict[str, Any]:
        """The sampler's state, and what the sources are owed."""
        return {"sampler": self.inner.state_dict(), "owed": dict(self.owed)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.inner.load_state_dict(state["sampler"])
        self.owed = dict(state["owed"])

    def metrics(self) -> dict[str, float]:
        """Those of the sampler."""
        return self.inner.metrics()
