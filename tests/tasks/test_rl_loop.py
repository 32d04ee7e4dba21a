"""The loop around a scripted engine and a learner that only listens."""

from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest

from posttrain.data.schemas import ROLLOUTS, problems_table, with_row_ids
from posttrain.data.tables import read_table
from posttrain.learning.curriculum.base import ProblemPool, ProblemSampler, ProblemStream
from posttrain.learning.curriculum.examples import ExamplesStream
from posttrain.learning.curriculum.solve_rate import SolveRate, SolveRateStream
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import load_policy
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rl.batch import TrainSample
from posttrain.learning.rl.beside import Beside
from posttrain.learning.rl.generations import Buffer, Queue
from posttrain.learning.rl.loop import train
from posttrain.learning.rl.producers.base import Workbench
from posttrain.learning.rl.producers.plain import PlainProduction
from posttrain.learning.rl.rewarder import Rewarder
from posttrain.learning.rl.rollout_batch import rollout_batch
from posttrain.learning.rl.rollouter import Rollouter, start_rollouter
from posttrain.learning.rl.state import RlState
from posttrain.learning.rl.stop import Stopping
from posttrain.learning.rl.store import RolloutStore
from posttrain.learning.rollouts.scoring import make_prompts
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.prepare import Trainable
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import NumberSchedules
from tasks.rl.config import RlStageConfig
from tests.scripted import LOGPROB, FakeEngine

GAP = {"logprob_gap": 0.0, "logprob_gap_max": 0.0, "logprob_gap_k3": 0.0}


class Listener:
    """Stands in for the learner."""

    def __init__(self, model):
        self.model, self.heard, self.num_updates = model, [], 1
        self.trainable = Trainable(model, LearnerConfig(), None, None)
        self.optimizer = None
        self.passes = SimpleNamespace(reference=None, critic=None, mask=None, turn_learner=None)
        self.beside = Beside()

    def training_samples(self, groups, *, step):
        self.heard.append((step, groups))
        half = [[(TrainSample.bare(r), r.reward - 0.5) for r in group] for group in groups]
        return [[replace(sample, advantages=(a,)) for sample, a in group] for group in half]

    def update(self, samples, *, step, index, seed):
        self.num_updates += 1
        return {"loss": float(step), "grad_norm": 1.0, **GAP}

    def fingerprint(self):
        return self.num_updates

    def gap(self, rollouts):
        return GAP

    def check_gap(self, gap):
        pass


class Loop:
    """Six problems: 0 and 1 always solved, 2 and 3 never, 4 and 5 in half of the samples."""

    def __init__(self, guesser, coins, folder):
        self.policy, self.problems, self.folder = load_policy(guesser), coins[:6], folder
        self.events, self.engine_type, self.stream_type = [], FakeEngine, SolveRateStream

    def script(self, prompt, index, seed):
        number = self.place[prompt.id]
        right = number < 2 or (number >= 4 and index % 2 == 0)
        return f"#### {self.problems[number].answer}" if right else "#### 9"

    def run(self, **settings):
        self.place = {problem.id: index for index, problem in enumerate(self.problems)}
        given = {"steps": 3, "problems_per_step": 6, "group_size": 4, "max_tokens": 16}
        draw = {"sampler": "solve_rate", "train_on": "signal"} | settings.pop("draw", {})
        config = RlStageConfig(**given | settings, draw=draw)
        context = StageContext(0, 1, "cpu", self.folder, self.events.append)
        engine = self.engine_type(self.policy.tokenizer, self.script)
        rewarder = Rewarder(config.reward, VerifierCache())
        bench = Workbench(engine, rewarder, self.policy.tokenizer)
        rollouter = Rollouter(
            problems=self.problems,
            prompts=make_prompts(self.policy.tokenizer, self.problems),
            stream=self.stream_type(
                list(self.place), "abcdef", solved=[2] * 6, attempts=[4] * 6, config=SolveRate()
            ),
            bench=bench,
            production=config.producer.start(bench),
            seed=0,
        )
        state = RlState(
            schedules=NumberSchedules(config),
            rollouter=rollouter,
            learner=Listener(self.policy.model),
            curve=Curve(context),
            store=RolloutStore(self.folder),
            queue=Queue(),
            buffer=Buffer(epochs=1, minibatches=1),
            stopping=None if config.stop is None else Stopping(config.stop),
        )
        checkpointer = Checkpointer(self.folder, every=0)
        train(state, context=context, checkpointer=checkpointer)
        return state

    def rollouts(self, state):
        return pl.concat(state.store._laid_out())


