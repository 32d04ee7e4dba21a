"""A population of instructions beside the policy: credited, thinned out, written anew, resumed."""

import json
import math
from dataclasses import dataclass, field
from types import SimpleNamespace

import polars as pl
import pytest

from posttrain.data.chat_templates.own import with_system
from posttrain.data.chat_templates.turns import TurnsTemplate
from posttrain.data.contexts import PromptContext, PromptInContext
from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.data.templates import render_prompt
from posttrain.learning.episodes.asked import Reply, Speaker
from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.players.base import PlayBench, Player, Seat
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.rl.ahead import MadeAhead
from posttrain.learning.rl.generation import Generation
from posttrain.learning.rl.generations import Queue
from posttrain.learning.rl.instructed import Instructed
from posttrain.learning.rl.instructors.base import InstructedAttempts, InstructorBench
from posttrain.learning.rl.instructors.members import weights_of
from posttrain.learning.rl.instructors.population import PopulationInstructor
from posttrain.learning.rl.producers.base import Production
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tests.quick import first_now
from tests.tasks.test_rl_episodes import trained


@dataclass
class Scribe(Seat, Speaker):
    """Says what it was given to say, and remembers what it was asked."""

    says: list[str]
    asked: list[str] = field(default_factory=list)

    def speaker(self, params):
        return self

    def reply(self, asked, environment, *, seed):
        self.asked += [cue.ask.new[0].text for cue in asked]
        return [Reply(Act(cue.ask.role, self.says.pop(0))) for cue in asked]


class Author(Player):
    kind: str = "scribe"
    says: list[str] = []

    def sit(self, table):
        return Scribe(list(self.says))


def population(*, earns=None, says=(), **config):
    tried = []

    def try_out(instruction, *, count, seed):
        tried.append((instruction, count, seed))
        return earns[instruction]

    author = Author(says=list(says))
    instructor = PopulationInstructor(author=author, candidates=max(1, len(says)), **config)
    bench = InstructorBench(PlayBench(None, None, policy=object()), try_out, seed=7)
    return instructor.start(bench), tried


def attempts(instruction, rewards, *, problem="2 + 3 ="):
    texts = tuple(f"said {reward}" for reward in rewards)
    solved = tuple(None if reward is None else reward == 1 for reward in rewards)
    return InstructedAttempts(instruction, problem, texts, tuple(rewards), solved)


def test_an_instruction_is_credited_with_what_its_rollouts_earned():
    stream, _ = population(texts=["a", "b", "c"], temperature=0.2, rate=0.25)
    assert stream.shares() == pytest.approx([1 / 3] * 3)
    # Two groups of one instruction count by their rollouts: (1 + 0 + 0 + 0.2) / 4.
    stream.observe([attempts("a", [1, 0, None]), attempts("a", [0, 0.2]), attempts("b", [0.5])])
    assert weights_of(stream.members) == pytest.approx([0.3, 0.5, 0.4])
    powers = [math.exp(each) for each in (1.5, 2.5, 2.0)]
    assert stream.shares() == pytest.approx([each / sum(powers) for each in powers])
    stream.observe([attempts("a", [0.7]), attempts("b", [None])])
    assert weights_of(stream.members) == pytest.approx([0.3 + 0.25 * 0.4, 0.5, 0.45])
    drawn = [stream.choose([str(n)], step=5)[0] for n in range(3000)]
    shares = dict(zip("abc", stream.shares(), strict=True))
    for text, share in shares.items():
        assert drawn.count(text) / 3000 == pytest.approx(share, abs=0.03)
    # Alone or in company, a problem of a step has the same one.
    assert list(stream.choose([str(n) for n in range(3000)], step=5)) == drawn


