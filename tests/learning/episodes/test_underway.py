"""Objects of libraries that are kept while an episode is under way."""

from posttrain.learning.episodes.worlds.underway import Underway


def test_who_takes_an_object_has_it_alone():
    kept = Underway(2)
    kept.keep("p", "a", 1)
    assert kept.take("p", "") is None
    assert kept.take("q", "a") is None
    assert (kept.take("p", "a"), kept.take("p", "a")) == (1, None)


def test_the_latest_are_kept_and_no_more():
    kept = Underway(2)
    for said in ("a", "b", "a", "c"):
        kept.keep("p", said, said)
    assert len(kept) == 2
    assert [kept.take("p", said) for said in "abc"] == ["a", None, "c"]
