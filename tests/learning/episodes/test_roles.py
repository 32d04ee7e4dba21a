"""Several roles: who plays them, whose draws are learned from, and with whom each is compared."""

from typing import Literal

import pytest
import torch

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.asked import Cue
from posttrain.learning.episodes.config import PlayConfig
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Ask,
    Environment,
    Situation,
    Told,
    role_of,
)
from posttrain.learning.episodes.play import Role, play
from posttrain.learning.episodes.players.base import PlayBench
from posttrain.learning.models.load import Policy
from posttrain.learning.rewards.components.base import Answers, Inquiry
from posttrain.learning.rewards.components.moving_average import MovingAverageComponent
from posttrain.learning.rl.credit import reward_statistics
from posttrain.learning.rl.drawn import of_episode
from posttrain.learning.rl.producers.base import Workbench
from posttrain.learning.rl.producers.episodes import Episodes
from posttrain.learning.rl.rollout import from_plain, plain
from posttrain.learning.rl.rollout_batch import rollout_batch
from posttrain.learning.rl.store import rollouts_table, stored_groups
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.stage.errors import UserError
from tests.scripted import FakeEngine

SEED = 3
FAR = {"base_url": "http://localhost:1/v1", "model": "m"}


class Duel(Environment):
    """The policy speaks, the opponent answers, the policy has the last word."""

    ROLES = frozenset({"opponent"})

    kind: Literal["duel"] = "duel"

    def start(self, problem, seed):
        return Situation({"said": []}, (Ask(POLICY),), key="first")

    def step(self, state, acts, seed):
        said = [*state["said"], [[act.role, act.text] for act in acts]]
        after = {"said": said}
        if len(said) == 1:
            told = Told("user", f"it said {acts[0].text}")
            return Situation(after, (Ask("opponent", (told,)),), key="second")
        if len(said) == 2:
            told = Told("user", f"heard {acts[0].text}")
            return Situation(after, (Ask(POLICY, (told,)),), key="third")
        return Situation(after, earned={POLICY: 1.0, "opponent": 0.25})

    def unbound(self, state, role, draw):
        return f"script {draw.randrange(3)}" if role == "opponent" else None


class Panel(Environment):
    """One asks, two solve at the same time."""

    ROLES = frozenset({"solver"})

    kind: Literal["panel"] = "panel"

    def start(self, problem, seed):
        return Situation({}, (Ask(POLICY),))

    def step(self, state, acts, seed):
        if acts[0].role == POLICY:
            new = (Told("user", acts[0].text + "?"),)
            return Situation({}, (Ask("solver:1", new), Ask("solver:2", new)))
        paid = {act.role: float("1" in act.role) for act in acts}
        return Situation({}, earned=paid | {POLICY: 0.5})


class Audience(Panel):
    """Two solve, and a user may be asked."""

    ROLES = frozenset({"solver", "user"})

    kind: Literal["audience"] = "audience"


def words(tokenizer, policy_version=0):
    def script(prompt, index, seed):  # noqa: ARG001 - what an engine is asked
        return f"{len(prompt.token_ids)}"

    return FakeEngine(tokenizer, script, policy_version=policy_version)


def episodes_of(config, table, problems, prompts, params):
    seats = config.seated(table)
    seats.begin(0)
    return play(
        config.environment,
        problems,
        prompts,
        seats.speakers(params),
        seed=SEED,
        most_turns=config.most_turns,
    )


def test_a_role_that_nobody_plays_goes_by_the_script(engine, tokenizer, problems, prompts, params):
    table = PlayBench(engine, tokenizer)
    config = PlayConfig(environment=Duel())
    played = episodes_of(config, table, problems, prompts, params)
    again = episodes_of(config, table, problems, prompts, params)
    assert played == again
    said = {e.log[1][0].text for group in played for e in group}
    assert said == {"script 0", "script 1", "script 2"}
    # It has no tokens, and the policy alone has rows.
    rows = of_episode(played[0][0], problems[0], group=0, version=0)
    assert [(row.role, row.peers) for row in rows] == [(POLICY, "")]
    assert {segment.role for segment in played[0][0].segments} == {POLICY}


