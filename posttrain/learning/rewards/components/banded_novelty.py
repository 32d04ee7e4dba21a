"""Answers are paid by how unlike the others they are, the selected in a band above the rest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range
from posttrain.learning.rewards.verify import stated_answers

if TYPE_CHECKING:
    from torch import Tensor

_SELECTED: Range = (0.5, 1.0)
_OTHERS: Range = (-1.0, -0.5)
_SAME = 1e-5
"""Novelties as near as this are equal: states of one text differ by rounding in another batch, and
the rescaling of a band would make whole rewards of that."""


class BandedNoveltyComponent(Component):
    """From 0.5 to 1 for an answer that another component selects, else from -1 to -0.5.

    Within its band an answer is paid by its novelty, from the least to the most that its side has:
    1 less the mean of two cosines, that to the other answers of its side on average and that to
    the nearest answer of the group. Negative cosines count as 0. An answer that is alone on its
    side gets the band's upper end, answers of equal novelty its middle. What states no answer gets
    -1 and is compared with nothing; so do all where fewer than two state one. Vectors are mean
    hidden states, over what was drawn, of a model through the port `references`.
    """

    SOURCE = (
        "EVOL-RL, arXiv 2509.15194; YujunZhou/EVOL-RL at 1aff1ca, the reward manager `semantic`"
        " (_compute_similarity_based_rewards)"
    )
    SCOPE: ClassVar[Literal["group"]] = "group"
    RANGE: ClassVar[Range] = (-1.0, 1.0)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["banded_novelty"] = "banded_novelty"
    model: str
    """Name under `inputs.references` of the model whose states are compared."""
    of: str
    """The component whose score of 1 selects an answer, such as a vote."""

    def ports(self) -> Sequence[str]:
        """Return the port of the model; see `Component.ports`."""
        return (f"references.{self.model}",)

    def reads(self) -> Sequence[str]:
        """Return the component that selects; see `Component.reads`."""
        return (self.of,)

    def bounds(self, *, solved: bool) -> Range:
        """Return the band of an answer, the lower end of all where it states none."""
        return _SELECTED if solved else _OTHERS

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Compare the states, each side by itself; see `Component.score`."""
        import torch

        from posttrain.learning.rewards.components.answer_tokens import answers_states

        paid: list[float | None] = [_OTHERS[0]] * len(group.texts)
        stated = stated_answers(group.texts, group.problem)
        places = [place for place, each in enumerate(stated) if each is not None]
        if len(places) < 2:
            return paid
        states = answers_states(known.models.reference(self.model), group)
        states_GD = torch.stack([states[place] for place in places])
        states_GD = torch.nn.functional.normalize(states_GD, dim=-1)
        near_GG = (states_GD @ states_GD.T).clamp(0.0, 1.0)
        selected = [group.scores[self.of][place] == 1.0 for place in places]
        for chosen, band in ((True, _SELECTED), (False, _OTHERS)):
            side = [row for row, each in enumerate(selected) if each == chosen]
            for row, value in zip(side, _within(_novelties(near_GG, side), band), strict=True):
                paid[places[row]] = value
        return paid


def _novelties(near_GG: "Tensor", side: Sequence[int]) -> list[float]:
    """1 less the mean of the average cosine to one's side and the greatest to anybody."""
    found = []
    for row in side:
        near = near_GG[row].tolist()
        everybody = [value for other, value in enumerate(near) if other != row]
        peers = [near[other] for other in side if other != row] or everybody
        found.append(1.0 - (sum(peers) / len(peers) + max(everybody)) / 2)
    return found


def _within(novelties: Sequence[float], band: Range) -> list[float]:
    """Stretch what a side has over its band."""
    low, high = band
    if len(novelties) == 1:
        return [high]
    least, most = min(novelties, default=0.0), max(novelties, default=0.0)
    if most - least < _SAME:
        return [(low + high) / 2] * len(novelties)
    return [low + (high - low) * (each - least) / (most - least) for each in novelties]