def test_those_that_earn_least_go_and_the_best_of_the_new_ones_come():
    earns = {"e": [0.0, 0.5], "f": [1.0], "g": [0.4, 0.2], "too long": []}
    stream, tried = population(
        texts=["a", "b", "c"], size=4, keep=0.5, every=2, tries=2, shown=2, earns=earns,
        says=["e", "It guessed.\nInstruction: f", "a", " ", "g", "f", "too long"],
    )  # fmt: skip
    stream.observe(
        [
            attempts("a", [0.1, 1], problem="first"),
            attempts("b", [0.9, 0.4, 0.2], problem="second"),
            attempts("c", [1, 1], problem="solved"),
            attempts("c", [0], problem="third"),
        ]
    )
    before = stream.state_dict()
    stream.renew(step=0)
    stream.renew(step=3)
    assert stream.state_dict() == before
    stream.renew(step=2)
    # c earned 2/3, a 0.55, b 0.5: two of three stay, and two places of four are free.
    assert [each.text for each in stream.members] == ["c", "a", "f", "g"]
    assert [each.parent for each in stream.members] == ["", "", "a", "c"]
    assert [each.born for each in stream.members] == [0, 0, 2, 2]
    assert weights_of(stream.members) == pytest.approx([2 / 3, 0.55, 1.0, 0.3])
    # What is there, or was written before, or is nothing, is not tried; all on the same problems.
    assert [each[0] for each in tried] == ["e", "f", "g", "too long"]
    assert len({each[1:] for each in tried}) == 1
    assert stream.best() == "f"
    assert stream.metrics()["tries"] == 5
    asked = stream.writer.author.asked
    # c is asked about its own failure first, then about the latest of others; never about a solved.
    assert [asked[0].index("third") < asked[0].index("second"), "first" in asked[0]] == [
        True,
        False,
    ]
    assert "said 0.2" in asked[0]
    assert "said 0.4" not in asked[0]
    assert asked[1].index("first") < asked[1].index("third")


def test_where_nothing_better_is_written_nobody_has_to_go():
    stream, _ = population(texts=["a", "b"], size=2, every=1, tries=0, says=["a", "b"])
    stream.observe([attempts("a", [0]), attempts("b", [1])])
    stream.renew(step=1)
    assert [each.text for each in stream.members] == ["b", "a"]


def test_what_cannot_be_is_refused():
    for config, said in [
        ({"texts": ["a", "a"]}, "there twice"),
        ({"texts": ["a", " "]}, "empty"),
        ({"texts": ["a", "b"], "size": 1}, "raise size"),
    ]:
        with pytest.raises(ValueError, match=said):
            PopulationInstructor(**config)


def test_a_saved_policy_says_its_instruction_where_nobody_says_another(guesser):
    tokenizer = load_policy(guesser).tokenizer
    text = 'Say "1"\nor \\ and {{ 2 }} \N{GRINNING FACE}.'
    plain = TurnsTemplate().chat_template(tokenizer)
    tokenizer.chat_template = with_system(with_system(plain, "before"), text)
    assert render_prompt(tokenizer, "up 1 =") == f"{tokenizer.bos_token}{text}\nup 1 =\n"
    own = PromptInContext("up 1 =", PromptContext(system="Mine."))
    assert render_prompt(tokenizer, own) == f"{tokenizer.bos_token}Mine.\nup 1 =\n"


INSTRUCTIONS = {
    "kind": "population",
    "texts": ["up 1. down 2.", "down up. 1 2."],
    "size": 3,
    "every": 1,
    "tries": 2,
    "shown": 1,
    "max_tokens": 6,
    "temperature": 0.5,
}


@pytest.fixture(scope="module")
def inputs(guesser, coins_path, tmp_path_factory):
    # What an author is asked is longer than what the guesser has room for.
    policy = load_policy(guesser)
    policy.model.config.max_position_embeddings = 512
    path = tmp_path_factory.mktemp("roomy") / "policy"
    save_policy(policy.model, policy.tokenizer, path)
    return {"policy": path, "problems": coins_path}


