"""Stages that attempt problems play: an attempt is an episode, and a broken one is not judged."""

import pytest

from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.episodes.players.base import PlayBench
from posttrain.learning.episodes.sampling import EpisodeSamplingConfig, PlayingEngine, open_playing
from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import FinishReason
from posttrain.learning.rollouts.scoring import sample_and_score, verifying
from posttrain.stage.errors import UserError
from tests.learning.episodes.conftest import small_tokenizer
from tests.learning.episodes.environments import Broken, Counting
from tests.learning.episodes.test_append import FORGETFUL
from tests.scripted import LOGPROB, FakeEngine


@pytest.fixture
def attempted(tokenizer, params, problems, prompts):
    """Samples and scores of a policy that says the answer to the first sum in its second turn."""

    def script(prompt, index, seed):  # noqa: ARG001 - what an engine is asked
        return ["5", "#### 1", "2"][int(prompt.id.partition("@")[2] or 0)]

    def run(environment, **settings):
        config = EpisodeSamplingConfig(environment=environment, **settings)
        known = {problem.id: problem for problem in problems}
        drawing = FakeEngine(tokenizer, script)
        engine = PlayingEngine(drawing, config, known, config.seated(PlayBench(drawing, tokenizer)))
        with verifying(None) as verify:
            return sample_and_score(engine, problems, prompts, params, verify=verify)

    return run


def test_a_sample_is_what_was_drawn_in_all_turns(attempted, tokenizer):
    made = attempted(Counting(rounds=1))
    assert [each.sample.index for each in made] == [0, 1, 2] * 5
    for each in made:
        assert each.sample.text == "5\n#### 1"
        assert each.sample.finish_reason is FinishReason.STOP
        said = [tokenizer.encode(text, add_special_tokens=False) for text in ("5", "#### 1")]
        drawn = [token for ids in said for token in (*ids, tokenizer.eos_token_id)]
        assert list(each.sample.token_ids) == drawn
        assert each.sample.logprobs == (LOGPROB,) * len(drawn)
    # 0 + 1 = 1 is the first of the five sums.
    assert [each.score.correct for each in made] == [True] * 3 + [False] * 12


def test_an_episode_that_ended_at_the_most_turns_was_cut_off(attempted):
    made = attempted(Counting(rounds=2), most_turns=2)
    assert {each.sample.finish_reason for each in made} == {FinishReason.LENGTH}
    assert {each.sample.text for each in made} == {"5\n#### 1"}


def test_an_episode_whose_environment_broke_is_not_judged(attempted):
    made = attempted(Broken())
    assert {each.sample.finish_reason for each in made} == {FinishReason.FAILED}
    assert {each.score.reason for each in made} == {"environment_failed"}
    assert {each.score.value for each in made} == {None}


def test_an_environment_that_asks_once_is_the_engine_itself(
    model, engine, tokenizer, params, problems, prompts
):
    config = EpisodeSamplingConfig(batch_size=64)
    assert config.environment == Single()
    with open_playing(config, Policy(model, tokenizer), problems) as played:
        assert played.sample(prompts, params) == engine.sample(prompts, params)
        assert played.context_length == engine.context_length


def test_a_template_that_forgets_is_refused_before_anything_is_drawn(model, problems):
    config = EpisodeSamplingConfig(environment=Counting())
    policy = Policy(model, small_tokenizer(FORGETFUL))
    with (
        pytest.raises(UserError, match="what was thought in them"),
        open_playing(config, policy, problems),
    ):
        pass
