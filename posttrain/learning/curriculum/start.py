"""From a sampler's config to one that draws."""

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.data.schemas import SOLVE_RATES
from posttrain.data.source_verifiers import read_scored_problems
from posttrain.data.tables import read_table
from posttrain.learning.curriculum.base import (
    GroupResult,
    ProblemPool,
    ProblemSampler,
    ProblemStream,
)
from posttrain.learning.rewards.score import final_answer
from posttrain.learning.rewards.verify import places_of_answers
from posttrain.learning.rollouts.engines.base import Prompt
from posttrain.learning.rollouts.limits import leaves_room, tell_no_room
from posttrain.learning.rollouts.scoring import make_prompts, problems_of
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.slots import name_of
from posttrain.stage.started import started

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
        """Take the sources in turn, in the sampler's order; see `ProblemStream.draw`."""
        # The whole order, as the next problem of a source may stand at its end.
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


class AnswerShares(ProblemStream):
    """Keeps one answer from being right for most of the problems that a source gives.

    Where it is, saying it earns more than trying, and a policy that cannot do the problems yet
    learns to guess: gcd of two numbers is 1 or 2 more often than not. A problem whose answer has
    had its share waits until the others have caught up.
    """

    def __init__(
        self, inner: ProblemStream, *, most: float, answers: Sequence[str], sources: Sequence[str]
    ) -> None:
        self.inner = inner
        self.most = most
        self.answers = answers
        self.sources = sources

    def draw(
        self, count: int, *, seed: int, step: int, without: Collection[int] = ()
    ) -> Sequence[int]:
        """Let common answers wait in the sampler's order; see `ProblemStream.draw`."""
        order = self.inner.draw(len(self.sources), seed=seed, step=step, without=without)
        of_source: dict[str, list[int]] = {}
        for index in order:
            of_source.setdefault(self.sources[index], []).append(index)
        lines = {name: self._in_turn(indices) for name, indices in of_source.items()}
        return [next(lines[self.sources[index]]) for index in order[:count]]

    def _in_turn(self, indices: Sequence[int]) -> Iterator[int]:
        """All of them; of the first n at most `most` have one answer, while others are left."""
        waiting: dict[str, deque[tuple[int, int]]] = {}
        drawn: Counter[str] = Counter()
        coming = iter(enumerate(indices))
        for num_drawn in range(len(indices)):
            limit = math.ceil(self.most * (num_drawn + 1))
            free = [each for each in waiting if drawn[each] < limit]
            # Who waits came before all that are still to come.
            answer = min(free, key=lambda each: waiting[each][0], default=None)
            while answer is None and (arrived := next(coming, None)) is not None:
                own = self.answers[arrived[1]]
                waiting.setdefault(own, deque()).append(arrived)
                answer = own if not own or drawn[own] < limit else None
            if answer is None:
                answer = min(waiting, key=lambda each: (drawn[each], waiting[each][0]))
            _, index = waiting[answer].popleft()
            if not waiting[answer]:
                del waiting[answer]
            drawn[answer] += 1
            yield index

    def observe(self, results: Sequence[GroupResult]) -> None:
        """Let the sampler observe."""
        self.inner.observe(results)

    def state_dict(self) -> dict[str, Any]:
        """The sampler's state."""
        return self.inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the sampler's state."""
        self.inner.load_state_dict(state)

    def metrics(self) -> dict[str, float]:
        """Those of the sampler."""
        return self.inner.metrics()


def read_pool(
    problems: Path, solve_rates: Path | None, *, policy: str, verifiers: Path | None = None
) -> ProblemPool:
    """Read what a problem sampler is started with.

    Args:
        problems: A PROBLEMS table.
        solve_rates: A SOLVE_RATES table, where one is connected.
        policy: Digest of the policy that training starts from.
        verifiers: The verifiers of the problems' sources, where they are connected.

    Returns:
        The pool.

    """
    table = read_scored_problems(problems, verifiers)
    return ProblemPool(
        problems=table,
        solve_rates=None if solve_rates is None else read_table(solve_rates, SOLVE_RATES),
        policy=policy,
        where=str(solve_rates or problems),
        places=lambda: places_of_answers(problems_of(table)),
    )


