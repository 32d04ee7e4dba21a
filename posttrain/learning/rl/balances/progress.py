"""Objectives that lag behind, or that are unsteady, count for more."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any, Literal

from pydantic import Field

from posttrain.learning.rl.balances.base import Balance, BalanceAtWork


class ProgressBalance(Balance):
    """Weigh by `n softmax((c + s) / temperature)` over the n objectives.

    `c` is the mean of an objective in the last `window` steps by that in its first ones, so that
    one which is nearly met has a small c, and one that got nowhere has 1; `s` is the deviation in
    the last ones by their mean. All count 1 until each was measured so often.
    """

    SOURCE = (
        "the abstract of RECAP, arXiv 2510.21978: short-horizon signals of convergence and"
        " instability; the formula is this one's own"
    )

    kind: Literal["progress"] = "progress"
    """Away from what is nearly met, to what lags behind or is unsteady."""
    window: int = Field(default=5, ge=1)
    """Steps that a mean is taken over."""
    temperature: float = Field(default=1.0, gt=0.0)
    """Of the softmax: the lower, the more the weights differ."""

    def start(self, objectives: Sequence[str]) -> BalanceAtWork:
        """Begin without any measurement; see `Balance.start`."""
        return ProgressAtWork(self, objectives)


class ProgressAtWork(BalanceAtWork):
    """The first and the last measurements of each objective."""

    def __init__(self, config: ProgressBalance, objectives: Sequence[str]) -> None:
        self._config = config
        self._first: dict[str, list[float]] = {name: [] for name in objectives}
        self._last: dict[str, list[float]] = {name: [] for name in objectives}

    def weights(self) -> Mapping[str, float]:
        """Give n softmax((c + s) / temperature)."""
        names, window = list(self._first), self._config.window
        if any(len(self._last[name]) < window for name in names):
            return dict.fromkeys(names, 1.0)
        signals = [self._signal(name) / self._config.temperature for name in names]
        powers = [math.exp(signal - max(signals)) for signal in signals]
        total = math.fsum(powers)
        return {name: len(names) * p / total for name, p in zip(names, powers, strict=True)}

    def observe(self, measured: Mapping[str, float]) -> None:
        """Keep the first and the last of each objective."""
        window = self._config.window
        for name in self._first.keys() & measured.keys():
            if len(self._first[name]) < window:
                self._first[name].append(measured[name])
            self._last[name] = [*self._last[name], measured[name]][-window:]

    def _signal(self, name: str) -> float:
        first, last = fmean(self._first[name]), self._last[name]
        now = fmean(last)
        lag = now / first if first > 0 else 1.0
        return lag + (pstdev(last) / now if now > 0 else 0.0)

    def state_dict(self) -> dict[str, Any]:
        """All measurements that are kept."""
        return {"first": self._first, "last": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._first = {name: list(values) for name, values in state["first"].items()}
        self._last = {name: list(values) for name, values in state["last"].items()}
