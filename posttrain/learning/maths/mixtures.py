"""Clusters and mixtures of Gaussians, fitted without chance."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GaussianMixture:
    """A fitted mixture of ``K`` Gaussians in ``D`` dimensions."""

    weights_K: Tensor
    """Sum to 1."""
    means_KD: Tensor
    covariances_KDD: Tensor
    log_likelihood: float
    """Of all points that it was fitted to, in nats."""

    @property
    def aic(self) -> float:
        """Akaike's criterion: twice the free parameters less twice the log-likelihood."""
        number, size = self.means_KD.shape
        free = number * (size + size * (size + 1) / 2) + number - 1
        return 2 * free - 2 * self.log_likelihood

    def point(self, place: int, noise_D: Tensor) -> Tensor:
        """Bring standard normal noise to the mean and the covariance of a Gaussian.

        Args:
            place: Of the Gaussian.
            noise_D: As many numbers as there are dimensions, float64.

        Returns:
            The point, ``[D]``.

        """
        lower_DD = torch.linalg.cholesky(self.covariances_KDD[place])
        point_D: Tensor = self.means_KD[place] + lower_DD @ noise_D
        return point_D


def spread_out(points_ND: Tensor, number: int) -> Tensor:
    """Choose points that lie far apart: the one nearest the middle, then ever the farthest.

    Args:
        points_ND: At least one point.
        number: How many; fewer where fewer points differ.

    Returns:
        ``[K, D]``.

    """
    first = int((points_ND - points_ND.mean(dim=0)).norm(dim=1).argmin())
    chosen = [points_ND[first]]
    while len(chosen) < number:
        nearest_N = torch.cdist(points_ND, torch.stack(chosen)).amin(dim=1)
        if float(nearest_N.max()) < 1e-9:
            break
        chosen.append(points_ND[int(nearest_N.argmax())])
    return torch.stack(chosen)


def k_means(points_ND: Tensor, number: int, *, rounds: int = 25) -> Tensor:
    """Put points that lie near each other together.

    Args:
        points_ND: At least one point.
        number: Clusters; fewer where fewer points differ.
        rounds: Most rounds of assigning and averaging.

    Returns:
        The cluster of each point, ``[N]``.

    """
    centers_KD = spread_out(points_ND, number)
    own_N = torch.cdist(points_ND, centers_KD).argmin(dim=1)
    for _ in range(rounds):
        for cluster in range(len(centers_KD)):
            members_MD = points_ND[own_N == cluster]
            if len(members_MD):
                centers_KD[cluster] = members_MD.mean(dim=0)
        moved_N = torch.cdist(points_ND, centers_KD).argmin(dim=1)
        if torch.equal(moved_N, own_N):
            break
        own_N = moved_N
    return own_N


def fit_mixture(
    points_ND: Tensor, number: int, *, rounds: int = 100, ridge: float = 1e-6
) -> GaussianMixture:
    """Fit a mixture of Gaussians with full covariances by expectation and maximization.

    It begins from the clusters of `k_means`, and ends when the mean log-likelihood grows by less
    than 1e-3 nats a round.

    Args:
        points_ND: float64.
        number: Gaussians; fewer where fewer points differ.
        rounds: Most rounds.
        ridge: Added to the diagonal of every covariance.

    Returns:
        The mixture.

    """
    own_N = k_means(points_ND, number)
    belongs_NK = torch.nn.functional.one_hot(own_N).to(points_ND.dtype)
    belongs_NK = belongs_NK[:, belongs_NK.sum(dim=0) > 0]
    before = -math.inf
    for _ in range(rounds):
        weights_K, means_KD, covariances_KDD = _maximized(points_ND, belongs_NK, ridge)
        joint_NK = weights_K.log() + _log_densities(points_ND, means_KD, covariances_KDD)
        log_likelihoods_N = joint_NK.logsumexp(dim=1)
        belongs_NK = (joint_NK - log_likelihoods_N[:, None]).exp()
        mean = float(log_likelihoods_N.mean())
        if mean - before < 1e-3:
            break
        before = mean
    return GaussianMixture(weights_K, means_KD, covariances_KDD, float(log_likelihoods_N.sum()))


def best_mixture(points_ND: Tensor, least: int, most: int) -> GaussianMixture:
    """Fit mixtures of `least` to `most` Gaussians, and return that of the least `aic`.

    Args:
        points_ND: float64.
        least: Gaussians at least, where as many points differ.
        most: Gaussians at most.

    Returns:
        The mixture; of equals the smaller.

    """
    fitted = [fit_mixture(points_ND, number) for number in range(least, most + 1)]
    return min(fitted, key=lambda each: each.aic)


def _maximized(
    points_ND: Tensor, belongs_NK: Tensor, ridge: float
) -> tuple[Tensor, Tensor, Tensor]:
    mass_K = belongs_NK.sum(dim=0).clamp_min(1e-12)
    means_KD = (belongs_NK.T @ points_ND) / mass_K[:, None]
    off_KND = points_ND[None] - means_KD[:, None]
    covariances_KDD = torch.einsum("nk,knd,kne->kde", belongs_NK, off_KND, off_KND)
    covariances_KDD = covariances_KDD / mass_K[:, None, None]
    covariances_KDD = covariances_KDD + ridge * torch.eye(points_ND.shape[1]).to(points_ND)
    return mass_K / mass_K.sum(), means_KD, covariances_KDD


def _log_densities(points_ND: Tensor, means_KD: Tensor, covariances_KDD: Tensor) -> Tensor:
    """Log-density of each point under each Gaussian, ``[N, K]``."""
    lower_KDD = torch.linalg.cholesky(covariances_KDD)
    off_KDN = (points_ND[None] - means_KD[:, None]).transpose(1, 2)
    scaled_KDN = torch.linalg.solve_triangular(lower_KDD, off_KDN, upper=False)
    logdet_K = 2 * lower_KDD.diagonal(dim1=1, dim2=2).log().sum(dim=1)
    size = points_ND.shape[1]
    squared_KN = scaled_KDN.square().sum(dim=1)
    log_densities_KN: Tensor = -0.5 * (
        squared_KN + logdet_K[:, None] + size * math.log(2 * math.pi)
    )
    return log_densities_KN.T
