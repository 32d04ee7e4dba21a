import math

import pytest
import torch

from posttrain.data.rows import RowFacts, TokenRow, TokenTable
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.training.row_losses.advantage_leftover import AdvantageLeftover
from posttrain.learning.training.row_losses.base import LearnedTokens
from posttrain.learning.training.row_losses.cross_entropy import CrossEntropy
from posttrain.learning.training.row_losses.f_divergence import FDivergence
from posttrain.learning.training.row_losses.inverse_soft_q import InverseSoftQ
from posttrain.learning.training.row_losses.negative_aware import NegativeAware
from posttrain.learning.training.row_losses.unlikelihood import Unlikelihood
from posttrain.learning.training.token_batches import loss_by


def tokens(
    logprobs,
    *,
    positives=None,
    rates=None,
    reference=None,
    normalizers=None,
    ends=None,
    advantages=None,
):
    logprobs_N = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
    count = len(logprobs)
    return LearnedTokens(
        logprobs_N=logprobs_N,
        positives_N=torch.tensor(positives or [True] * count),
        solve_rates_N=torch.tensor(rates or [1.0] * count, dtype=torch.float64),
        ends_N=torch.tensor(ends or [False] * (count - 1) + [True]),
        reference_N=torch.tensor(reference or [0.0] * count, dtype=torch.float64),
        advantages_N=torch.tensor(advantages or [0.0] * count, dtype=torch.float64),
        normalizers_N=normalizers,
    )


def gradients(part, given):
    part.losses(given).sum().backward()
    return given.logprobs_N.grad.tolist()


def test_a_leftover_advantage_weighs_the_whole_row_by_its_ratio():
    """Rows of two tokens, 0.3 likelier in all, and of one, 2 likelier; then one without any."""
    given = {
        "reference": [-0.6, -1.2, -2.5, -1.0],
        "ends": [False, True, True, True],
        "advantages": [0.5, 0.5, 0.25, -0.5],
    }
    whole = 0.5 * math.exp(0.3)
    # exp(2) is held at 1.9.
    expected = [-whole, -whole, -0.25 * 1.9, 0.0]
    logprobs = [-0.5, -1.0, -0.5, -1.0]
    assert gradients(AdvantageLeftover(), tokens(logprobs, **given)) == pytest.approx(expected)
    by_token = gradients(AdvantageLeftover(ratio="token"), tokens(logprobs, **given))
    assert by_token[:2] == pytest.approx([-0.5 * math.exp(0.1), -0.5 * math.exp(0.2)])
    alone = gradients(AdvantageLeftover(ratio="none"), tokens(logprobs, **given))
    assert alone == pytest.approx([-0.5, -0.5, -0.25, 0.0])


def test_cross_entropy_is_the_negated_log_probability():
    assert CrossEntropy().losses(tokens([-0.5, -2.0])).tolist() == [0.5, 2.0]


def _jensen_shannon(one, other):
    middle = [(p + q) / 2 for p, q in zip(one, other, strict=True)]
    return (
        sum(
            sum(p * math.log(p / m) for p, m in zip(side, middle, strict=True) if p)
            for side in (one, other)
        )
        / 2
    )


DIVERGENCES = {
    "cross-entropy": (
        {"alpha": 0.0},
        lambda one, other: sum(p * math.log(p / q) for p, q in zip(one, other, strict=True) if p),
    ),
    "squared Hellinger": (
        {"alpha": 0.5},
        lambda one, other: sum(
            (math.sqrt(p) - math.sqrt(q)) ** 2 for p, q in zip(one, other, strict=True)
        ),
    ),
    "total variation": (
        {"alpha": 1.0},
        lambda one, other: sum(abs(p - q) for p, q in zip(one, other, strict=True)) / 2,
    ),
    "chi-squared": (
        {"alpha": -1.0},
        lambda one, other: sum((p - q) ** 2 / q for p, q in zip(one, other, strict=True)),
    ),
    "Jensen-Shannon": ({"divergence": "jensen_shannon"}, _jensen_shannon),
}