@pytest.mark.parametrize("author", first_now(["policy", "script"]))
def test_a_run_is_replayed_and_gone_on_with_to_the_same_weights(
    author, inputs, tmp_path, monkeypatch
):
    said = INSTRUCTIONS | {"author": author}
    settings = {"draw": {"instructions": said}, "steps": 4, "checkpoint_every": 1, "staleness": 1}
    config, whole = trained(inputs, tmp_path / "whole", **settings)
    digest = weights_digest(load_policy(whole["policy"]).model)
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    assert replay(config, {"policy": inputs["policy"]}, whole["rollouts"], context) == digest

    put_before = Instructed.put_before

    def until_third(self, problems, *, step):
        if step == 2:
            raise ConnectionError
        return put_before(self, problems, step=step)

    with monkeypatch.context() as broken:
        broken.setattr(Instructed, "put_before", until_third)
        with pytest.raises(ConnectionError):
            trained(inputs, tmp_path / "twice", **settings)
    _, resumed = trained(inputs, tmp_path / "twice", **settings)
    assert weights_digest(load_policy(resumed["policy"]).model) == digest
    rows, again = (read_table(each["rollouts"], ROLLOUTS) for each in (whole, resumed))
    assert rows.equals(again)
    assert whole["report"].read_text() == resumed["report"].read_text()

    # Behind which instruction a rollout was drawn stands in its tokens: one for each group.
    tokenizer = load_policy(inputs["policy"]).tokenizer
    prompts = [
        tokenizer.decode(row["token_ids"][: row["spans"][0]["end"]], skip_special_tokens=True)
        for row in rows.to_dicts()
    ]
    found = rows.with_columns(said=pl.Series(prompts).str.split("\n").list.first())
    assert found.group_by("step", "group").agg(pl.col("said").n_unique())["said"].max() == 1
    told = json.loads(whole["report"].read_text())["instructions"]
    curve = read_table(whole["curve"], CURVE)
    written = curve.filter(pl.col("metric") == "rl/instructions_written")["value"].to_list()
    assert written[-1] >= 1
    drawn = {text.strip() for text in found["said"]}
    assert drawn & {each["text"] for each in told}
    assert any(each["parent"] for each in told)


@pytest.mark.parametrize("memory", [{}, {"seen": 1}])
@pytest.mark.parametrize("instructed", [None, object()])
def test_what_is_tried_earns_by_all_that_was_drawn_before(memory, instructed):
    """As in one process, where a reward that remembers has seen all earlier generations."""
    told = []

    def note(text, then):
        told.append(text)
        return then

    rollouter = SimpleNamespace(
        production=Production(),
        instructed=instructed,
        bench=SimpleNamespace(rewarder=SimpleNamespace(state_dict=lambda: memory)),
        generate=lambda step, config, *, version: note(f"rewarded {step}", Generation(step, [])),
        draft=lambda step, config, **_: note(f"tried for {step}", step),
        generation=lambda draft, made: note(f"rewarded {draft}", Generation(draft, [])),
    )
    made = MadeAhead([], {"logprob_gap": 0.0}, None, 0.0)
    pool = SimpleNamespace(begin=lambda draft, *_, **__: draft, made=lambda begun: made)
    config = SimpleNamespace(staleness=2, steps=9, problems_per_step=1)
    learner = SimpleNamespace(check_gap=lambda gap: None)
    Queue(pool).fill(rollouter, learner, config, step=0)
    waits = ["rewarded 1"] if memory and instructed else []
    assert told == ["rewarded 0", "tried for 1", *waits, "tried for 2"]


def test_an_author_without_room_is_told(guesser, coins_path, tmp_path):
    short = {"policy": guesser, "problems": coins_path}
    with pytest.raises(UserError, match="leaves it no room to answer"):
        trained(short, tmp_path, draw={"instructions": INSTRUCTIONS})


def test_a_problem_with_a_system_prompt_of_its_own_is_refused(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(PromptContext, "read", classmethod(lambda cls, _: cls(system="mine")))
    with pytest.raises(UserError, match="leave context.system out of the source"):
        trained(inputs, tmp_path, draw={"instructions": INSTRUCTIONS})