@pytest.fixture
def loop(guesser, coins, tmp_path):
    return Loop(guesser, coins, tmp_path)


@pytest.fixture
def trained(loop):
    return loop.run(), loop.events


def test_only_groups_with_a_difference_are_learned_from(trained, coins):
    state, _ = trained
    assert [step for step, _ in state.learner.heard] == [0, 1, 2]
    for _, groups in state.learner.heard:
        assert {g[0].problem_id for g in groups} == {coins[4].id, coins[5].id}
        for group in groups:
            assert [rollout.reward for rollout in group] == [1.0, 0.0, 1.0, 0.0]


def test_metrics_count_all_groups(trained):
    state, events = trained
    metrics = state.curve.metrics()
    assert metrics["rl/reward"] == pytest.approx(0.5)
    assert metrics["rl/yield"] == pytest.approx(1 / 3)
    assert metrics["rl/all_solved"] == pytest.approx(1 / 3)
    assert metrics["rl/none_solved"] == pytest.approx(1 / 3)
    assert metrics["rl/entropy"] == pytest.approx(-LOGPROB)
    assert metrics["rl/loss"] == 2.0
    done = [event["done"] for event in events if event["kind"] == "progress"]
    assert done == [1, 2, 3]
    # Wall-clock is for the tracker; an artifact must not depend on it.
    assert not any("seconds" in name for name in metrics)


def test_the_curriculum_learns_the_outcomes(trained):
    state, _ = trained
    stream = state.rollouter.stream
    rates = stream.solved_P / stream.attempts_P
    assert rates[:2].min() > 0.8
    assert rates[2:4].max() < 0.2
    assert rates[4:].tolist() == pytest.approx([0.5, 0.5])
    # What the sampler measures stands in the curve after every step.
    assert state.curve.last("rl/curriculum_solve_rate") == pytest.approx(stream.rates().mean())


def test_a_rule_may_watch_what_the_problem_sampler_measures(loop):
    watched = {"metric": "rl/curriculum_signal", "better": "lower", "target": 0.99}
    assert loop.run(steps=9, stop=watched).num_steps == 1


def test_what_is_ahead_is_drawn_before_the_results_of_the_step_that_is_learned(loop):
    """With one step ahead the second draw knows nothing; the third knows one step's results."""
    seen = []

    class Watching(SolveRateStream):
        def draw(self, count, **where):
            seen.append((where["step"], float(self.attempts_P.sum())))
            return super().draw(count, **where)

    loop.stream_type = Watching
    state = loop.run(steps=3, staleness=1)
    assert [step for step, _ in seen] == [0, 1, 2]
    assert [total for _, total in seen] == pytest.approx([24, 24, 24 * 0.98 + 24])
    assert state.num_steps == 3


def test_rollouts_carry_the_version_of_the_policy_that_drew_them(trained, tmp_path):
    state, _ = trained
    assert state.store.merge(tmp_path / "rollouts.parquet", learned=3) == 3 * 6 * 4
    steps = read_table(tmp_path / "rollouts.parquet", ROLLOUTS).partition_by("step")
    assert [frame["versions"].unique().to_list() for frame in steps] == [[[0]], [[1]], [[2]]]


