import pytest

from posttrain.learning.training.lengths import limit_of_rows
from posttrain.stage.errors import UserError


@pytest.mark.parametrize(
    ("lengths", "room", "tokens", "why"),
    [
        # 1.25 x 100 = 125 is under the least.
        ([100] * 10, None, 512, "is 512, the least, as 99% of the rows have at most 100 tokens"),
        # 1.25 x 655 = 818.75, the next eight is 824.
        ([655] * 10, None, 824, "is 824, as 99% of the rows have at most 655 tokens"),
        # 410 x 1.25 = 512.5: just over the least.
        ([410], None, 520, "is 520, as"),
        ([9000], None, 4096, "is 4096, the most, as"),
        ([655] * 10, 700, 700, "is 700, the context of the model, as"),
        ([100], 64, 64, "is 64, the context of the model, as"),
        ([655], 4096, 824, "is 824, as"),
    ],
)
def test_auto_goes_by_the_rows(lengths, room, tokens, why):
    found = limit_of_rows("auto", lengths, ["mine"] * len(lengths), room=room)
    assert found.tokens == tokens
    assert why in found.why
    assert found.why.endswith(", those of mine")


def test_the_source_with_the_longest_rows_decides_however_few_it_has():
    lengths, sources = [50] * 1000 + [655] * 3, ["short"] * 1000 + ["long"] * 3
    found = limit_of_rows("auto", lengths, sources)
    assert (found.tokens, found.needed) == (824, 655)
    assert found.why.endswith("those of long")


def test_one_row_in_a_thousand_decides_nothing():
    # The 99% quantile of 1,000 lengths is the 991st.
    assert limit_of_rows("auto", [*range(1, 991), *[991] * 9, 3000], ()).needed == 991


def test_a_number_is_taken_as_it_is_and_nothing_is_told():
    found = limit_of_rows(100, [655], ["mine"], room=64)
    assert (found.tokens, found.why, found.metrics("sft")) == (100, "", {})


def test_figures_say_what_was_chosen():
    found = limit_of_rows("auto", [655], ["mine"])
    assert found.metrics("sft") == {"sft/max_length": 824.0, "sft/row_tokens": 655.0}


def test_a_context_that_is_too_short_is_no_matter_of_the_limit():
    found = limit_of_rows("auto", [60, 700, 800], ["mine"] * 3, room=128)
    found.refuse_context([60, 700, 800], most=0.7, what="rows", where="sft")
    with pytest.raises(
        UserError, match=r"^sft: 67% of the rows .* 128 tokens of the model's context, .* has 800;"
    ):
        found.refuse_context([60, 700, 800], most=0.5, what="rows", where="sft")
    roomy = limit_of_rows("auto", [60, 9000], ["mine"] * 2)
    roomy.refuse_context([60, 9000, 9000], most=0.5, what="rows", where="sft")
