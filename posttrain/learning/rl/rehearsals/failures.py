"""Answers to problems that the policy failed, learned in an update of their own."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from posttrain.learning.rl.rehearsals.base import Rehearsal, RehearsalRow, RehearsalStream

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.rl.rollout import Group


class Failures(Rehearsal):
    """Collect problems that no rollout solved, and fine-tune on their answers once they suffice.

    When `rows` of them are collected, the step ends with an update by `-log p` on the answers that
    the table has to them, the latest first; the others wait. A problem without a row in the table
    is not collected.
    """

    SOURCE = (
        "ReLIFT, arXiv 2506.07527, algorithm 1; TheRoadQaQ/ReLIFT at eb95454,"
        " relift/verl/verl/relift/trainer.py (sft_buffer_batch), core_algos.py (compute_sft_loss)"
    )
    APART: ClassVar[bool] = True

    kind: Literal["failures"] = "failures"
    """RL holds what the policy can do, and fine-tuning adds what it cannot."""

    def start(self, rows: Sequence[RehearsalRow]) -> RehearsalStream:
        """Begin with nothing collected; see `Rehearsal.start`."""
        places: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            places.setdefault(row.problem_id, []).append(place)
        return Collected(places)

    def token_loss(self, logprobs_BT: "Tensor", begun_BT: "Tensor") -> "Tensor":  # noqa: ARG002
        """Give `-log p`; see `Rehearsal.token_loss`."""
        return -logprobs_BT


class Collected(RehearsalStream):
    """The problems that wait, the latest first."""

    def __init__(self, places: Mapping[str, Sequence[int]]) -> None:
        self._places = places
        self.waiting: list[str] = []

    def observe(self, groups: "Sequence[Group]") -> None:
        """Collect the problems of a step that nothing solved, in the order of their groups."""
        failed = [
            group[0].problem_id
            for group in groups
            if group[0].problem_id in self._places
            and any(rollout.solved is not None for rollout in group)
            and not any(rollout.solved for rollout in group)
        ]
        self.waiting = failed + self.waiting

    def choose(self, count: int, *, seed: int, step: int, index: int) -> Sequence[int]:
        """Take problems, and a random row of each; see `RehearsalStream.choose`."""
        from posttrain.stage.seeds import shuffler

        if len(self.waiting) < count:
            return []
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        draw = shuffler(seed, "failures", step, index)
        return [draw.choice(self._places[name]) for name in taken]

    def state_dict(self) -> dict[str, Any]:
        """The problems that wait."""
        return {"waiting": list(self.waiting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.waiting = list(state["waiting"])
