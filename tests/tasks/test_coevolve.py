"""Several policies in one stage: what each draws, gives, reads and learns, and that it is exact."""

import json

import polars as pl
import pytest
import torch

from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.coevolve.config import SeveralConfig
from tasks.coevolve.replay import replay_each
from tasks.coevolve.stage import run
from tests.quick import first_now

SMALL = {
    "steps": 3,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 8,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "checkpoint_every": 0,
}
OUTPUTS = {
    "policy": "policy",
    "others": "others",
    "rollouts": "rollouts.parquet",
    "curve": "curve.parquet",
    "report": "report.json",
}
SHORT = {
    "solve": "{discussion} {prompt}",
    "evaluate": "{prompt} {solution}",
    "score": "{prompt} {solution} {evaluation}",
}
EXCHANGES = {
    "alone": {"kind": "alone"},
    "swarm": {"kind": "swarm", "policies": 3, "external": 2, "local": 3},
    "observer": {"kind": "observer", "swap_every": 2},
    "vote": {"kind": "vote", "policies": 3},
    "creator": {"kind": "creator", "evolved": 2, "asks": ["{prompt}"]},
    "adversary": {"kind": "adversary", "hottest": 0.5, "falls": 0.2, "template": "{text} {prompt}"},
    "discussion": {"kind": "discussion", "policies": 3, "pattern": r"(\d)$", **SHORT},
}

DRAWN = {
    # In each of two rounds as many again evaluate, and as many score.
    "discussion": [6 * 16.0] * 3,
    # Two problems are rewritten, and answered four times each.
    "creator": [16.0 + 8.0, 2.0],
}
"""Rollouts that each policy draws in a step, where they are others than its own answers."""


@pytest.fixture(scope="module")
def inputs(guesser, coins_path):
    return {"policy": guesser, "problems": coins_path}


def coevolved(inputs, folder, exchange, **settings):
    config = SeveralConfig.parse(SMALL | settings | {"exchange": exchange}, where="coevolve")
    outputs = {name: folder / file for name, file in OUTPUTS.items()}
    folder.mkdir(parents=True, exist_ok=True)
    run(config, inputs, outputs, StageContext.quiet(folder / "scratch", seed=3))
    return config, outputs


@pytest.fixture(scope="module", params=EXCHANGES)
def done(request, inputs, tmp_path_factory):
    """Each exchange once: its name, config and outputs."""
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, *coevolved(inputs, folder, EXCHANGES[request.param])


def weights(outputs):
    report = json.loads(outputs["report"].read_text())
    return {name: each["after"] for name, each in report["policies"].items()}


def test_every_policy_is_saved_as_it_was_trained(done):
    _, config, outputs = done
    folders = {"policy_1": outputs["policy"]} | {p.name: p for p in outputs["others"].iterdir()}
    found = {name: weights_digest(load_policy(path).model) for name, path in folders.items()}
    assert found == weights(outputs)
    assert len(set(found.values())) == config.exchange.policies


def test_a_replay_of_the_rollouts_gives_every_policy(done, inputs, tmp_path):
    _, config, outputs = done
    context = StageContext.quiet(tmp_path, seed=3)
    assert replay_each(config, inputs, outputs["rollouts"], context) == weights(outputs)


def test_adapters_lie_on_the_stored_weights_held_as_asked_for(inputs, tmp_path):
    learner = {"lora": {"rank": 2}, "weights": "nf4"}
    config, outputs = coevolved(inputs, tmp_path, {"kind": "alone"}, learner=learner)
    stored = weights_digest(load_policy(inputs["policy"]).model)
    report = json.loads(outputs["report"].read_text())
    assert {each["before"] for each in report["policies"].values()} == {stored}
    context = StageContext.quiet(tmp_path / "replayed", seed=3)
    assert replay_each(config, inputs, outputs["rollouts"], context) == weights(outputs)
    # Embeddings and head are no linear layers of the stack, so they are neither rounded nor moved.
    before, after = (load_policy(path).model for path in (inputs["policy"], outputs["policy"]))
    assert torch.equal(before.get_input_embeddings().weight, after.get_input_embeddings().weight)


