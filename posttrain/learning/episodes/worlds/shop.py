"""A shop: find, look at, choose and buy what fits a wish best."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.retrieval import best_passages
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts

_TYPES = ("lamp", "chair", "bag", "cup", "coat", "desk", "shoe", "rug", "clock", "pen")
_ATTRIBUTES = ("soft", "small", "light", "strong", "warm", "new", "thin", "dark", "wide", "round")
_OPTIONS = ("red", "blue", "green", "black", "white")
_MOST_PRICE = 99
_ERROR: Mapping[str, float] = {"tool_errors": 1.0}


class Shop(World):
    """Buy what fits a wish: a type, attributes, an option to choose, and a price that is not above.

    A wish reads `lamp soft small red 40`. Turns are `search lamp soft`, which lists items by BM25
    with type and price; `look 12`, which tells an item's attributes and options; `pick red`; and
    `buy`, which ends the episode. A purchase of the type wished for is worth the share of wishes
    that it fits: attributes, the option, and the price. Of another type it is worth nothing.
    """

    SOURCE: ClassVar[str] = (
        "WebShop, arXiv 2207.01206: its reward (get_reward of the authors), for types of one word"
    )
    PACKAGES: ClassVar[frozenset[str]] = frozenset({"bm25s"})
    SIZES: ClassVar[tuple[str, ...]] = ("items", "wished", "turns")

    kind: Literal["shop"] = "shop"
    items: int = Field(default=40, ge=4, le=900)
    """Items that the shop has."""
    wished: int = Field(default=2, ge=1, le=3)
    """Attributes that a wish names; an item has one more."""
    shown: int = Field(default=4, ge=1)
    """Items that a search lists."""
    turns: int = Field(default=10, ge=4)
    """Turns of an episode."""

    def pose(self, draw: Random) -> Posed:
        """Fill a shop, and wish for something that it has; see `World.pose`."""
        digits = 2 if self.items <= 90 else 3  # noqa: PLR2004 - numbers of two digits
        numbers = draw.sample(range(10 ** (digits - 1), 10**digits), self.items)
        items = [self._item(number, draw) for number in numbers]
        aim = draw.choice(items)
        wish = {
            "type": aim["type"],
            "attributes": draw.sample(aim["attributes"], self.wished),
            "option": draw.choice(aim["options"]),
            "price": min(_MOST_PRICE, aim["price"] + draw.randrange(10)),
        }
        words = (wish["type"], *wish["attributes"], wish["option"], str(wish["price"]))
        facts = {"items": items, "wish": wish, "shown": self.shown, "turns": self.turns}
        return Posed(" ".join(words), facts)

    def _item(self, number: int, draw: Random) -> dict[str, Any]:
        return {
            "number": str(number),
            "type": draw.choice(_TYPES[: max(2, self.items // 8)]),
            "attributes": draw.sample(_ATTRIBUTES, self.wished + 1),
            "options": draw.sample(_OPTIONS, 2),
            "price": draw.randint(10, _MOST_PRICE),
        }

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask for a turn; see `World.begin`."""
        none = {"listed": [], "looked": [], "open": "", "picked": ""}
        return _asked({**facts, **none, "left": facts["turns"]})

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Do what is said; see `Environment.step`."""
        verb, _, rest = acts[0].text.strip().partition(" ")
        after, rest = {**state, "left": state["left"] - 1}, rest.strip()
        item = _item_of(state, state["open"])
        if verb == "search":
            return _searched(after, rest)
        if verb == "look" and (found := _item_of(state, rest)):
            after |= {"open": rest, "picked": "", "looked": _joined(state["looked"], rest)}
            return _asked(after, " ".join((*found["attributes"], "/", *found["options"])))
        if verb == "pick" and item and rest in item["options"]:
            return _asked({**after, "picked": rest}, "ok")
        if verb == "buy" and not rest and item:
            worth = worth_of(item, state["picked"], state["wish"])
            return Situation(after, earned={POLICY: worth} if worth else {})
        return _asked(after, "no such thing", facts=_ERROR)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Search, look until one fits altogether, and buy the best; see `World.best_move`."""
        wish = state["wish"]
        if not state["listed"]:
            return " ".join(("search", wish["type"], *wish["attributes"]))
        listed = [_item_of(state, number) for number in state["listed"]]
        fitting = [each for each in listed if each["type"] == wish["type"]] or listed
        fitting = sorted(fitting, key=lambda each: each["price"] > wish["price"])
        seen = [each for each in fitting if each["number"] in state["looked"]]
        best = max(seen, key=lambda each: worth_of(each, wish["option"], wish), default=None)
        done = best is not None and worth_of(best, wish["option"], wish) == 1.0
        unseen = [each for each in fitting if each["number"] not in state["looked"]]
        # Enough is left to open the best one again, to pick, and to buy.
        if best is None or (not done and unseen and state["left"] > 3):  # noqa: PLR2004 - as said
            return f"look {unseen[0]['number']}"
        if state["open"] != best["number"]:
            return f"look {best['number']}"
        if wish["option"] in best["options"] and state["picked"] != wish["option"]:
            return f"pick {wish['option']}"
        return "buy"

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Do anything; see `World.random_move`."""
        number = draw.choice(state["listed"] or [each["number"] for each in state["items"]])
        moves = (
            f"search {draw.choice(_TYPES)} {draw.choice(_ATTRIBUTES)}",
            f"look {number}",
            f"pick {draw.choice(_OPTIONS)}",
            "buy",
        )
        return draw.choice(moves)


def worth_of(item: Mapping[str, Any], picked: str, wish: Mapping[str, Any]) -> float:
    """Score a purchase: WebShop's reward, where a type fits or does not.

    Args:
        item: What is bought.
        picked: The option that was chosen; empty for none.
        wish: What was wanted.

    Returns:
        The share of attributes, option and price that fit; 0 for another type.

    """
    if item["type"] != wish["type"]:
        return 0.0
    attributes = len(set(item["attributes"]) & set(wish["attributes"]))
    fits = attributes + (picked == wish["option"]) + (item["price"] <= wish["price"])
    return float(fits / (len(wish["attributes"]) + 2))


def _searched(state: EpisodeState, query: str) -> Situation:
    """List the items that a query fits best."""
    items = state["items"]
    texts = tuple(" ".join((each["type"], *each["attributes"])) for each in items)
    found = [items[place] for place in best_passages(texts, query, state["shown"])]
    if not found:
        return _asked(state, "nothing", facts=_ERROR)
    listed = [each["number"] for each in found]
    told = "; ".join(f"{each['number']} {each['type']} {each['price']}" for each in found)
    return _asked({**state, "listed": listed}, told)


def _item_of(state: EpisodeState, number: str) -> Any:
    """The item of a number; None where there is none."""
    return next((each for each in state["items"] if each["number"] == number), None)


def _joined(numbers: Sequence[str], number: str) -> list[str]:
    return [*numbers] if number in numbers else [*numbers, number]


def _asked(
    state: EpisodeState, text: str = "", *, facts: Mapping[str, float] | None = None
) -> Situation:
    """Ask for a turn, if there is one left."""
    if not state["left"]:
        return Situation(state, facts=facts or {})
    told = (Told("user", text),) if text else ()
    where = (state["listed"], sorted(state["looked"]), state["open"], state["picked"])
    return Situation(state, (Ask(POLICY, told),), key=f"{where}/{state['left']}", facts=facts or {})
