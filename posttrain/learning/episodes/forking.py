"""Where episodes branch off by how unsure the policy is that plays: its entropies, and who asks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from posttrain.data.batching import length_buckets
from posttrain.learning.episodes.asked import Speaker
from posttrain.learning.episodes.branches.base import Branching, Forks
from posttrain.learning.episodes.drawing import Role
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.episode import Segment, Span

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Drawn(Protocol):
    """What a policy read and drew."""

    @property
    def token_ids(self) -> Sequence[int]:
        """All tokens, in order."""

    @property
    def spans(self) -> Sequence[Span]:
        """Who wrote them."""


_TOKENS_AT_ONCE = 8192
"""Padded tokens of a pass that computes entropies."""


def with_forks(
    speakers: Mapping[str, Speaker], branching: Branching, model: "PreTrainedModel | None"
) -> dict[str, Speaker]:
    """Let episodes of a group begin inside another one.

    Args:
        speakers: Who plays each role, `policy` at least.
        branching: Says where.
        model: The policy that plays; None where its weights are in several processes, and the
            branching asks for no entropies.

    Returns:
        Who plays, with a policy that knows where to branch.

    """
    role = speakers[POLICY]
    assert isinstance(role, Role)
    temperature = role.params.temperature

    def entropies(segments: Sequence[Segment], count: int) -> list[tuple[float, ...]]:
        assert model is not None
        return first_entropies(model, segments, count, temperature=temperature)

    return {**speakers, POLICY: replace(role, forks=Forks(branching, entropies))}


def first_entropies(
    model: "PreTrainedModel", segments: "Sequence[Drawn]", count: int, *, temperature: float
) -> list[tuple[float, ...]]:
    """Compute the entropies of the distributions from which the first tokens were drawn last.

    Args:
        model: The policy that drew.
        segments: Segments or rollouts, of which each ends with a drawn turn.
        count: Most tokens of that turn.
        temperature: That it was drawn at.

    Returns:
        For each segment, the entropy at each of these tokens divided by log V, from 0 to 1.

    """
    import torch

    from posttrain.learning.models.logprobs import token_logprobs

    spans = [segment.spans[-1] for segment in segments]
    ends = [min(span.end, span.begin + count) for span in spans]
    largest = math.log(model.config.get_text_config().vocab_size)
    found: dict[int, tuple[float, ...]] = {}
    for bucket in length_buckets(range(len(segments)), ends, _TOKENS_AT_ONCE):
        width = max(ends[place] for place in bucket)
        ids_BT = torch.zeros(len(bucket), width, dtype=torch.int64)
        wanted_BT = torch.zeros(len(bucket), width, dtype=torch.bool)
        for row, place in enumerate(bucket):
            ids_BT[row, : ends[place]] = torch.tensor(segments[place].token_ids[: ends[place]])
            wanted_BT[row, spans[place].begin : ends[place]] = True
        with torch.no_grad():
            entropy_BT = token_logprobs(
                model,
                ids_BT.to(model.device),
                wanted_BT=wanted_BT.to(model.device),
                temperature=temperature,
                with_entropy=True,
            ).entropy_BT
        assert entropy_BT is not None
        shares_BT = entropy_BT.cpu() / largest
        for row, place in enumerate(bucket):
            found[place] = tuple(shares_BT[row, wanted_BT[row]].tolist())
    return [found[place] for place in range(len(segments))]
