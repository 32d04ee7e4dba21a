"""Kuhn poker: one card each, one bet, and an opponent who errs now and then."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import OPPONENT, Posed, World, WorldFacts

# By what was done in a hand so far, the bold move and the mild one. Written are moves as `b` (bold)
# and `m` (mild); whoever leads makes the first and the third.
_MOVES: Mapping[str, tuple[str, str]] = {
    "": ("bet", "check"),
    "m": ("bet", "check"),
    "b": ("call", "fold"),
    "mb": ("call", "fold"),
}
# How each hand ends: what the leader gets whatever the cards are, and what the higher card gets.
_ENDS: Mapping[str, tuple[int, int]] = {
    "mm": (0, 1),
    "bb": (0, 2),
    "mbb": (0, 2),
    "bm": (1, 0),
    "mbm": (-1, 0),
}
# How often the bold move is made with a low, a middle and a high card: of three cards, an
# equilibrium (Kuhn's with alpha = 1/3).
_BOLD: Mapping[str, tuple[float, float, float]] = {
    "": (1 / 3, 0.0, 1.0),
    "m": (1 / 3, 0.0, 1.0),
    "b": (0.0, 1 / 3, 1.0),
    "mb": (0.0, 2 / 3, 1.0),
}


class Kuhn(World):
    """Play some hands of Kuhn poker, and win more than is lost.

    Each puts in 1 and has one of `cards` cards, of which the higher wins. Who leads may bet 1 or
    check; a bet is called or folded; after a check the other may bet. A turn is `bet`, `check`,
    `call` or `fold`; anything else is to check or fold. The two lead by turns, the policy at first.
    Each pair of cards is dealt twice, the other way round, so that both have equal luck. To be
    ahead in the end earns the policy 1, to be even 0.5; the opponent has the rest of 1.
    """

    SOURCE: ClassVar[str] = "Kuhn, A simplified two-person poker, 1950"
    SIZES: ClassVar[tuple[str, ...]] = ("cards", "hands", "opponent_errors")
    ROLES: ClassVar[frozenset[str]] = frozenset({OPPONENT})

    kind: Literal["kuhn"] = "kuhn"
    cards: int = Field(default=3, ge=3, le=13)
    """Cards of the deck, 1 to so many."""
    hands: int = Field(default=12, ge=2, multiple_of=2)
    """Hands of an episode: half of them, and the same dealt the other way round."""
    opponent_errors: float = Field(default=0.7, ge=0.0, le=1.0)
    """Probability that the opponent's script moves at random, and not as in equilibrium (with more
    than three cards: a third each of them as low, middle and high)."""

    def pose(self, draw: Random) -> Posed:
        """Deal all hands; see `World.pose`."""
        led = [draw.sample(range(1, self.cards + 1), 2) for _ in range(self.hands // 2)]
        followed = [deal[::-1] for deal in draw.sample(led, len(led))]
        deals = [deal for pair in zip(led, followed, strict=True) for deal in pair]
        facts = {"cards": self.cards, "deals": deals, "errors": self.opponent_errors}
        return Posed(f"cards 1 to {self.cards}. {_seen(_begun(facts), POLICY)}", facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask the policy to lead; see `World.begin`."""
        return _asked(_begun(facts), ())

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Make the move, and deal the next hand where that ends one; see `Environment.step`."""
        ((role, text, *_),) = acts
        moves, said = _MOVES[state["done"]], text.strip()
        facts = {"tool_errors": 1.0} if said not in moves and role == POLICY else {}
        after = {**state, "done": state["done"] + ("b" if said == moves[0] else "m")}
        if after["done"] in _ENDS:
            after |= _ended(after)
        if after["hand"] == len(state["deals"]):
            worth = (1.0 + (after["sum"] > 0) - (after["sum"] < 0)) / 2
            return Situation(after, earned={POLICY: worth, OPPONENT: 1.0 - worth}, facts=facts)
        asked = _to_move(after)
        rules = "" if asked == POLICY or state["met"] else f"cards 1 to {state['cards']}. "
        after["met"] = state["met"] or asked == OPPONENT
        return _asked(after, (Told("user", rules + _seen(after, asked)),), facts)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Make the move that pays best against the opponent's script; see `World.best_move`."""
        done, moves = state["done"], _MOVES[state["done"]]
        mine, theirs = state["deals"][state["hand"]]
        if role == OPPONENT:
            return moves[draw.random() >= _boldness(state, done, theirs)]
        weights = {card: 1.0 for card in range(1, state["cards"] + 1) if card != mine}
        # What the opponent has done in the hand tells of its card.
        for ply in range(int(_leads(state)), len(done), 2):
            weights = _weighed(state, done[:ply], done[ply], weights)
        bold, mild = (_worth(state, done + move, mine, weights) for move in "bm")
        return moves[mild > bold]

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Make either move; see `World.random_move`."""
        return draw.choice(_MOVES[state["done"]])


def _begun(facts: WorldFacts) -> EpisodeState:
    return {**facts, "hand": 0, "done": "", "sum": 0, "shown": "", "met": False}


def _leads(state: EpisodeState) -> bool:
    """True where the policy leads the hand."""
    return bool(state["hand"] % 2 == 0)


def _to_move(state: EpisodeState) -> str:
    return POLICY if _leads(state) == (len(state["done"]) % 2 == 0) else OPPONENT


def _paid(done: str, mine: int, theirs: int, *, leads: bool) -> int:
    """What a hand pays the policy."""
    by_fold, by_cards = _ENDS[done]
    return (by_fold if leads else -by_fold) + (by_cards if mine > theirs else -by_cards)


def _ended(state: EpisodeState) -> EpisodeState:
    """What changes by the end of a hand; folded cards are not shown."""
    mine, theirs = state["deals"][state["hand"]]
    won = _paid(state["done"], mine, theirs, leads=_leads(state))
    shown = f"{mine} {theirs}" if _ENDS[state["done"]][1] else ""
    return {"hand": state["hand"] + 1, "done": "", "sum": state["sum"] + won, "shown": shown}


def _seen(state: EpisodeState, role: str) -> str:
    """What a role reads: the cards shown of the last hand, its own first, and how this one is."""
    card, sign, shown = state["deals"][state["hand"]][0], 1, state["shown"]
    if role == OPPONENT:
        card, sign = state["deals"][state["hand"]][1], -1
        shown = " ".join(reversed(shown.split()))
    before = f"shown {shown}; " if shown else ""
    place = f"hand {state['hand'] + 1} of {len(state['deals'])}, sum {sign * state['sum']}"
    then = {"": "lead", "m": "check", "b": "bet", "mb": "check bet"}[state["done"]]
    return f"{before}{place}, card {card}: {then}"


def _asked(
    state: EpisodeState, told: tuple[Told, ...], facts: Mapping[str, float] | None = None
) -> Situation:
    role = _to_move(state)
    card = state["deals"][state["hand"]][role == OPPONENT]
    key = f"{role} {state['hand']} {state['sum']} {card} {state['done']}"
    return Situation(state, (Ask(role, told),), key=key, facts=facts or {})


def _boldness(state: EpisodeState, done: str, card: int) -> float:
    """Probability that the opponent's script makes the bold move."""
    third = state["cards"] // 3
    level = 0 if card <= third else 1 if card <= state["cards"] - third else 2
    errors = state["errors"]
    return float((1.0 - errors) * _BOLD[done][level] + errors / 2)


def _weighed(
    state: EpisodeState, done: str, move: str, weights: Mapping[int, float]
) -> dict[int, float]:
    """Weights of the opponent's cards, times the probability that it makes a move with each."""
    bold = {card: _boldness(state, done, card) for card in weights}
    return {
        card: weight * (bold[card] if move == "b" else 1.0 - bold[card])
        for card, weight in weights.items()
    }


def _worth(state: EpisodeState, done: str, mine: int, weights: Mapping[int, float]) -> float:
    """What a hand pays the policy on average that plays on as best it can.

    Args:
        state: Whose hand it is.
        done: In the hand so far.
        mine: The policy's card.
        weights: How likely each card of the opponent is, which need not add up to 1.

    """
    leads = _leads(state)
    if done in _ENDS:
        paid = {card: _paid(done, mine, card, leads=leads) for card in weights}
        return sum(weight * paid[card] for card, weight in weights.items())
    if leads == (len(done) % 2 == 0):
        return max(_worth(state, done + move, mine, weights) for move in "bm")
    return sum(
        _worth(state, done + move, mine, _weighed(state, done, move, weights)) for move in "bm"
    )