def test_the_policy_in_two_roles_learns_from_both(engine, tokenizer, problems, prompts, params):
    config = PlayConfig.parse({"environment": Duel(), "roles": {"opponent": "policy"}}, where="x")
    assert config.learning == (POLICY, "opponent")
    (group, *_) = episodes_of(config, PlayBench(engine, tokenizer), problems, prompts, params)
    for episode in group:
        own, other = of_episode(episode, problems[0], group=4, version=0, learning=config.learning)
        assert (own.role, other.role) == (own.peers, other.peers) == (POLICY, "opponent")
        assert [earned for earned, _ in own.turns] == [0.0, 1.0]
        assert other.turns == ((0.25, "second"),)
        # It read what it was told in place of the problem, and has draws of its own.
        (told,) = episode.situations[1].asks[0].new
        read = tokenizer.decode(other.token_ids[: other.spans[0].end])
        assert told.text in read
        assert problems[0].prompt not in read
        assert own.token_ids[: len(prompts[0].token_ids)] == prompts[0].token_ids
    # Whom each is compared with: numbers are per role, in whatever order rows come.
    rows = [r for e in group for r in of_episode(
        e, problems[0], group=4, version=0, learning=config.learning)]  # fmt: skip
    batch = rollout_batch([row._replace(reward=0.0) for row in rows])
    assert batch.group_B.tolist() == [0, 1, 0, 1, 0, 1]
    assert from_plain(plain([rows])) == [rows]
    stored = [(step, g) for step, groups in stored_groups(rollouts_table([(1, r) for r in rows]))
              for g in groups]  # fmt: skip
    kept = [row._replace(logprobs=()) for row in rows]
    assert [(1, kept)] == [(s, [row._replace(logprobs=()) for row in g]) for s, g in stored]


def test_roles_of_one_name_are_compared_within_an_episode(tokenizer, problems, prompts, params):
    config = PlayConfig.parse({"environment": Panel(), "roles": {"solver": "policy"}}, where="x")
    table = PlayBench(words(tokenizer), tokenizer)
    (group, *_) = episodes_of(config, table, problems[:1], prompts[:1], params)
    made = [
        of_episode(e, problems[0], group=0, version=0, learning=config.learning, within="episode")
        for e in group
    ]
    roles = [POLICY, "solver:1", "solver:2"]
    assert [[row.role for row in rows] for rows in made] == [roles] * 3
    first = group[0].id
    assert [row.peers for row in made[0]] == [POLICY, *[f"solver@{first}"] * 2]
    flat = [row._replace(reward=float("1" in row.role)) for rows in made for row in rows]
    assert reward_statistics(flat)["group_mean"] == [0.0, 0.5, 0.5] * 3


def test_names_before_a_colon_are_roles():
    assert role_of("solver:2", ["policy", "solver"]) == "solver"
    assert role_of("solver:2", ["policy", "solver:2"]) == "solver:2"
    assert role_of("user", ["policy"]) is None


def test_a_population_is_of_earlier_selves(model, engine, tokenizer, problems, prompts):
    params = SamplingParams(max_tokens=5, num_samples=2, seed=2)
    policy = Policy(model, tokenizer)
    spec = {
        "environment": Duel(),
        "roles": {"opponent": {"kind": "earlier", "every": 2, "most": 3}},
    }
    config = PlayConfig.parse(spec, where="x")
    seats = config.seated(PlayBench(engine, tokenizer, policy))
    before = {name: each.clone() for name, each in model.state_dict().items()}
    try:
        for step in range(9):
            seats.begin(step)
            with torch.no_grad():
                model.lm_head.weight += 0.5
        population = seats.by_role["opponent"]
        # The first stays, and the latest.
        assert sorted(population.members) == [0, 6, 8]
        for step, weights in population.members.items():
            expected = before["lm_head.weight"] + 0.5 * step
            torch.testing.assert_close(weights["lm_head.weight"], expected)
        speakers = seats.speakers(params)
        played = play(Duel(), problems, prompts, speakers, seed=SEED, most_turns=4)
        state = seats.state_dict()
        fresh = config.seated(PlayBench(engine, tokenizer, policy))
        fresh.load_state_dict(state)
        again = play(Duel(), problems, prompts, fresh.speakers(params), seed=SEED, most_turns=4)
        assert again == played
        versions = [e.of("opponent")[0].versions for group in played for e in group]
        assert {version for each in versions for version in each} > {0}
        # A group meets one opponent.
        assert all(len({e.of("opponent")[0].versions for e in group}) == 1 for group in played)
        rows = of_episode(played[0][0], problems[0], group=0, version=0, learning=config.learning)
        assert [row.role for row in rows] == [POLICY]
    finally:
        model.load_state_dict(before)


def test_two_roles_of_earlier_selves_meet_members_of_their_own(model, tokenizer):
    """Of four members two roles meet the same one in a quarter of 64 problems, about 16."""
    roles = dict.fromkeys(("solver", "user"), {"kind": "earlier", "every": 1})
    spec = {"environment": Audience(), "roles": roles}
    table = PlayBench(words(tokenizer), tokenizer, Policy(model, tokenizer))
    seats = PlayConfig.parse(spec, where="x").seated(table)
    for step in range(4):
        seats.begin(step)
    speakers = seats.speakers(SamplingParams(max_tokens=1))
    solver, user = (
        speakers[role].members_of([asked_of(role, f"sums/{n}") for n in range(64)], SEED)
        for role in ("solver", "user")
    )
    assert {*solver} == {*user} == {0, 1, 2, 3}
    assert 6 <= sum(one == other for one, other in zip(solver, user, strict=True)) <= 28


def asked_of(role, problem):
    return Cue(f"{problem}/0", 0, 0, None, Prompt(problem, ()), {}, Ask(role), (), (), cut=False)


