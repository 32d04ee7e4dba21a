"""A run through Prefect succeeds only if every stage did, whatever Prefect makes of its tasks."""

import pytest

from posttrain.pipeline.execution.failures import StageFailed
from posttrain.pipeline.execution.prefect import _Ends


def failed(stage):
    return StageFailed(stage, "it broke", retryable=False, refused=False)


def test_all_that_is_done_is_a_success():
    _Ends(done={"a", "b"}).conclude(["a", "b"])


def test_a_stage_that_prefect_lost_is_none():
    with pytest.raises(RuntimeError, match="Prefect did not run b, c"):
        _Ends(done={"a"}).conclude(["a", "b", "c"])


def test_an_error_that_is_no_failure_of_a_stage_comes_first():
    gone = OSError("the ledger is gone")
    with pytest.raises(OSError, match="the ledger is gone"):
        _Ends({"a": failed("a"), "b": gone}).conclude(["a", "b"])


def test_failures_are_told_together():
    with pytest.raises(StageFailed) as error:
        _Ends({"b": failed("b"), "a": failed("a")}, {"c"}).conclude(["a", "b", "c", "d"])
    assert str(error.value) == "stage 'a' failed: it broke\nstage 'b' failed: it broke"


def test_of_several_that_refused_their_input_each_line_names_its_stage():
    path = StageFailed("rl", "a.parquet is empty", retryable=False, refused=True)
    named = StageFailed("sft", "stage 'sft' has no rows", retryable=False, refused=True)
    with pytest.raises(StageFailed) as error:
        _Ends({"rl": path, "sft": named}).conclude(["rl", "sft"])
    assert str(error.value) == "stage 'rl': a.parquet is empty\nstage 'sft' has no rows"
    assert error.value.refused
