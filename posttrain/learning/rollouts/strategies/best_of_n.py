"""The sample that a reward model likes best."""

from math import comb
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rollouts.strategies.base import DrawnSamples, Strategy

if TYPE_CHECKING:
    from torch import Tensor


class BestOfNStrategy(Strategy):
    """Takes the best-rewarded of k samples, over all k-subsets of those drawn.

    Source: best-of-n as WebGPT's, arXiv 2112.09332; the mean over all subsets as that of pass@k,
    arXiv 2107.03374.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset({"reward_model"})

    kind: Literal["best_of_n"] = "best_of_n"

    def solved(self, samples: DrawnSamples, k: int) -> "Tensor":
        """Weigh each sample by the subsets whose best it is.

        With the samples by falling reward, the i-th (from 0) is the best of C(N-1-i, k-1) subsets
        out of C(N, k). Samples of equal reward share their places evenly. k = 1 is the mean; k = N
        is the best of all.

        Args:
            samples: Samples of each problem, with their rewards.
            k: Samples of which the best is taken.

        Returns:
            As `Strategy.solved`: for each problem, how often the answer taken is right.

        """
        import torch

        assert samples.rewards_PN is not None
        rewards_PN, num_samples = samples.rewards_PN, samples.num_samples
        weights_N = torch.tensor(
            [comb(num_samples - 1 - i, k - 1) / comb(num_samples, k) for i in range(num_samples)],
            dtype=torch.float64,
        )
        # Of a sample with `above` better ones and `equal` like it (itself included), the weight is
        # the mean of the weights of the places above .. above + equal - 1.
        cumulative = torch.cat([weights_N.new_zeros(1), weights_N.cumsum(0)])
        above_PN = (rewards_PN[:, None, :] > rewards_PN[:, :, None]).sum(-1)
        equal_PN = (rewards_PN[:, None, :] == rewards_PN[:, :, None]).sum(-1)
        share_PN = (cumulative[above_PN + equal_PN] - cumulative[above_PN]) / equal_PN
        return (share_PN * samples.correct_PN).sum(-1)