def test_every_rollout_is_stored_and_says_whether_it_was_learned_from(loop, coins):
    state = loop.run()
    rollouts = loop.rollouts(state)
    learned = rollouts.filter("trained")
    assert len(rollouts) == 3 * 6 * 4
    assert set(learned["problem_id"]) == {coins[4].id, coins[5].id}
    assert len(learned) == 3 * 2 * 4
    metrics = state.curve.metrics()
    assert metrics["rl/rollouts_drawn"] == 24
    assert metrics["rl/rollouts_trained"] == 8
    assert metrics["rl/trained_share"] == pytest.approx(1 / 3)
    assert metrics["rl/tokens_drawn"] == sum(map(len, rollouts.filter(step=3)["logprobs"]))


def test_more_is_drawn_until_enough_groups_have_signal_or_the_cap(loop):
    """Two of six problems teach: two rounds of two groups rarely find both, six rounds do."""
    state = loop.run(problems_per_step=2, draw={"max_rounds": 6}, steps=4)
    for part in loop.rollouts(state).partition_by("step", maintain_order=True):
        drawn = part["problem_id"].unique()
        assert part.filter("trained")["problem_id"].n_unique() == 2
        assert part["group"].to_list() == [g for g in range(len(drawn)) for _ in range(4)]
    capped = Loop.run(loop, problems_per_step=2, draw={"max_rounds": 1}, steps=4)
    assert loop.rollouts(capped)["problem_id"].len() == 4 * 2 * 4


def test_a_group_that_a_selection_leaves_out_is_made_up_for(loop):
    """Problem p is solved p of 4 times, the last two always; from 0.4 to 0.8 are 2 and 3 alone."""

    def answer(prompt, index, seed):  # noqa: ARG001 - the script's arguments
        place = loop.place[prompt.id]
        return f"#### {loop.problems[place].answer}" if index < place else "#### no"

    loop.script = answer
    band = {"kind": "solved_band", "least": 0.4, "most": 0.8}
    draw = {"max_rounds": 6, "train_on": "signal", "select": band}
    state = loop.run(problems_per_step=2, draw=draw, steps=2)
    for part in loop.rollouts(state).partition_by("step"):
        names = set(part.filter("trained")["problem_id"])
        assert names == {loop.problems[2].id, loop.problems[3].id}
    assert state.curve.metrics()["rl/selection_solve_rate"] == pytest.approx(5 / 8)


def test_a_group_is_learned_from_where_the_greedy_answer_was_wrong(loop):
    """Problem 4 is right but at first, 5 at first alone; the first answer is the greedy one."""

    def answer(prompt, index, seed):  # noqa: ARG001 - the script's arguments
        place = loop.place[prompt.id]
        right = place < 4 or (index > 0) == (place == 4)
        return f"#### {loop.problems[place].answer}" if right else "#### no"

    loop.script = answer
    state = loop.run(producer="greedy_first", draw={"select": "greedy_failed"}, steps=1)
    learned = loop.rollouts(state).filter("trained")
    assert set(learned["problem_id"]) == {loop.problems[4].id}
    assert len(learned) == 4
    assert state.curve.metrics()["rl/selection_solve_rate"] == 0.75


def test_what_is_told_in_another_order_is_compared_with_and_not_learned_from(loop):
    """Half of each group is right; behind the shuffled prompt none of the even problems, all of the
    odd ones, so that order helped with the even ones alone.
    """
    asked = {}

    def answer(prompt, index, seed):  # noqa: ARG001 - the script's arguments
        name, _, other = prompt.id.partition("~")
        place = loop.place[name]
        text = loop.policy.tokenizer.decode(prompt.token_ids)
        asked[prompt.id] = text.removeprefix("<bos>")
        right = place % 2 == 1 if other else index < 2
        return f"#### {loop.problems[place].answer}" if right else "#### no"

    loop.script = answer
    reward = {"components": {"right": "verifier", "order": {"kind": "order", "bonus": 0.25}}}
    draw = {"select": "told_in_order"}
    state = loop.run(producer="two_orders", draw=draw, reward=reward, steps=1)
    rows = loop.rollouts(state)
    other = rows.filter(role="shuffled")
    assert (len(rows), len(other)) == (48, 24)
    assert set(rows.filter("trained")["role"]) == {"policy"}
    own = rows.filter(role="policy")
    assert own["trained"].all()
    for row in own.iter_rows(named=True):
        paid = 1.0 if loop.place[row["problem_id"]] % 2 else 1.25
        assert row["reward"] in (0.0, paid)
    assert other["reward"].is_in([0.0, 1.0]).all()
    assert rows.group_by("group").len()["len"].to_list() == [8] * 6
    for problem in loop.problems:
        told, mixed = asked[problem.id].split(), asked[f"{problem.id}~shuffled"].split()
        assert mixed != told
        assert (sorted(mixed), mixed[-1]) == (sorted(told), told[-1])