@pytest.mark.parametrize("name", DIVERGENCES)
def test_an_f_divergence_is_that_of_the_whole_distributions(name):
    said, divergence = DIVERGENCES[name]
    policies = ([0.2, 0.5, 0.3], [0.7, 0.1, 0.2])
    given = tokens([math.log(each[0]) for each in policies])
    found = FDivergence(**said).losses(given).tolist()
    assert found == pytest.approx([divergence([1.0, 0.0, 0.0], each) for each in policies])
    # Nothing is left to learn where the policy is sure of the token.
    assert FDivergence(**said).losses(tokens([0.0])).tolist() == pytest.approx([0.0], abs=1e-12)


def test_an_f_divergence_weighs_the_gradient_of_the_log_probability():
    p = 0.25
    expected = {0.0: 1.0, 0.5: 0.5, 1.0: 0.25, 2.0: 0.0625, -1.0: 4.0}
    for alpha, weight in expected.items():
        assert gradients(FDivergence(alpha=alpha), tokens([math.log(p)])) == pytest.approx(
            [-weight]
        )
    shannon = FDivergence(divergence="jensen_shannon")
    # p / 2 log((1 + p) / p) = 0.125 log 5.
    assert gradients(shannon, tokens([math.log(p)])) == pytest.approx([-0.125 * math.log(5)])


def test_an_f_divergence_stays_finite_where_the_policy_forbids_the_token():
    given = tokens([-200.0])
    assert math.isfinite(FDivergence(alpha=-1.0).losses(given)[0].item())
    assert gradients(FDivergence(alpha=-1.0), given) == pytest.approx([-math.exp(20)])


def test_unlikelihood_pushes_the_tokens_of_wrong_rows_away():
    given = tokens([math.log(0.25)] * 2, positives=[True, False])
    found = Unlikelihood(coefficient=2.0).losses(given).tolist()
    assert found == pytest.approx([math.log(4), 2 * math.log(4 / 3)])
    # d/dlog p of -log(1 - p) is p / (1 - p) = 1/3, twice.
    assert gradients(Unlikelihood(coefficient=2.0), given) == pytest.approx([-1.0, 2 / 3])


def test_unlikelihood_stays_finite_where_the_policy_is_certain():
    given = tokens([0.0], positives=[False])
    assert math.isfinite(Unlikelihood().losses(given)[0].item())
    # It is pushed away the harder, not let go.
    assert 1e5 < gradients(Unlikelihood(), given)[0] < 1e7


@pytest.mark.parametrize(
    ("weight", "right", "wrong"),
    [
        # At ratio 1 the gradient is that of Dr.GRPO, A = r - mean, and of GRPO, A / deviation.
        ("failures", 1 - 0.25, -0.25),
        ("deviation", math.sqrt(3), -1 / math.sqrt(3)),
        ("none", 1.0, -1 / 3),
    ],
)
def test_negative_aware_tuning_on_policy_has_the_gradient_of_group_advantages(weight, right, wrong):
    given = tokens([-1.0, -2.0], positives=[True, False], rates=[0.25] * 2, reference=[-1.0, -2.0])
    found = gradients(NegativeAware(prompt_weight=weight), given)
    assert found == pytest.approx([-right, -wrong])


def test_the_floor_of_negative_aware_tuning_holds_the_value_and_lets_the_gradient_pass():
    # r 0.5, R 3: (1 - 1.5) / 0.5 = -1, held at 1; the gradient of -x at x = 1 is r R / (1 - r) = 3.
    given = tokens([math.log(3)], positives=[False], rates=[0.5])
    part = NegativeAware(prompt_weight="none")
    assert part.losses(given)[0].item() == pytest.approx(0.0)
    assert gradients(part, given) == pytest.approx([3.0])
    # Below the floor's reach: R 0.5 gives (1 - 0.25) / 0.5 = 1.5.
    assert part.losses(tokens([math.log(0.5)], positives=[False], rates=[0.5]))[0].item() == (
        pytest.approx(-math.log(1.5))
    )


