"""What a policy remembers of its training: by hand, through its folder, and as limits."""

import pytest

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.record import (
    answer_lengths,
    answer_lengths_in,
    limit_for,
    remember_lengths,
    remember_parent,
    share_over,
    trained_from,
)
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rollouts.limits import refuse_cutting, tokens_for
from posttrain.stage.errors import UserError


@pytest.fixture
def policy():
    tokenizer = train_tokenizer(["1 + 1 ="], vocab_size=270)
    return build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0), tokenizer


@pytest.fixture
def taught(policy):
    model, _ = policy
    # 100 answers of `short`, of 1 to 100 tokens, and ten of `long`, of 91 to 100.
    lengths = [*range(1, 101), *range(91, 101)]
    remember_lengths(model, lengths, ["short"] * 100 + ["long"] * 10)
    return model


def test_quantiles_are_lengths_that_there_are(taught):
    lengths = answer_lengths(taught)
    assert list(lengths) == ["long", "short"]
    # The q-quantile of 1..100 lies at 1 + 99 q, and the next whole number up is taken.
    assert lengths["short"] == (11, 21, 31, 41, 51, 61, 71, 81, 91, 100, 100)
    assert lengths["long"] == (92, 93, 94, 95, 96, 97, 98, 99, 100, 100, 100)


@pytest.mark.parametrize(
    ("limit", "share"),
    # 50 of 100 are longer than 50; of more than 60 the record knows that it is 40.
    [(100, 0.0), (99, 0.01), (91, 0.01), (90, 0.1), (60, 0.4), (50, 0.5), (1, 0.9)],
)
def test_the_share_over_a_limit_is_at_most_what_it_is(taught, limit, share):
    found = share_over(answer_lengths(taught)["short"], limit)
    assert found == pytest.approx(share)
    assert found <= (100 - limit) / 100 + 1e-9


def test_a_limit_has_a_quarter_of_room_in_eights(taught, policy):
    # 100 tokens and a quarter are 125, in eights 128.
    assert limit_for(answer_lengths(taught)) == 128
    remember_lengths(policy[0], [8], ["one"])
    assert limit_for(answer_lengths(policy[0])) == 16


def test_it_goes_where_the_weights_go(taught, policy, tmp_path):
    remember_parent(taught, weights_digest(taught))
    first = weights_digest(taught)
    save_policy(taught, policy[1], tmp_path / "one")
    child = load_policy(tmp_path / "one").model
    assert trained_from(child) == (first,)
    child.lm_head.weight.data += 1
    remember_parent(child, weights_digest(child))
    second = weights_digest(child)
    save_policy(child, policy[1], tmp_path / "two")
    again = load_policy(tmp_path / "two").model
    assert trained_from(again) == (first, second)
    assert answer_lengths(again) == answer_lengths_in(tmp_path / "two") == answer_lengths(taught)
    assert answer_lengths_in(tmp_path / "none") == {}


@pytest.mark.parametrize("foreign", ["null", "[]", '{"answer_tokens": {"sums": [3]}}', '"x"'])
def test_what_others_keep_under_the_name_is_passed_over(tmp_path, foreign):
    (tmp_path / "config.json").write_text(f'{{"posttrain": {foreign}}}')
    assert answer_lengths_in(tmp_path) == {}


def test_of_several_policies_each_says_what_a_number_cuts(taught, policy):
    elsewhere = build_llama(policy[1], hidden=16, layers=1, heads=2, seed=1)
    notes = []
    assert tokens_for(60, elsewhere, taught, note=notes.append) == 60
    assert len(notes) == 2
    assert tokens_for("auto", elsewhere, taught, note=notes.append) == 512


def test_auto_says_why_and_a_number_says_what_it_cuts(taught):
    notes = []
    assert tokens_for("auto", taught, note=notes.append) == 128
    assert notes == [
        "max_tokens auto is 128, as 99% of the answers that the policy was taught have at most 100"
        " tokens, those of long"
    ]
    notes.clear()
    assert tokens_for(60, taught, note=notes.append) == 60
    assert [note[:60] for note in notes] == [
        "90% of the answers of long that the policy was taught are lo",
        "40% of the answers of short that the policy was taught are l",
    ]


def test_one_from_elsewhere_gets_many_and_is_never_refused(policy):
    notes = []
    assert tokens_for("auto", policy[0], note=notes.append) == 512
    assert "does not say" in notes[0]
    refuse_cutting(1, policy[0], most=0.0, where="probe")


def test_a_limit_that_cuts_most_answers_is_refused(taught):
    refuse_cutting(60, taught, most=0.9, where="probe")
    refuse_cutting("auto", taught, most=0.0, where="probe")
    with pytest.raises(UserError, match="90% of the answers of long .* max_tokens 60, .*most_cut"):
        refuse_cutting(60, taught, most=0.5, where="probe")
