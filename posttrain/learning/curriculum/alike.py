"""Where problems lie: by difficulty and source, or by how their texts read, without a model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posttrain.learning.curriculum.base import ProblemPool
from posttrain.stage.seeds import stable_seed

if TYPE_CHECKING:
    from torch import Tensor

_DIMENSIONS = 64


def embedded(texts: Sequence[str]) -> "Tensor":
    """Place texts in a space that no training moves.

    Counts of character trigrams, digits taken as one sign, are hashed into dimensions with a sign
    of their own (feature hashing, arXiv 0902.2206), and scaled to length 1.

    Args:
        texts: At least one.

    Returns:
        ``[N, D]`` float64.

    """
    import torch

    counts_ND = torch.zeros(len(texts), _DIMENSIONS, dtype=torch.float64)
    known: dict[str, tuple[int, float]] = {}
    for row, text in enumerate(texts):
        marked = "".join("0" if each.isdigit() else each for each in f" {text} ")
        for at in range(len(marked) - 2):
            gram = marked[at : at + 3]
            if gram not in known:
                sign, place = divmod(
                    stable_seed(0, "trigram", gram) % (2 * _DIMENSIONS), _DIMENSIONS
                )
                known[gram] = place, 1.0 - 2.0 * sign
            place, sign_of = known[gram]
            counts_ND[row, place] += sign_of
    scaled_ND: Tensor = counts_ND / counts_ND.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return scaled_ND


def clusters_of(texts: Sequence[str], number: int) -> list[int]:
    """Put texts that read alike together.

    Args:
        texts: At least one.
        number: Clusters; fewer where fewer texts differ.

    Returns:
        The cluster of each text.

    """
    from posttrain.learning.maths.mixtures import k_means

    found: list[int] = k_means(embedded(texts), number).tolist()
    return found


def coordinates(pool: ProblemPool) -> "Tensor":
    """Place problems in a space: difficulty from 0 to 1, and a coordinate of each source.

    Args:
        pool: The problems.

    Returns:
        ``[P, 1 + S]`` float64; without coordinates of sources where there is one.

    """
    import torch

    hard_P = torch.tensor(pool.problems["difficulty"].to_list(), dtype=torch.float64)
    spread = float(hard_P.max() - hard_P.min()) or 1.0
    hard_P1 = ((hard_P - hard_P.min()) / spread)[:, None]
    sources = pool.problems["source"].to_list()
    names = {name: place for place, name in enumerate(sorted(set(sources)))}
    if len(names) == 1:
        return hard_P1
    own_P = torch.tensor([names[name] for name in sources])
    return torch.cat([hard_P1, torch.nn.functional.one_hot(own_P).double()], dim=1)


def nearest_latest(points_PD: "Tensor", problem: int, age_P: "Tensor") -> int | None:
    """Find the problem that was practiced on nearest to one.

    Args:
        points_PD: Where the problems lie, as `coordinates` places them.
        problem: The one.
        age_P: Number of the last practice on each; below 0 where there was none.

    Returns:
        Its place, which may be that of the one itself; of equally near ones that of the last
        practice. None where nothing was practiced on.

    """
    known_N = (age_P >= 0).nonzero().flatten()
    if not len(known_N):
        return None
    away_N = (points_PD[known_N] - points_PD[problem]).norm(dim=1)
    alike_N = known_N[away_N <= float(away_N.min()) + 1e-9]
    return int(alike_N[age_P[alike_N].argmax()])
