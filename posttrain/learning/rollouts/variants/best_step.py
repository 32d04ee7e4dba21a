"""Steps of the reference, each the best of several by what the graded policy makes of them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import DecodingBench, Variant, compared

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem
    from posttrain.learning.rollouts.engines.base import RolloutEngine


class BestStep(Variant):
    """Lets the first policy of the evaluation answer, its steps chosen by the graded one.

    At each step, a line, the first policy proposes several, and that one is taken which the graded
    policy's implicit reward values highest: the mean over its tokens of log p - log p_first. So
    what was trained is no policy but a value of steps. `pass_at_1` is how often such answers are
    right, `change` that less how often the graded policy's own answers are, `length` their tokens.
    """

    SOURCE = (
        "Zhai et al., 'Enhancing Decision-Making for LLM Agents via Step-Level Q-Value Models',"
        " arXiv:2409.09345; George-Chia/llm-agents-with-q at 2b1b8e7, hotpot/node.py"
        " (get_child_q_value_list, beam_search)"
    )

    kind: Literal["best_step"] = "best_step"
    candidates: int = Field(default=5, ge=1)
    """Steps that are proposed each time."""

    def drawn_by(self, bench: DecodingBench) -> "RolloutEngine":
        """Let the reference propose and the policy choose; see `Variant.drawn_by`."""
        from posttrain.learning.rollouts.engines.chosen_steps import ChosenSteps
        from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine

        actor = bench.reference
        engine = TorchRolloutEngine(actor.model, actor.tokenizer, batch_size=bench.batch_size)
        return ChosenSteps(engine, actor, bench.policy, candidates=self.candidates)

    def measured(
        self,
        drawn: DrawnSamples,
        plain: DrawnSamples,
        problems: Sequence["Problem"],  # noqa: ARG002 - see `Variant.measured`
    ) -> Mapping[str, "Tensor"]:
        """Compare with the policy's own answers; see `Variant.measured`."""
        return compared(drawn, plain)