def booked(roles):
    return PlayConfig.parse({"environment": "booking", "roles": roles}, where="x")


def test_the_first_and_the_latest_are_two_members_at_least():
    with pytest.raises(UserError, match="most"):
        booked({"user": {"kind": "earlier", "most": 1}})


def test_the_present_policy_plays_a_role_and_learns_nothing_in_it(tokenizer, problems, params):
    prompts = [Prompt(each.id, (1, 2)) for each in problems[:1]]
    spec = {"environment": Duel(), "most_turns": 3, "roles": {"opponent": "present"}}
    config = PlayConfig.parse(spec, where="x")
    table = PlayBench(words(tokenizer), tokenizer)
    ((episode, *_),) = episodes_of(config, table, problems[:1], prompts, params)
    # Its engine's words, where the script would have said `script`.
    assert episode.log[1][0].text.isdigit()
    assert config.learning == (POLICY,)
    rows = of_episode(episode, problems[0], group=0, version=0, learning=config.learning)
    assert [row.role for row in rows] == [POLICY]


def test_an_environment_that_asks_what_it_does_not_declare_is_refused(tokenizer, problems, params):
    prompts = [Prompt(each.id, (1, 2)) for each in problems[:1]]
    role = Role(words(tokenizer), tokenizer, params)

    class Sly(Duel):
        ROLES = frozenset()

    with pytest.raises(UserError, match="asks the role opponent, which it does not declare"):
        play(Sly(), problems[:1], prompts, {POLICY: role}, seed=SEED, most_turns=3)


def test_who_cannot_play_is_refused(engine, tokenizer):
    table = PlayBench(engine, tokenizer)
    with pytest.raises(UserError, match="always played by the policy of the stage"):
        PlayConfig.parse({"roles": {POLICY: "policy"}}, where="x")
    earlier = booked({"user": "earlier"}).roles["user"]
    assert "several processes share out" in str(earlier.beyond_processes(2))
    assert earlier.beyond_processes(1) is None
    named = booked({"user": {"kind": "checkpoint", "name": "a"}})
    assert named.checkpoints_asked == {"players.a": "user"}
    with pytest.raises(UserError, match=r"asks for the checkpoint players\.a; connect it"):
        named.seated(table)


def test_a_deadline_ends_what_is_not_over_and_nobody_judges_it(
    tokenizer, problems, prompts, params, monkeypatch
):
    role = Role(words(tokenizer), tokenizer, params)
    # When it began, before the first turn, and before the second.
    ticks = iter([0.0, 5.0, 99.0])
    monkeypatch.setattr("posttrain.learning.episodes.play.monotonic", lambda: next(ticks))
    (group, *_) = play(
        Duel(), problems, prompts, {POLICY: role}, seed=SEED, most_turns=9, most_seconds=60.0
    )
    assert [episode.end for episode in group] == ["time"] * 3
    (row,) = of_episode(group[0], problems[0], group=0, version=0)
    assert row.broke
    assert not row.truncated


def test_the_usual_pay_of_a_role_is_known_before_its_round():
    part = MovingAverageComponent(of="earned", decay=0.5)
    problem = Problem("sums", "1 + 1 =", "2", 1, "exact")

    def answers(role, *scores):
        size = len(scores)
        return Answers(
            problem=problem,
            texts=("x",) * size,
            lengths=(1,) * size,
            truncated=(False,) * size,
            role=role,
            scores={"earned": scores},
        )

    state = {}
    asked = Inquiry(lambda _answers: [], state=state)
    groups = [answers(POLICY, 1.0, 0.0), answers("opponent", 0.25), answers(POLICY, 1.0, None)]
    assert part.score_all(groups, asked) == [[0.0, 0.0], [0.0], [0.0, 0.0]]
    # 0.5 * 0 + 0.5 * 2/3, and 0.5 * 0.25.
    assert state == {POLICY: pytest.approx(1 / 3), "opponent": 0.125}
    assert part.score_all(groups, asked)[1] == [0.125]
    assert state["opponent"] == 0.5 * 0.125 + 0.5 * 0.25


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"environment": "python"}, "what environment python answers may hang on a clock"),
        ({"most_seconds": 9.0}, "most_seconds goes by the clock"),
        (
            {"roles": {"user": {"kind": "endpoint", "endpoint": FAR}}},
            "who plays user answers over a network",
        ),
        ({}, None),
    ],
)
def test_several_processes_play_nothing_that_may_differ_in_each(engine, tokenizer, settings, told):
    """Each plays all episodes itself: a prompt that one of them has alone would stop them all."""
    producer = Episodes.parse(
        {"environment": {"kind": "booking", "user": "role"}, **settings}, where="x"
    )
    assert producer.beyond_processes(1) is None
    assert producer.seats_at(Workbench(engine, None, tokenizer, policy=None)).by_role
    said = producer.beyond_processes(2)
    assert said == (
        told
        and f"{told}, but with resources.processes each process plays all episodes"
        " itself, and they would be others in each; leave resources.processes out"
    )