def with_room(
    pool: ProblemPool,
    tokenizer: "PreTrainedTokenizerBase",
    context_length: int,
    *,
    note: Callable[[str], None],
) -> tuple[ProblemPool, list[Prompt]]:
    """Keep the problems that a policy can answer within its context.

    Args:
        pool: Problems, and what is known of them.
        tokenizer: Of the policy, with its chat template.
        context_length: Most tokens, prompt and completion together, that it can attend to.
        note: Takes a sentence, where some are left out.

    Returns:
        The pool with those that are kept, and their prompts.

    Raises:
        UserError: None is.

    """
    prompts = make_prompts(tokenizer, problems_of(pool.problems))
    tell_no_room(prompts, context_length, of="the policy", then="they are left out", note=note)
    fits = [leaves_room(prompt, context_length) for prompt in prompts]
    if not any(fits):
        raise UserError(
            f"{pool.where}: every prompt fills the {context_length} tokens of the policy's context;"
            " take shorter problems, or a policy with a longer context"
        )
    fitting = replace(pool, problems=pool.problems.filter(fits))
    return fitting, [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit]


def start_sampler(
    sampler: ProblemSampler,
    pool: ProblemPool,
    *,
    count: int,
    sources: Mapping[str, float] | None = None,
    most_of_one_answer: float = 1.0,
) -> ProblemStream:
    """Start a problem sampler, once the pool has what it needs.

    Args:
        sampler: The part to start.
        pool: Problems, and what is known of them.
        count: Problems per step.
        sources: Weight of every source; none leaves the sources to the sampler.
        most_of_one_answer: Share of a step's problems of a source that may have one answer.

    Returns:
        A stream of problems, with its state.

    Raises:
        UserError: There are fewer problems than one step draws, the sampler needs solve rates and
            none are connected, or the shares cannot be given.

    """
    problems = pool.problems
    if len(problems) < count and not sampler.REPEATS:
        raise UserError(
            f"{pool.where}: there are {len(problems)} problems, but every step draws {count}"
            " different ones; lower problems_per_step or add problems"
        )
    if "solve_rates" in sampler.NEEDS and pool.solve_rates is None:
        raise UserError(
            f"rl.draw.sampler: {sampler.kind} begins from solve rates, and none are connected;"
            " connect a probe's, or set sampler to uniform"
        )
    stream = started(sampler, sampler.start(pool), ProblemStream, where="rl")
    if most_of_one_answer < 1.0:
        answers = [final_answer(each) or each for each in problems["answer"].to_list()]
        of_source = problems["source"].to_list()
        stream = AnswerShares(stream, most=most_of_one_answer, answers=answers, sources=of_source)
    if not sources:
        return stream
    return _share_sources(stream, sources, problems["source"].to_list(), count=count)


def refuse_draw(
    sampler: ProblemSampler,
    drawn: Sequence[int],
    wanted: int,
    *,
    known: int,
    without: Collection[int],
) -> None:
    """Refuse a draw that no step can be made of.

    Args:
        sampler: Whose draw it is.
        drawn: Problems, by their place.
        wanted: Most that there may be; at least one in a step's first round.
        known: Problems that there are.
        without: What the step has drawn before.

    Raises:
        UserError: There are too many or too few, one twice, or one that there is not.

    """
    fresh = set(drawn) & set(range(known)) - (set() if sampler.REPEATS else set(without))
    twice = len(fresh) != len(drawn) and not (sampler.REPEATS and fresh.issuperset(drawn))
    if twice or len(drawn) > wanted or not (drawn or without):
        raise UserError(
            f"rl: {name_of(sampler)}: `draw` was asked for {wanted} problems and gave"
            f" {list(drawn)}; let it give one to so many different numbers below {known}, none"
            " of which it gave in this step before"
        )


def told_apart(
    prompts: Sequence[Prompt], chosen: Sequence[int], without: Sequence[int]
) -> list[Prompt]:
    """Give the second prompt of a problem in a step an id of its own, and the third.

    Args:
        prompts: Of the problems that were chosen.
        chosen: Their places.
        without: Places of the problems that the step has drawn before.

    Returns:
        The same prompts, no two of the step with one id.

    """
    had, found = Counter(without), []
    for prompt, place in zip(prompts, chosen, strict=True):
        copies, had[place] = had[place], had[place] + 1
        found.append(replace(prompt, id=f"{prompt.id}@{copies}") if copies else prompt)
    return found


def _share_sources(
    stream: ProblemStream, shares: Mapping[str, float], sources: Sequence[str], *, count: int
) -> SourceShares:
    """Check the shares against what there is, and let the sources take turns."""
    available = Counter(sources)
    for name, share in shares.items():
        if name not in available:
            raise UserError(
                f"rl.draw.sources: no problem has the source '{name}'{nearest(name, available)}"
            )
        wanted = math.ceil(share / sum(shares.values()) * count)
        if wanted > available[name]:
            raise UserError(
                f"rl.draw.sources: the share of '{name}' is {wanted} problems per step, but there"
                f" are {available[name]}; lower its share or problems_per_step"
            )
    return SourceShares(stream, shares, sources)
