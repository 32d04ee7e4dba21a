"""Second tries: what failed is tried again behind guidance, which stands in no sample."""

import json
from dataclasses import replace
from random import Random

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.guidance.base import FailedTry
from posttrain.learning.episodes.guidance.feedback import Feedback
from posttrain.learning.episodes.guidance.plan import Plan
from posttrain.learning.episodes.players.base import PlayBench
from posttrain.learning.episodes.sampling import EpisodeSamplingConfig, PlayingEngine
from posttrain.learning.episodes.second_tries import second_tries
from posttrain.learning.episodes.worlds.booking import Booking
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.scoring import make_prompts, sample_and_score
from posttrain.stage.errors import UserError
from tests.learning.episodes.conftest import small_tokenizer
from tests.scripted import FakeEngine

WISH = {"day": "fri", "time": "7pm"}
PARAMS = SamplingParams(max_tokens=20, num_samples=2, seed=7)


def booking(tape, said=("time",)):
    facts = {"wish": WISH, "said": [*said], "cost": 0.25, "noise": 0.0, "left": 5, "tape": tape}
    facts["user"] = "script"
    metadata = json.dumps({"booking": facts})
    prompt = f"book day time: time 7pm ({tape})"
    return Problem("booking", prompt, str(tape), 1, "played", metadata)


PROBLEMS = [booking(1), booking(2)]


@pytest.fixture
def tried():
    """First and second tries of a policy that asks for the day where it is told to, else errs.

    The second attempt at the first problem asks by itself.
    """
    tokenizer = small_tokenizer()

    def script(prompt, index, seed):  # noqa: ARG001 - what an engine is asked
        read = tokenizer.decode(prompt.token_ids)
        turn = int(prompt.id.partition("@")[2] or 0)
        knows = "plan: day?" in read or (index == 1 and "(1)" in read)
        return "book fri 7pm" if turn or not knows else "day?"

    def run(guidance, problems=PROBLEMS, environment=None):
        config = EpisodeSamplingConfig(environment=environment or Booking(), most_turns=5)
        drawing = FakeEngine(tokenizer, script)
        known = {problem.id: problem for problem in problems}
        engine = PlayingEngine(drawing, config, known, config.seated(PlayBench(drawing, tokenizer)))
        prompts, verify = make_prompts(tokenizer, problems), VerifierCache()
        first = sample_and_score(engine, problems, prompts, PARAMS, verify=verify)
        return first, second_tries(engine, tokenizer, first, guidance, PARAMS, verify=verify)

    return run


def test_what_failed_is_tried_once_more_by_the_plan_and_told_of_the_plain_problem(tried):
    first, second = tried([Plan()])
    # Who books what nobody has said earns nothing; one of four asked first.
    assert [made.score.correct for made in first] == [False, True, False, False]
    assert [made.problem for made in second] == [PROBLEMS[0], PROBLEMS[1], PROBLEMS[1]]
    assert [made.score.correct for made in second] == [True] * 3
    for made in second:
        row = made.completion("policy")
        assert [(turn.role, turn.content) for turn in row.between] == [
            ("assistant", "day?"),
            ("user", "day fri"),
        ]
        assert (row.text, row.problem.context) == ("book fri 7pm", "")


def test_a_second_try_is_the_same_in_company_and_alone(tried):
    _, together = tried([Plan()])
    _, alone = tried([Plan()], problems=PROBLEMS[1:])
    assert alone == together[1:]


def test_several_kinds_of_guidance_are_told_one_below_the_other(tried, monkeypatch):
    told = []
    monkeypatch.setattr(
        "posttrain.learning.episodes.second_tries.make_prompts",
        lambda tokenizer, problems: (
            told.extend(json.loads(each.context)["after"] for each in problems)
            or make_prompts(tokenizer, problems)
        ),
    )
    tried([Plan(), Feedback()])
    assert told == ["plan: day?\nfailed: book fri 7pm"] * 3


def test_a_plan_says_what_is_missing_and_never_the_answer():
    world, draw = Booking(), Random(0)
    assert world.plan(booking(1), draw, moves=5) == "plan: day?"
    assert world.plan(booking(1, said=()), draw, moves=5) == "plan: day? then time?"
    assert world.plan(booking(1, said=()), draw, moves=1) == "plan: day?"
    # All was said: the only move is the booking itself.
    assert world.plan(booking(1, said=("day", "time")), draw, moves=5) == ""


def test_feedback_is_the_end_of_the_first_try():
    said = [("assistant", "day?"), ("user", "day fri"), ("assistant", "book 7pm")]
    failed = FailedTry(PROBLEMS[0], said, Booking())
    assert Feedback().tell(failed, Random(0)) == "failed: book 7pm"
    assert Feedback(turns=2).tell(failed, Random(0)) == "failed: day? / day fri / book 7pm"
    assert Feedback().tell(failed._replace(said=()), Random(0)) == ""


def test_guidance_that_can_tell_nothing_is_refused(tried):
    solved = [replace(booking(3, said=("day", "time")), prompt="book day time (3)")]
    facts = json.loads(solved[0].metadata)["booking"] | {"wish": {"day": "mon", "time": "7pm"}}
    solved = [replace(solved[0], metadata=json.dumps({"booking": facts}))]
    with pytest.raises(UserError, match=r"guidance: plan told nothing of 2 tries that failed in"):
        tried([Plan()], problems=solved)