def test_a_swarm_learns_from_its_own_groups_and_from_others_as_text(inputs, tmp_path):
    exchange = {"kind": "swarm", "policies": 3, "external": 2, "local": 1}
    _, outputs = coevolved(inputs, tmp_path, exchange, steps=1, problems_per_step=6)
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    own = rows.filter(origin="policy")
    # Three policies drew six groups of four each, of which one each is learned from.
    assert own.group_by("role").len()["len"].to_list() == [24] * 3
    assert own.filter("trained").group_by("role").len()["len"].to_list() == [4] * 3
    taken = rows.filter(pl.col("origin") != "policy")
    assert all(taken["trained"])
    assert taken.group_by("role").agg(pl.col("group").n_unique())["group"].to_list() == [2] * 3
    assert all(row["origin"] != row["role"] for row in taken.to_dicts())
    for _, part in taken.group_by("role", "group"):
        assert part["reward"].n_unique() > 1
        written = own.filter(role=part["origin"][0], problem_id=part["problem_id"][0])
        assert part["text"].to_list() == written["text"].to_list()
        assert part["token_ids"].to_list() == written["token_ids"].to_list()


def test_an_observer_reads_the_answer_and_both_are_paid_for_both(inputs, tmp_path):
    exchange = {"kind": "observer", "swap_every": 1}
    _, outputs = coevolved(inputs, tmp_path, exchange, steps=2)
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    roles = [set(part["role"]) for _, part in rows.group_by("step", maintain_order=True)]
    # They exchange roles after each step.
    assert roles == [{"policy_1", "observer:policy_2"}, {"policy_2", "observer:policy_1"}]
    for _, part in rows.group_by("step"):
        spoken = part.filter(~pl.col("role").str.contains(":")).sort("problem_id", "episode")
        heard = part.filter(pl.col("role").str.contains(":")).sort("problem_id", "episode")
        for one, other in zip(spoken.to_dicts(), heard.to_dicts(), strict=True):
            assert one["episode"] == other["episode"]
            assert one["reward"] == other["reward"] == float(one["solved"]) + float(other["solved"])
            prompt = one["spans"][0]["end"]
            # Problem, answer, problem: longer than the problem by the answer at least.
            assert other["spans"][0]["end"] >= 2 * prompt
    first = read_table(outputs["curve"], CURVE).filter(metric="rl/exchange_first_is_pioneer")
    assert first["value"].to_list() == [1.0, 0.0]


def test_voters_answer_the_same_problems_and_are_paid_for_what_they_elect(inputs, tmp_path):
    _, outputs = coevolved(inputs, tmp_path, {"kind": "vote", "policies": 3}, steps=1)
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    asked = [part["problem_id"].to_list() for _, part in rows.group_by("role", maintain_order=True)]
    assert asked[0] == asked[1] == asked[2]
    for _, part in rows.group_by("problem_id"):
        # The guesser states one of two answers, or nothing: what is paid is stated alike.
        stated = [text.partition("#### ")[2] for text in part["text"]]
        paid = {text for text, reward in zip(stated, part["reward"], strict=True) if reward}
        assert len(paid) <= 1
        assert all(
            (text in paid) == bool(reward)
            for text, reward in zip(stated, part["reward"], strict=True)
        )
    assert set(rows["reward"]) == {0.0, 1.0}


def test_solution_evaluation_and_score_are_paid_against_each_other(inputs, tmp_path):
    exchange = EXCHANGES["discussion"] | {"rounds": 2, "references": 1}
    _, outputs = coevolved(inputs, tmp_path, exchange, steps=1, group_size=2)
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    said = rows.with_columns(pl.col("role").str.split(":").list.first().alias("as"))
    counts = dict(said.group_by("as").len().iter_rows())
    # Four problems, three policies, two answers each; the first of them answers the bare problem.
    bare = {f"policy_{n}": 8 for n in (1, 2, 3)}
    assert counts == bare | dict.fromkeys(
        ["solution_2", "evaluation_1", "evaluation_2", "score_1", "score_2"], 24
    )
    # All that is drawn of evaluations and scores is shared out evenly.
    shares = rows.filter(pl.col("role").str.starts_with("score_1")).group_by("role").len()
    assert shares["len"].to_list() == [8, 8, 8]
    first = said.filter(pl.col("as").is_in(["evaluation_1", "score_1", *bare]))
    paid = {name: part["reward"].sum() for (name,), part in first.group_by("as")}
    unscored = sum(row == -1.0 for row in first.filter(pl.col("as") == "score_1")["reward"])
    assert set(first.filter(pl.col("as") == "score_1")["reward"]) <= {0.0, -1.0}
    # A solution and its evaluation share 1 where there is a score, and nothing where there is none.
    assert sum(paid[name] for name in bare) + paid["evaluation_1"] == 24 - unscored
    assert paid["score_1"] == -unscored
    curve = read_table(outputs["curve"], CURVE).filter(metric="rl/exchange_unread")
    assert curve["value"].to_list() == [0.0]


