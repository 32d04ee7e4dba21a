"""RL with several roles, and with contexts that fill: stored, replayed, and gone on with."""

import polars as pl
import pytest

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.producers.episodes import EpisodesProduction
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from tests.learning.episodes.environments import Counting
from tests.learning.episodes.test_roles import Duel
from tests.tasks.test_rl_episodes import trained

SELF_PLAY = {
    "kind": "episodes",
    "environment": Duel(),
    "roles": {"opponent": {"kind": "earlier", "every": 1, "most": 2}},
}
BOTH = SELF_PLAY | {"roles": {"opponent": "policy"}}
CUT = {
    "kind": "episodes",
    "environment": Counting(rounds=3),
    "context": {"kind": "truncate", "at_tokens": 24},
}
SUMMED = CUT | {"context": {"kind": "summarize", "at_tokens": 24, "instruction": "so"}}


@pytest.fixture(scope="module")
def inputs(guesser, coins_path):
    return {"policy": guesser, "problems": coins_path}


def replayed(config, inputs, outputs, scratch):
    context = StageContext.quiet(scratch, seed=3)
    return replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)


def digest_of(outputs):
    return weights_digest(load_policy(outputs["policy"]).model)


@pytest.mark.parametrize("producer", [BOTH, CUT, SUMMED], ids=["both", "truncate", "summarize"])
def test_rows_of_roles_and_segments_alone_lead_to_the_same_weights(producer, inputs, tmp_path):
    config, outputs = trained(inputs, tmp_path, producer=producer)
    assert replayed(config, inputs, outputs, tmp_path / "replay") == digest_of(outputs)
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    if producer is BOTH:
        assert set(rows["role"]) == {"policy", "opponent"}
        assert rows["peers"].equals(rows["role"], check_names=False)
        # Compared among themselves: advantages add up to nothing by problem and role.
        sums = (
            rows.filter(pl.col("advantages").list.len() > 0)
            .group_by("step", "group", "role")
            .agg(pl.col("advantages").list.first().sum())["advantages"]
        )
        assert sums.abs().max() < 1e-5
    else:
        assert rows["segment"].max() >= 1
        shared = rows.group_by("step", "episode").agg(
            pl.col("reward").n_unique(), pl.col("advantages").list.first().n_unique()
        )
        assert shared["reward"].max() == shared["advantages"].max() == 1


@pytest.mark.slow
def test_a_population_is_gone_on_with_from_the_checkpoint(inputs, tmp_path, monkeypatch):
    settings = {"producer": SELF_PLAY, "steps": 4, "checkpoint_every": 1}
    _, whole = trained(inputs, tmp_path / "whole", **settings)
    produce = EpisodesProduction.produce

    def until_third(self, problems, prompts, at):
        if at.step == 2:
            raise ConnectionError
        return produce(self, problems, prompts, at)

    with monkeypatch.context() as broken:
        broken.setattr(EpisodesProduction, "produce", until_third)
        with pytest.raises(ConnectionError):
            trained(inputs, tmp_path / "twice", **settings)
    _, resumed = trained(inputs, tmp_path / "twice", **settings)
    assert digest_of(resumed) == digest_of(whole)
    tables = [read_table(each["rollouts"], ROLLOUTS) for each in (whole, resumed)]
    assert tables[0].equals(tables[1])
