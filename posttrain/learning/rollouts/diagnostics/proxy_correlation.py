"""How far a reward model ranks answers as the verifier does."""

from typing import Literal

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic, Seen
from posttrain.learning.rollouts.diagnostics.rewards import rewards_of
from posttrain.learning.rollouts.diagnostics.samples import reference_samples, samples_by_policy
from posttrain.stage.errors import UserError, nearest


class ProxyCorrelation(Diagnostic):
    """Holds the rewards of the reference's samples against whether they are right.

    `correlation` is Spearman's rank correlation of the two, over all samples of all problems. Where
    a share p of many is right and no two rewards are equal, it is at most about √(3 p (1 - p)).
    """

    SOURCE = (
        "Laidlaw, Singhal, Dragan, 'Correlated Proxies: A New Definition and Improved Mitigation"
        " for Reward Hacking', arXiv:2403.03185, section 4: a proxy correlates with the true reward"
        " under the reference policy; there it is Pearson's, which hangs on the proxy's scale"
    )
    NEEDS = frozenset({"reward_models", "reports", "completions"})

    kind: Literal["proxy_correlation"] = "proxy_correlation"
    proxy: str = "reward"
    """Name of the reward model, as it is connected."""

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Score what the reference wrote; see `Diagnostic.diagnose`."""
        from posttrain.learning.maths.ranks import rank_correlation

        if self.proxy not in seen.reward_models:
            hint = nearest(self.proxy, seen.reward_models) or "; connect reward_models"
            raise UserError(f"diagnose: there is no reward model '{self.proxy}'{hint}")
        samples = reference_samples(seen, samples_by_policy(seen))
        rewards_PN = rewards_of(seen.reward_models[self.proxy], samples, seen.device)
        found = rank_correlation(rewards_PN.flatten(), samples.correct_PN.flatten())
        # None where all are right, or none is.
        return Diagnosis({} if found is None else {seen.reference: {"correlation": found}})