def test_an_adversary_is_paid_what_the_first_loses_and_for_its_entropy(inputs, tmp_path):
    exchange = EXCHANGES["adversary"] | {"enough": 0.0}
    _, outputs = coevolved(inputs, tmp_path, exchange, steps=2)
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    assert set(rows["role"]) == {"attacked:policy_1", "adversary:policy_2"}
    curve = read_table(outputs["curve"], CURVE).filter(metric="rl/exchange_temperature")
    assert curve["value"].to_list() == pytest.approx([0.5, 0.3])
    place = ["step", "problem_id", "episode"]
    wrote = rows.filter(role="adversary:policy_2").sort(place).to_dicts()
    replies = rows.filter(role="attacked:policy_1").sort(place).to_dicts()
    for text, reply in zip(wrote, replies, strict=True):
        assert text["episode"] == reply["episode"]
        assert reply["reward"] == float(reply["solved"])
        entropy = -sum(text["logprobs"]) / len(text["logprobs"])
        temperature = {1: 0.5, 2: 0.3}[text["step"]]
        assert text["reward"] == pytest.approx(temperature * entropy - reply["reward"], abs=1e-6)


def test_what_a_creator_wrote_stands_in_the_place_of_others(inputs, tmp_path):
    exchange = EXCHANGES["creator"] | {"by": "chance"}
    _, outputs = coevolved(inputs, tmp_path, exchange, steps=1)
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    wrote = rows.filter(role="creator:policy_2")
    new = rows.filter(role="evolved:policy_1")
    # The guesser always writes something, so that both problems are answered, four times each.
    assert len(wrote) == 2
    assert dict(new.group_by("problem_id").len().iter_rows()) == dict.fromkeys(
        wrote["problem_id"], 4
    )
    tokenizer = load_policy(inputs["policy"]).tokenizer
    for row in new.to_dicts():
        prompt = tokenizer.decode(row["token_ids"][: row["spans"][0]["end"]])
        of = wrote.filter(problem_id=row["problem_id"])["text"][0]
        assert of.strip() in prompt
        assert row["solved"] is None
        # The label is of the problem that it came of.
        assert row["components"] == [{"name": "correct", "value": None}]
    assert wrote["reward"].to_list() == [None, None]
    # Of four old groups two are learned from, and all that is new; of the creator nothing.
    trained = rows.filter("trained").group_by("role").len()
    assert dict(trained.iter_rows()) == {"policy_1": 8, "evolved:policy_1": 8}
    assert weights(outputs)["policy_2"] == weights_digest(load_policy(inputs["policy"]).model)


def test_counts_are_summed_and_the_rest_is_a_mean(done):
    _, config, outputs = done
    curve = read_table(outputs["curve"], CURVE).filter(step=1)
    value = dict(curve.select("metric", "value").iter_rows())
    names = [f"policy_{n}" for n in range(1, config.exchange.policies + 1)]
    drawn = [value[f"rl/{name}/rollouts_drawn"] for name in names]
    assert drawn == DRAWN.get(config.exchange.kind, [16.0] * len(names))
    assert value["rl/rollouts_drawn"] == sum(drawn)
    # What a creator wrote earns nothing, and is no part of the mean.
    told = [f"rl/{name}/reward" for name in names]
    rewards = [value[name] for name in told if name in value]
    assert len(rewards) == (1 if config.exchange.kind == "creator" else len(names))
    assert value["rl/reward"] == pytest.approx(sum(rewards) / len(rewards))


