"""What several samples of one problem can do: pass@k and the majority vote."""

import torch
from torch import Tensor

from posttrain.learning.maths.segments import dense_ids, segment_size


def pass_at_k(num_correct_N: Tensor, num_samples_N: Tensor, *, k: int) -> Tensor:
    """Estimate the chance that any of k samples is right: ``1 - C(n - c, k) / C(n, k)``.

    Unbiased over the n samples that were drawn, where ``1 - (1 - c/n)^k`` is not. Computed as a
    product, so no binomial overflows. Source: Chen et al., arXiv 2107.03374.

    Args:
        num_correct_N: Right samples c of each problem.
        num_samples_N: Samples n of each problem, at least k.
        k: How many samples may be tried.

    Returns:
        Probabilities ``[N]``, float64. c = 0 gives exactly 0; fewer than k wrong samples give
        exactly 1.

    Raises:
        ValueError: k is below 1, or above the samples of a problem.

    """
    if k < 1 or bool((num_samples_N < k).any()):
        raise ValueError(f"k must lie between 1 and the number of samples; k is {k}")
    step_k = torch.arange(k, device=num_samples_N.device, dtype=torch.float64)
    samples_N1 = num_samples_N.double().unsqueeze(-1)
    wrong_N1 = samples_N1 - num_correct_N.double().unsqueeze(-1)
    return 1 - ((wrong_N1 - step_k).clamp(min=0) / (samples_N1 - step_k)).prod(-1)


def majority_vote(answer_B: Tensor, correct_B: Tensor, group_B: Tensor) -> Tensor:
    """Grade the commonest answer of each problem (self-consistency, arXiv 2203.11171).

    Args:
        answer_B: Integer ids of the answers: equal ids, equal answers.
        correct_B: True where that answer is correct. Verdicts on one answer may differ, where a
            judge or a check of the form gives them: it is then right by the share that says so.
        group_B: Integer ids of the problems.

    Returns:
        1 or 0 for each problem ``[P]``, float64, by ascending id, if each answer has one verdict.
        Where several answers are equally common, the mean over a random choice of them; so the
        result depends on no order.

    """
    problem_B, num_problems = dense_ids(group_B)
    pairs_A2, pair_B = torch.unique(
        torch.stack([problem_B, answer_B], -1), dim=0, return_inverse=True
    )
    problem_A = pairs_A2[:, 0]
    votes_A = segment_size(pair_B, len(pairs_A2))
    right_A = torch.zeros(len(pairs_A2), dtype=torch.float64, device=problem_A.device)
    correct_A = right_A.index_add(0, pair_B, correct_B.double()) / votes_A

    most_P = votes_A.new_zeros(num_problems).scatter_reduce(0, problem_A, votes_A, reduce="amax")
    winner_A = (votes_A == most_P[problem_A]).double()
    wins_P = winner_A.new_zeros(num_problems).index_add(0, problem_A, winner_A * correct_A)
    return wins_P / winner_A.new_zeros(num_problems).index_add(0, problem_A, winner_A)
