"""Problems of several worlds are played in one stage, each in its own."""

from random import Random

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.config import PlayConfig
from posttrain.learning.episodes.environments.base import POLICY, Act, Said
from posttrain.learning.episodes.posed import posed_problem, speaking
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from posttrain.learning.episodes.script import play_script
from posttrain.stage.errors import UserError

KINDS = ("guess", "tictactoe", "doors")
SEVERAL = EPISODE_ENVIRONMENTS.parse({"kind": "several", "worlds": [*KINDS]})


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_goes_as_in_its_own_world(kind):
    world = EPISODE_ENVIRONMENTS.parse(kind)
    problem = posed_problem(world, 5)
    speak = speaking(world, "random", Random(1))
    alone = play_script(world, problem, speak, seed=2, most_turns=99)
    again = speaking(world, "random", Random(1))
    within = play_script(
        SEVERAL, problem, lambda state, role: again(state["state"], role), seed=2, most_turns=99
    )
    assert within.log == alone.log
    for here, there in zip(within.situations, alone.situations, strict=True):
        assert here.state == {"environment": kind, "state": there.state}
        assert here.key == f"{kind}/{there.key}"
        assert here._replace(state=0, key="") == there._replace(state=0, key="")


def test_what_is_said_in_several_at_once_is_answered_in_order():
    posed = [posed_problem(EPISODE_ENVIRONMENTS.parse(kind), 3) for kind in (*KINDS, *KINDS)]
    begun = [SEVERAL.start(problem, 0).state for problem in posed]
    turns = [Said(state, [Act(POLICY, "1")], n) for n, state in enumerate(begun)]
    assert SEVERAL.step_all(turns) == [SEVERAL.step(*turn) for turn in turns]
    # The script of the role that nobody plays is that of the problem's world.
    assert SEVERAL.unbound(begun[1], "opponent", Random(0)) is not None


def test_who_plays_in_any_of_them_can_be_named():
    """Else a world with an opponent could not be played among others at all: see `_unasked`."""
    said = {"environment": {"kind": "several", "worlds": [*KINDS]}, "roles": {"opponent": "script"}}
    assert PlayConfig.parse(said, where="x").environment.roles_asked() == {"opponent"}


def test_a_problem_of_none_of_them_is_refused():
    sums = Problem("sums", "1 + 2 =", "3", 1, "exact")
    told = "'1 [+] 2 =' of sums was posed by none of guess, tictactoe, doors; name the world of its"
    with pytest.raises(UserError, match=told):
        SEVERAL.start(sums, 0)


@pytest.mark.parametrize(
    ("worlds", "told"),
    [
        (["guess", "single"], "environment 'single' poses no problems"),
        (["guess", "guess"], "world 'guess' stands there twice; leave one out"),
        (["guess", "repair"], "what world 'repair' answers may hang on a clock"),
    ],
)
def test_worlds_that_cannot_be_told_apart_are_refused(worlds, told):
    with pytest.raises(ValueError, match=told):
        EPISODE_ENVIRONMENTS.parse({"kind": "several", "worlds": worlds})