def test_the_first_policy_alone_is_what_rl_makes_of_it(inputs, tmp_path):
    """What several policies share changes nothing where they exchange nothing."""
    from tasks.rl.config import RlStageConfig
    from tasks.rl.stage import run as rl

    _, outputs = coevolved(inputs, tmp_path, {"kind": "alone", "policies": 2}, steps=2)
    alone = {name: tmp_path / f"rl-{file}" for name, file in OUTPUTS.items()}
    config = RlStageConfig.parse(SMALL | {"steps": 2}, where="rl")
    rl(config, inputs, alone, StageContext.quiet(tmp_path / "rl-scratch", seed=3))
    found = [weights_digest(load_policy(each["policy"]).model) for each in (outputs, alone)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "exchange", first_now(["swarm", "observer", "vote", "discussion", "adversary", "creator"])
)
def test_a_run_that_is_stopped_goes_on_to_the_same_bytes(exchange, inputs, tmp_path, monkeypatch):
    from posttrain.learning.rl import several

    said = EXCHANGES[exchange]
    _, whole = coevolved(inputs, tmp_path / "whole", said, steps=3, checkpoint_every=1)
    learn = several.learn_step

    def stopped(member, generation, config):
        # In the middle of the third step, after the first policy has learned.
        if generation.step == 2 and member.name != "policy_1":
            raise KeyboardInterrupt
        return learn(member, generation, config)

    monkeypatch.setattr(several, "learn_step", stopped)
    with pytest.raises(KeyboardInterrupt):
        coevolved(inputs, tmp_path / "cut", said, steps=3, checkpoint_every=1)
    monkeypatch.undo()
    _, cut = coevolved(inputs, tmp_path / "cut", said, steps=3, checkpoint_every=1)
    for name in ("rollouts", "curve", "report"):
        assert cut[name].read_bytes() == whole[name].read_bytes(), name


def test_other_policies_may_be_connected(inputs, guesser, tmp_path):
    given = {**inputs, "policies.other": guesser}
    _, outputs = coevolved(given, tmp_path, {"kind": "alone", "policies": 3}, steps=1)
    assert sorted(path.name for path in outputs["others"].iterdir()) == ["other", "policy_2"]
    with pytest.raises(UserError, match="exchange.policies says that there are 1 in all"):
        coevolved(given, tmp_path / "few", {"kind": "alone", "policies": 1}, steps=1)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"staleness": 1}, "staleness is set"),
        ({"stop": {"patience": 2}}, "stop is set"),
        ({"producer": {"kind": "episodes", "environment": "guess"}}, "leave producer out"),
        (
            {"temperature": {"metric": "rl/length", "from": 1, "to": 2, "low": 1, "high": 2}},
            "temperature follows rl/length",
        ),
        ({"exchange": {"kind": "observer", "policies": 3}}, "exchange observer takes 2"),
        ({"exchange": {"kind": "observer", "template": "{prompt}"}}, "template has no {answer}"),
    ],
)
def test_what_cannot_be_trained_together_is_refused(settings, told):
    with pytest.raises(UserError, match=told):
        SeveralConfig.parse(SMALL | settings, where="coevolve")


def test_problems_are_rewritten_also_where_none_tells_anything(inputs, tmp_path):
    # One answer to each problem: no two rewards differ.
    settings = {"steps": 1, "group_size": 1, "algorithm": "reinforce"}
    _, outputs = coevolved(inputs, tmp_path, EXCHANGES["creator"], **settings)
    curve = read_table(outputs["curve"], CURVE)
    assert curve.filter(metric="rl/exchange_new")["value"].to_list() == [2.0]


def test_a_step_may_have_no_problem_that_can_be_posed(inputs, tmp_path, monkeypatch):
    from posttrain.learning.rl.exchanges import evolved

    monkeypatch.setattr(evolved, "leaves_room", lambda _prompt, _length: False)
    _, outputs = coevolved(inputs, tmp_path, EXCHANGES["creator"], steps=1)
    curve = read_table(outputs["curve"], CURVE)
    assert curve.filter(metric="rl/exchange_new")["value"].to_list() == [0.0]
