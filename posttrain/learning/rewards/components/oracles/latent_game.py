"""Answers stand for latent strategies, and are rated by an equilibrium of the game of these."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, WithJsonSchema

from posttrain.learning.rewards.components.oracles.base import PairOracle
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem
    from posttrain.learning.rewards.port_models import PortModels

# A schema of all that an oracle may be would have itself within.
_ANY_ORACLE = {"anyOf": [{"type": "string"}, {"type": "object", "required": ["kind"]}]}


class LatentGameOracle(PairOracle):
    """Rates answers by what an equilibrium of their latent strategies makes of them.

    Answers to a problem that lie near each other are one latent strategy. What strategy s wins
    against t is A[s, t], the mean preference for an answer of s over one of t, as another oracle
    has it; σ is an equilibrium of that game, found by regret matching, which in a game of one
    decision is all of CFR; p is how often the policy plays each strategy. In place of a win rate
    an answer y of s has r(y) = log σ(s)/p(s), so that labels are σ(s)p(t) / (σ(s)p(t) + σ(t)p(s)):
    with `reference: round` and β = 1, DPO is at its best where the policy plays σ.
    """

    SOURCE = (
        "LSPO, arXiv 2502.04686, abstract: utterances into a finite latent strategy space, CFR in"
        " it, and DPO to align with what was learned; how pairs come of that is a choice here"
    )

    # p is the policy's, and not that of a pool with answers of others in it.
    OPPONENTS: ClassVar[frozenset[str]] = frozenset({"policy", "reference"})

    kind: Literal["latent_game"] = "latent_game"
    label: Literal["win_rates"] = "win_rates"
    """Pairs are labeled σ(r(chosen) - r(rejected)), and nothing else."""
    asks: Annotated[PairOracle, InSlot("pair_oracle"), WithJsonSchema(_ANY_ORACLE)]
    """Who says how often one answer is preferred to another one."""
    strategies: int = Field(default=8, ge=2)
    """Most latent strategies of a problem; fewer where fewer answers differ."""
    model: str | None = None
    """Name under `inputs.references` of the model whose mean hidden states say what lies near;
    null for how often each word stands in an answer."""
    by: Literal["equilibrium", "values"] = "equilibrium"
    """What r is: `equilibrium` as above; or `values`, the counterfactual value Σ_t A[s, t] σ(t),
    which is one for all that σ plays, and less for what it should not."""
    least: float = Field(default=0.01, gt=0.0, lt=0.5)
    """What σ(s) counts at least in r, as a strategy that is never to be played has no logarithm."""

    _models: "PortModels | None" = PrivateAttr(default=None)

    def ports(self) -> Sequence[str]:
        """Return the ports of the other oracle, and that of the model; see `PairOracle.ports`."""
        return (*self.asks.ports(), *([] if self.model is None else [f"references.{self.model}"]))

    def asking(self, models: "PortModels") -> Self:
        """Return one that asks the models of the ports; see `PairOracle.asking`."""
        bound = self.model_copy(update={"asks": self.asks.asking(models)})
        bound._models = models
        return bound

    def prefers(
        self,
        problem: "Problem",
        pairs: Sequence[tuple[str, str]],
        scores: Mapping[str, float | None],
    ) -> list[float | None]:
        """Ask the other oracle; see `PairOracle.prefers`."""
        return self.asks.prefers(problem, pairs, scores)

    def win_rates(
        self,
        problem: "Problem",
        texts: Sequence[str],
        others: Sequence[str],
        scores: Mapping[str, float | None],
    ) -> list[float | None]:
        """Rate each text by its strategy: r of above, in place of a win rate.

        Args:
            problem: What they answer.
            texts: Answers.
            others: What the policy draws, as often as it does.
            scores: See `prefers`.

        Returns:
            r of each text; None where its answer could be compared with none.

        """
        import torch

        from posttrain.learning.maths.games import payoffs, played_among, to_be_played

        # In one order, so that the game of the same answers is the same game.
        known = sorted({*texts, *others})
        pairs = [(a, b) for a in known for b in known]
        found = self.asks.prefers(problem, pairs, scores)
        wins_NN = torch.tensor([math.nan if each is None else each for each in found]).double()
        wins_NN = wins_NN.reshape(len(known), len(known))
        drawn = Counter(others)
        counts_N = torch.tensor([drawn[text] for text in known], dtype=torch.float64)
        own_N = self._strategies(problem, known)
        belongs_NS = torch.nn.functional.one_hot(own_N).double()
        payoff_SS = payoffs(wins_NN, belongs_NS * counts_N.clamp_min(1.0)[:, None])
        played_S = played_among(payoff_SS)
        if self.by == "values":
            rated_S = payoff_SS @ played_S
        else:
            shares_S = (belongs_NS.T @ counts_N) / max(len(others), 1)
            # What the policy did not draw it draws less often than once more.
            floor = 1.0 / (len(others) + 1)
            rated_S = to_be_played(played_S, shares_S, least=self.least, floor=floor)
        compared_N = (~wins_NN.isnan()).sum(-1) > 0
        rated = {
            text: value if compared else None
            for text, value, compared in zip(
                known, rated_S[own_N].tolist(), compared_N.tolist(), strict=True
            )
        }
        return [rated[text] for text in texts]

    def _strategies(self, problem: "Problem", texts: Sequence[str]) -> "Tensor":
        """The latent strategy of each text, numbered without a gap."""
        import torch

        from posttrain.learning.maths.mixtures import k_means

        own_N = k_means(self._placed(problem, texts), self.strategies)
        places = {own: place for place, own in enumerate(sorted({*own_N.tolist()}))}
        return torch.tensor([places[own] for own in own_N.tolist()])

    def _placed(self, problem: "Problem", texts: Sequence[str]) -> "Tensor":
        """Where texts lie, on the unit sphere; an empty one at its center."""
        import torch

        if self.model is None:
            words = [Counter(text.split()) for text in texts]
            names = sorted({name for each in words for name in each})
            rows = [[float(each[name]) for name in names] or [0.0] for each in words]
            placed_ND = torch.tensor(rows, dtype=torch.float64)
        else:
            placed_ND = self._states(problem, texts).double()
        return torch.nn.functional.normalize(placed_ND, dim=-1)

    def _states(self, problem: "Problem", texts: Sequence[str]) -> "Tensor":
        import torch

        from posttrain.data.contexts import in_context
        from posttrain.data.rows import encode_rows
        from posttrain.learning.rewards.port_models import mean_states

        if self._models is None or self.model is None:
            raise RuntimeError("the oracle was given no models; call `asking` first")
        policy = self._models.reference(self.model)
        prompts = in_context([problem.prompt] * len(texts), [problem.context] * len(texts))
        rows = encode_rows(policy.tokenizer, prompts, texts, allow_empty=True)
        marks = [[place >= row.start for place in range(len(row.ids))] for row in rows]
        return torch.stack(mean_states(policy, [row.ids for row in rows], marks))
