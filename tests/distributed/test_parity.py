"""Two processes learn what one does."""

from transformers import AutoModelForCausalLM

TOLERANCE = 1e-4


def gap(one, two):
    """The largest difference of two curves, which must have the same steps and metrics."""
    assert one.keys() == two.keys()
    return max(abs(one[key] - two[key]) for key in one)


def test_sft_in_two_processes_has_the_curve_of_one(stages, tmp_path):
    one = stages.run("sft", tmp_path / "one", processes=1)
    two = stages.run("sft", tmp_path / "two", processes=2)
    assert (one.outcome.error, two.outcome.error) == (None, None)
    assert gap(one.curve(), two.curve()) < TOLERANCE
    first, last = (one.curve()[step, "sft/loss"] for step in (1, max(s for s, _ in one.curve())))
    assert last < first - 0.2  # it learnt something, so equal curves say something
    names = {name for name in one.digests() if not name.endswith(".log")}
    assert {name for name in two.digests() if not name.endswith(".log")} == names
    weights = [AutoModelForCausalLM.from_pretrained(m.folder / "policy") for m in (one, two)]
    for mine, other in zip(*(model.parameters() for model in weights), strict=True):
        assert (mine - other).abs().max() < TOLERANCE