@pytest.mark.parametrize(
    ("select", "trained"), [("told_in_order", {"policy"}), ("every", {"policy", "shuffled"})]
)
def test_a_shuffled_group_does_not_make_an_own_one_of_one_reward_teach(loop, select, trained):
    """All that is told in its order is solved, all that is shuffled is not; but half of each of
    problem 4, which alone tells its answers apart.
    """

    def answer(prompt, index, seed):  # noqa: ARG001 - the script's arguments
        name, _, other = prompt.id.partition("~")
        place = loop.place[name]
        right = index % 2 if place == 4 else not other
        return f"#### {loop.problems[place].answer}" if right else "#### no"

    loop.script = answer
    reward = {"components": {"right": "verifier", "order": {"kind": "order", "bonus": 0.25}}}
    state = loop.run(producer="two_orders", draw={"select": select}, reward=reward, steps=1)
    rows = loop.rollouts(state)
    assert len(rows) == 48
    learned = rows.filter("trained")
    assert set(learned["problem_id"]) == {loop.problems[4].id}
    assert set(learned["role"]) == trained
    heard = [row for _, groups in state.learner.heard for group in groups for row in group]
    compared = rollout_batch(heard, needs=frozenset()).group_B.tolist()
    # The two groups of a problem are compared apart.
    assert len({*compared}) == len(trained)
    assert len({*zip(compared, [row.role for row in heard], strict=True)}) == len(trained)


def test_one_problem_may_fill_a_step_each_copy_a_group_of_its_own(loop):
    asked = []

    def answer(prompt, index, seed):  # noqa: ARG001 - the script's arguments
        asked.append((prompt.id, index))
        return f"#### {loop.problems[4].answer}" if index % 2 else "#### no"

    loop.script = answer
    loop.stream_type = lambda *_, **__: ExamplesStream([4])
    state = loop.run(draw={"sampler": "examples"}, steps=1)
    rows = loop.rollouts(state)
    assert len(set(asked)) == len(asked) == 24
    assert set(rows["problem_id"]) == {loop.problems[4].id}
    assert rows["group"].to_list() == [group for group in range(6) for _ in range(4)]
    assert rows["episode"].n_unique() == 24


def test_drawing_on_ends_where_no_problem_is_left(loop):
    """All six problems are solved always: nothing teaches, and each is drawn once."""
    loop.script = lambda prompt, index, seed: f"#### {loop.problems[loop.place[prompt.id]].answer}"
    state = loop.run(problems_per_step=4, draw={"max_rounds": 9}, steps=1)
    rollouts = loop.rollouts(state)
    assert rollouts["problem_id"].n_unique() == 6
    assert len(rollouts) == 6 * 4
    assert not rollouts["trained"].any()
    assert state.curve.metrics()["rl/rounds"] == 2
    assert state.curve.metrics()["rl/yield"] == 0


def test_everything_is_learned_from_where_the_recipe_says_so(loop):
    assert loop.rollouts(loop.run(draw={"train_on": "all"}))["trained"].all()


def test_sampling_runs_ahead_by_the_staleness(loop):
    state = loop.run(steps=5, staleness=2)
    versions = (
        loop.rollouts(state)
        .group_by("step", maintain_order=True)
        .agg(pl.col("versions").list.first().unique())
    )
    # Steps 1 to 3 are drawn before anything is learned; step 4 after the first, step 5 after two.
    assert versions["versions"].to_list() == [[0], [0], [0], [1], [2]]
    assert state.curve.metrics()["rl/staleness"] == 2
    assert state.queue.num_drawn == 5