def soft(part, *, q=(1.0, 0.5), v=(2.0, 1.5)):
    """Two tokens of one row with these soft values: log p is Q - V."""
    logprobs = [each - value for each, value in zip(q, v, strict=True)]
    given = tokens(logprobs, normalizers=torch.tensor(v, dtype=torch.float64))
    return part.losses(given).tolist()


def test_inverse_soft_q_learning_without_its_square_is_cross_entropy():
    assert soft(InverseSoftQ(coefficient=0.0)) == pytest.approx([1.0, 1.0])


def test_inverse_soft_q_learning_adds_the_square_of_the_implied_reward():
    # Rewards: 1 - 1.5 = -0.5, and 0.5 - 0 at the end.
    assert soft(InverseSoftQ(coefficient=0.4)) == pytest.approx([1.1, 1.1])
    # With gamma 0.5: 1 - 0.75 = 0.25.
    assert soft(InverseSoftQ(coefficient=0.4, gamma=0.5))[0] == pytest.approx(1.0 + 0.025)


@pytest.mark.parametrize(
    ("divergence", "phi"),
    [
        ("hellinger", lambda r: r / (1 + r)),
        ("jensen_shannon", lambda r: math.log(2 - math.exp(-r))),
        ("reverse_kl", lambda r: -math.exp(-r - 1)),
    ],
)
def test_other_divergences_have_the_concave_function_of_iq_learns_table(divergence, phi):
    found = soft(InverseSoftQ(divergence=divergence))
    # V - V' - phi(r): 2 - 1.5 - phi(-0.5), and 1.5 - phi(0.5).
    assert found == pytest.approx([0.5 - phi(-0.5), 1.5 - phi(0.5)])


@pytest.fixture(scope="module")
def model():
    tokenizer = train_tokenizer(["1 + 1 = 2", "2 + 2 = 4"], vocab_size=280)
    return build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0)


ROWS = [TokenRow((1, 5, 9, 7), 2), TokenRow((1, 8, 3), 1), TokenRow((2, 4, 6, 8, 9), 3)]


def gradient_of(model, part, rows, facts=None, *, packed=False):
    batch = TokenTable(rows, pad=0, packed=packed, facts=facts).batch(range(len(rows)))
    model.zero_grad()
    loss, _ = loss_by(part)(model, batch, batch.num_units)
    loss.backward()
    return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])


def test_a_row_of_weight_two_is_as_if_it_stood_there_twice(model):
    twice = gradient_of(model, CrossEntropy(), [*ROWS, ROWS[0]])
    facts = RowFacts([2.0, 1.0, 1.0], [True] * 3, [1.0] * 3)
    weighted = gradient_of(model, CrossEntropy(), ROWS, facts)
    torch.testing.assert_close(weighted, twice, rtol=1e-4, atol=1e-7)
    alike = gradient_of(model, CrossEntropy(), ROWS)
    assert not torch.allclose(weighted, alike, rtol=1e-2)


@pytest.mark.parametrize(
    "part", [Unlikelihood(), NegativeAware(), InverseSoftQ()], ids=lambda each: each.kind
)
def test_packed_rows_teach_what_padded_ones_do(model, part):
    references = [torch.full((len(row.ids) - row.start,), -3.0) for row in ROWS]
    facts = RowFacts([1.0, 0.5, 2.0], [True, False, True], [0.5, 0.5, 0.7], references)
    padded = gradient_of(model, part, ROWS, facts)
    packed = gradient_of(model, part, ROWS, facts, packed=True)
    assert padded.abs().max() > 0
    torch.testing.assert_close(packed, padded, rtol=1e-3, atol=1e-6)


def test_facts_are_in_the_digest_of_the_rows():
    digests = {
        TokenTable(ROWS, pad=0, facts=facts).digest
        for facts in (
            None,
            RowFacts([1.0] * 3, [True] * 3, [1.0] * 3),
            RowFacts([1.0, 1.0, 2.0], [True] * 3, [1.0] * 3),
            RowFacts([1.0] * 3, [True, True, False], [1.0] * 3),
        )
    }
    assert len(digests) == 4
