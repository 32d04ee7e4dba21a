import math

import pytest
import torch

from posttrain.learning.maths.load_balance import balance_share, expert_counts

LOG3 = math.log(3.0)
# Two experts: probabilities (3/4, 1/4) twice, and (1/4, 3/4).
LOGITS = torch.tensor([[LOG3, 0.0], [LOG3, 0.0], [0.0, LOG3]])


def test_the_loss_is_experts_times_share_times_mean_probability():
    counts = expert_counts(LOGITS, top_k=1)
    assert counts.tolist() == [2, 1]
    # f = (2/3, 1/3), P = (7/12, 5/12): 2 (14/36 + 5/36) = 38/36.
    assert float(balance_share(LOGITS, counts, num_tokens=3)) == pytest.approx(38 / 36)


def test_it_is_the_number_of_chosen_experts_where_all_get_the_same_and_all_where_one_gets_all():
    even = torch.zeros(4, 4)
    assert float(balance_share(even, torch.full((4,), 2.0), num_tokens=4)) == pytest.approx(2.0)
    one = torch.tensor([[90.0, 0.0, 0.0, 0.0]])
    counts = expert_counts(one, top_k=1)
    assert float(balance_share(one, counts, num_tokens=1)) == pytest.approx(4.0)


def test_parts_add_up_to_the_batch_and_only_probabilities_have_a_gradient():
    logits = LOGITS.clone().requires_grad_()
    counts = expert_counts(logits, top_k=1)
    shares = [balance_share(part, counts, num_tokens=3) for part in logits.split([1, 2])]
    assert float(sum(shares)) == pytest.approx(38 / 36)
    (gradient,) = torch.autograd.grad(sum(shares), logits)
    # d/dz of 2/3 (f_0 p_0 + f_1 p_1) = 2/3 (f_0 - f_1) p_0 p_1 = 2/3 x 1/3 x 3/16.
    assert gradient[:, 0].tolist() == pytest.approx([1 / 24] * 3)
