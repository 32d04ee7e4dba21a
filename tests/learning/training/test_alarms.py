"""Every alarm sounds at its fault, stays silent beside it, and stops a run once and for all."""

import pytest

from posttrain.learning.training.alarms.registry import ALARMS
from posttrain.learning.training.config import refuse_blind, usual_alarms
from posttrain.learning.training.curve import Curve
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

# Two steps: what is at first is the mean of the first two values, judged are the last two.
FAULTS = {
    # 0.1 of 1.0 at first; one step alone, or a tenth exactly, is not below it.
    "entropy_collapse": ([0.9, 1.1, 0.09, 0.05], [0.9, 1.1, 0.09, 0.1]),
    # A quarter of 20, and four times 20.
    "length_shift": ([15.0, 25.0, 4.0, 4.9], [15.0, 25.0, 5.0, 80.0]),
    "flat_reward": ([0.5, 0.0, 0.0], [0.0, 0.0, 0.1]),
    "truncation": ([0.1, 0.51, 1.0], [1.0, 1.0, 0.5]),
    # Three times 0.004 at first is 0.012; three times 0.001 is below what is worth a word, 0.01.
    "logprob_gap": ([0.004, 0.004, 0.013, 0.013], [0.001, 0.001, 0.009, 0.01]),
    # The last two are 2.05 on average, and twice the least pair before them, 1.0, is 2.0.
    "loss_rise": ([3.0, 3.0, 0.9, 1.1, 2.0, 2.1], [3.0, 3.0, 0.9, 1.1, 1.9, 2.1]),
}


def alarm(kind, **more):
    return ALARMS.find(kind)(steps=2, **more)


@pytest.mark.parametrize("kind", ALARMS.parts)
def test_it_sounds_at_its_fault_alone(kind):
    wrong, right = FAULTS[kind]
    assert alarm(kind).sounds(wrong)
    assert alarm(kind).sounds(right) is None
    # Too early to tell, whatever the values are.
    assert alarm(kind).sounds(wrong[-1:]) is None
    assert alarm(kind).sounds([]) is None


def test_lengths_may_explode_as_well_as_collapse():
    told = alarm("length_shift").sounds([15.0, 25.0, 81.0, 90.0])
    assert told == "the length of answers exploded: from 20 tokens at first to 90"


def test_an_entropy_may_be_too_low_from_the_first_step_on():
    assert alarm("entropy_collapse", least=0.2).sounds([0.1, 0.1])
    assert alarm("entropy_collapse").sounds([0.1, 0.1]) is None


def test_a_loss_that_may_be_negative_has_no_ratio():
    assert alarm("loss_rise").sounds([-1.0, -1.0, 5.0, 5.0]) is None


def test_rl_warns_of_all_that_it_measures():
    assert set(usual_alarms()) == set(ALARMS.parts) - {"loss_rise"}
    assert {each.does for each in usual_alarms().values()} == {"warn"}


def curve(tmp_path, notes):
    def emit(event):
        if event["kind"] == "note":
            notes.append(event["line"])

    context = StageContext(seed=0, threads=1, device="cpu", scratch=tmp_path, emit=emit)
    return Curve(context)


def run(curve, limit, values, saved):
    for step, value in enumerate(values, start=1):
        curve.log(step, {"rl/truncation_rate": value})
        curve.heed({"limit": limit}, step, stage="rl", steps=9, save=saved.append)


def test_a_warning_is_said_when_it_begins_and_again_when_it_comes_back(tmp_path):
    notes, saved = [], []
    run(
        curve(tmp_path, notes),
        alarm("truncation"),
        [0.0, 0.9, 0.9, 0.9, 0.0, 0.9, 0.8],
        saved,
    )
    assert [note.split(":")[0] for note in notes] == ["rl.alarms.limit"] * 2
    assert notes[0].endswith("90% in the last")
    assert notes[1].endswith("80% in the last")
    assert not saved


def test_a_stop_keeps_what_there_is_and_holds_when_the_run_is_taken_up_again(tmp_path):
    notes, saved = [], []
    made, limit = curve(tmp_path, notes), alarm("truncation", does="stop")
    with pytest.raises(UserError, match=r"alarms.limit stopped the run after step 3 of 9, with a"):
        run(made, limit, [0.0, 0.9, 0.9, 0.9], saved)
    assert saved == [3]
    with pytest.raises(UserError, match="after step 3 of 9"):
        made.heed({"limit": limit}, 3, stage="rl", steps=9)
    assert saved == [3]
    # Lifted, and taken up again: nothing is said a second time.
    made.heed({"limit": alarm("truncation")}, 3, stage="rl", steps=9)
    assert not notes


def test_what_no_step_measures_is_not_watched():
    with pytest.raises(ValueError, match=r"alarms.own: no metric is called 'truncation_rate'"):
        refuse_blind({"own": alarm("truncation")}, ["loss"], where="alarms")
