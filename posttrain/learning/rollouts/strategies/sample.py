"""Several samples, of which one that is right suffices."""

from typing import TYPE_CHECKING, Literal

from posttrain.learning.rollouts.strategies.base import DrawnSamples, Strategy

if TYPE_CHECKING:
    from torch import Tensor


class SampleStrategy(Strategy):
    """Takes any right one of k samples: pass@k, what a perfect choice would reach."""

    SOURCE = "Chen et al., 'Evaluating Large Language Models Trained on Code', arXiv:2107.03374"

    kind: Literal["sample"] = "sample"

    def solved(self, samples: DrawnSamples, k: int) -> "Tensor":
        """Compute ``1 - C(N - c, k) / C(N, k)`` of c right samples; see `Strategy.solved`."""
        import torch

        from posttrain.learning.maths.pass_at_k import pass_at_k

        num_correct_P = samples.correct_PN.sum(-1)
        num_samples_P = torch.full_like(num_correct_P, samples.num_samples)
        return pass_at_k(num_correct_P, num_samples_P, k=k)