def test_rollouts_older_than_the_bound_are_dropped_and_counted(loop):
    class Stuck(FakeEngine):
        """An engine that never takes up new weights, and says so."""

        def update(self, policy_version):
            super().update(0)

    loop.engine_type = Stuck
    state = loop.run(staleness=1)
    learned = (
        loop.rollouts(state).group_by("step", maintain_order=True).agg(pl.col("trained").sum())
    )
    assert learned["trained"].to_list() == [8, 8, 0]
    assert state.curve.metrics()["rl/rollouts_stale"] == 8


def test_a_rule_ends_the_run_and_says_why(loop):
    state = loop.run(steps=9, stop={"metric": "rl/reward", "patience": 2}, staleness=1)
    # The reward is 1/2 at every step: the first is the best, the next two are no better.
    assert state.num_steps == 3
    notes = [event["line"] for event in loop.events if event["kind"] == "note"]
    assert notes == [
        "stopped after step 3 of 9: rl/reward was no better than 0.5 for 2 steps",
    ]
    # What was sampled ahead is not lost.
    assert len(state.queue.waiting) == 1


def test_a_target_ends_the_run_at_once(loop):
    state = loop.run(steps=9, stop={"metric": "rl/yield", "better": "lower", "target": 0.4})
    assert state.num_steps == 1


def test_an_engine_that_disagrees_is_refused_before_its_rollouts_wait(loop, monkeypatch):
    def refuse(self, gap):
        raise UserError("gap")

    monkeypatch.setattr(Listener, "check_gap", refuse)
    with pytest.raises(UserError, match="gap"):
        loop.run(staleness=1)
    assert not loop.events


@pytest.mark.parametrize("drawn", [[], [0, 0, 1, 2, 3, 4], [6], [0, 1, 2, 3, 4, 5, 4]])
def test_a_problem_sampler_that_draws_what_it_may_not_is_refused(loop, drawn):
    class Wrong(SolveRateStream):
        def draw(self, count, *, seed, step, without=()):
            return drawn

    loop.stream_type = Wrong
    with pytest.raises(UserError, match=r"rl: problem_sampler\.solve_rate: `draw` .* 6 problems"):
        loop.run()


def test_a_producer_that_forgets_a_problem_is_refused(loop, monkeypatch):
    produce = PlainProduction.produce
    monkeypatch.setattr(PlainProduction, "produce", lambda *given: produce(*given)[1:])
    with pytest.raises(UserError, match=r"rl: producer\.plain: .* 6 problems and gave 5 groups"):
        loop.run()


class Halved(ProblemSampler):
    """The first problem for half of the run, then the second."""

    kind: str = "halved"

    def start(self, pool):
        return HalvedStream(pool.steps)


class HalvedStream(ProblemStream):
    def __init__(self, steps):
        self.steps = steps

    def draw(self, count, *, seed, step, without=()):
        return [int(2 * step >= self.steps)][:count]


def test_a_sampler_is_told_how_many_steps_it_plans_for(guesser, coins, tmp_path):
    policy = load_policy(guesser)
    table = with_row_ids(problems_table(coins[:4]), ("source", "prompt", "answer", "verifier"))
    given = {"problems_per_step": 1, "group_size": 2, "max_tokens": 16}
    config = RlStageConfig(**given, steps=4, draw={"sampler": Halved()})
    rewarder = Rewarder(config.reward, VerifierCache())
    bench = Workbench(FakeEngine(policy.tokenizer, None), rewarder, policy.tokenizer)
    context = StageContext.quiet(tmp_path)
    started = start_rollouter(config, ProblemPool(table), bench, context, count=1)
    drawn = [[*started.stream.draw(1, seed=0, step=step)] for step in range(4)]
    assert drawn == [[0], [0], [1], [1]]
