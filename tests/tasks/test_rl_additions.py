"""Answers of others in a group: how they are compared and enter the loss, and what is kept."""

import math
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from posttrain.data.contexts import PromptContext
from posttrain.data.schemas import (
    COMPLETIONS,
    CURVE,
    ROLLOUTS,
    Completion,
    completions_table,
)
from posttrain.data.tables import read_table, write_table
from posttrain.learning.algorithms.advantages.group import GroupAdvantage
from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.foreign_losses.balanced import Balanced
from posttrain.learning.algorithms.foreign_losses.cloned import Cloned
from posttrain.learning.algorithms.foreign_losses.importance import Importance
from posttrain.learning.algorithms.foreign_losses.shaped import Shaped
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.additions.asking import asked_anew
from posttrain.learning.rl.additions.criticized import Criticized
from posttrain.learning.rl.additions.refinements import Refinements
from posttrain.learning.rl.additions.rethought import Rethought
from posttrain.learning.rl.additions.tempered import Tempered
from posttrain.learning.rl.joined import _best
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.producers.base import Workbench
from posttrain.learning.rl.replay import replay
from posttrain.learning.rl.understood import understood
from posttrain.learning.rollouts.engines.base import FinishReason, SamplingParams
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run


def test_foreign_losses_by_hand():
    now = torch.tensor([[math.log(0.1), math.log(0.5)]], requires_grad=True)
    before = torch.tensor([[math.log(0.2), math.log(0.5)]])
    paid = torch.tensor([[2.0]])
    cloned = Cloned(weight=3.0).token_loss(now, before, paid)
    assert cloned.tolist()[0] == pytest.approx([-3 * math.log(0.1), -3 * math.log(0.5)])
    shaped = Shaped().token_loss(now, before, paid)
    assert shaped.tolist()[0] == pytest.approx([-2 * 0.5, -2 * 0.5 / 0.6])
    (slope,) = torch.autograd.grad(shaped.sum(), now)
    # d/d log p of p / (p + g) = g p / (p + g)^2
    assert slope.tolist()[0] == pytest.approx([-2 * 0.01 / 0.04, -2 * 0.05 / 0.36])
    balanced = Balanced().token_loss(now, before, paid)
    by_hand = [
        -2 * math.sqrt(0.9) * 0.2 / (0.2 + 0.6),
        -2 * math.sqrt(0.5) * 1.0 / (0.5 + 0.75),
    ]
    assert balanced.tolist()[0] == pytest.approx(by_hand)
    # Linear in p: its slope by log p is itself, as nothing flows through the focus.
    (slope,) = torch.autograd.grad(balanced.sum(), now)
    assert slope.tolist()[0] == pytest.approx(by_hand)


def foreign_batch(before, author, paid):
    """One answer of others, by probabilities."""
    return PolicyBatch(
        mask_BT=torch.ones(1, len(before), dtype=torch.bool),
        advantages_BT=torch.tensor([[paid]]),
        sampled_logprobs_BT=torch.tensor([before]).log(),
        foreign_B=torch.tensor([True]),
        author_logprobs_BT=torch.tensor([author]).log(),
    )


def test_importance_by_hand():
    """p 0.1 and 0.5, before 0.2 and 0.5, by the author 0.4 and 0.1, advantage 2."""
    now = torch.tensor([[0.1, 0.5]]).log().requires_grad_()
    batch = foreign_batch([0.2, 0.5], [0.4, 0.1], 2.0)

    def loss(**settings):
        return Importance(**settings).batch_loss(now, batch)

    def numbers(**settings):
        return loss(**settings).tolist()[0]

    assert numbers(against="author") == pytest.approx([-2 * 0.25, -2 * 5.0])
    both = [-2 * 0.2 / 0.6, -2 * 1.0 / 0.6]
    assert numbers() == pytest.approx(both)
    focused = [both[0] * math.sqrt(0.9), both[1] * math.sqrt(0.5)]
    assert numbers(focus=0.5) == pytest.approx(focused)
    assert numbers(against="author", most=3.0) == pytest.approx([-2 * 0.25, -2 * 3.0])
    assert numbers(against="author", gamma=0.25) == pytest.approx([-2 * 0.5, -2 * 5 / 5.25])
    # The weight is linear in p, so that its slope by log p is itself, and 0 where it is cut.
    (slope,) = torch.autograd.grad(loss(against="author", most=3.0, focus=0.5).sum(), now)
    assert slope.tolist()[0] == pytest.approx([-2 * 0.25 * math.sqrt(0.9), 0.0])


def test_importance_is_what_others_take_for_an_author_whom_nobody_knows():
    now = torch.tensor([[0.1, 0.5]]).log()
    before, paid = [0.2, 0.6], torch.tensor([[2.0]])
    sure = foreign_batch(before, [1.0, 1.0], 2.0)
    shaped = Shaped(gamma=0.1).token_loss(now, sure.sampled_logprobs_BT, paid)
    found = Importance(against="author", gamma=0.1).batch_loss(now, sure)
    assert torch.allclose(found, shaped)
    halfway = foreign_batch(before, [0.6, 0.8], 2.0)
    balanced = Balanced(focus=0.5).token_loss(now, halfway.sampled_logprobs_BT, paid)
    assert torch.allclose(Importance(focus=0.5).batch_loss(now, halfway), balanced)


def test_importance_against_the_author_is_the_policys_own_gradient_on_average():
    """Over three tokens that the author draws; against both, over those of the two together."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    author = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    earlier = torch.tensor([0.6, 0.1, 0.3], dtype=torch.float64)
    paid = [1.0, -2.0, 0.5]
    now = logits.log_softmax(0)

    def expected(part, drawn):
        total = torch.zeros((), dtype=torch.float64)
        for token in range(3):
            batch = PolicyBatch(
                mask_BT=torch.ones(1, 1, dtype=torch.bool),
                advantages_BT=torch.tensor([[paid[token]]], dtype=torch.float64),
                sampled_logprobs_BT=earlier[token].log()[None, None],
                author_logprobs_BT=author[token].log()[None, None],
            )
            total = total + drawn[token] * part.batch_loss(now[token][None, None], batch)[0, 0]
        return torch.autograd.grad(total, logits, retain_graph=True)[0]

    gain = -(now.exp() * torch.tensor(paid, dtype=torch.float64)).sum()
    (exact,) = torch.autograd.grad(gain, logits, retain_graph=True)
    assert torch.allclose(expected(Importance(against="author"), author), exact)
    assert torch.allclose(expected(Importance(), (author + earlier) / 2), exact)


def advantages(**settings):
    batch = RolloutBatch(
        rewards_B=torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 1.0], dtype=torch.float64),
        group_B=torch.tensor([0, 0, 0, 1, 1, 1]),
        foreign_B=torch.tensor([False, False, True, False, False, True]),
    )
    part = GroupAdvantage(**settings)
    found, _ = part.estimate(batch, rewards_B=batch.rewards_B, costs=(), include_B=None)
    return found[:, 0].tolist()


def test_answers_of_others_are_compared_with_the_policys_own():
    assert advantages(over="own") == pytest.approx([-0.5, 0.5, 0.5, 0, 0, 1])
    third = 1 / 3
    assert advantages() == pytest.approx([-2 * third, third, third, -third, -third, 2 * third])
    # Where all of its own failed there is no deviation to divide by.
    deviation = math.sqrt(0.5)
    assert advantages(over="own", scale="sample", epsilon=0.0) == pytest.approx(
        [-0.5 / deviation, 0.5 / deviation, 0.5 / deviation, 0, 0, 1]
    )


@pytest.fixture(scope="module")
def inputs(guesser, coins, coins_path, tmp_path_factory):
    rows = [
        Completion(coin, f"#### {coin.answer}", name, 1.0, True, "correct")
        for coin in coins
        for name in ("one", "two")
    ]
    wrong = [Completion(coin, "#### 9", "three", 0.0, False, "") for coin in coins]
    path = tmp_path_factory.mktemp("traces") / "traces.parquet"
    write_table(completions_table(rows + wrong), path, COMPLETIONS)
    return {"policy": guesser, "problems": coins_path, "solutions": path}


def trained(inputs, folder, additions, **settings):
    said = {
        "steps": 3,
        "problems_per_step": 8,
        "group_size": 3,
        "max_tokens": 6,
        "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
        "updates": {"minibatches": 2},
        "draw": {"additions": additions and {"kind": "traces"} | additions},
        "algorithm": {"foreign": "shaped"},
        "checkpoint_every": 0,
    }
    config = RlStageConfig.parse(said | settings, where="rl")
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    run(config, inputs, outputs, StageContext.quiet(folder / "scratch", seed=3))
    return config, outputs, read_table(outputs["rollouts"], ROLLOUTS)


def test_a_run_with_traces_is_replayed_from_its_rows_and_measured_without_them(inputs, tmp_path):
    config, outputs, rows = trained(inputs, tmp_path, {"count": 1})
    traces = rows.filter(origin="trace")
    assert len(traces) == 3 * 8
    assert traces["trained"].all()
    assert traces["solved"].all()
    table = read_table(inputs["solutions"], COMPLETIONS).filter("verified")
    assert set(traces["parents"].list.last()) <= set(table["id"])
    # Behind the same prompt as the others of the group.
    prompts = rows.with_columns(
        asked=pl.col("token_ids").list.head(pl.col("spans").list.first().struct.field("end"))
    )
    assert prompts.group_by("step", "group").agg(pl.col("asked").n_unique())["asked"].max() == 1
    curve = read_table(outputs["curve"], CURVE)
    for name, number in (("added", 8), ("added_reward", 1), ("rollouts_drawn", 24)):
        assert set(curve.filter(metric=f"rl/{name}")["value"]) == {number}
    own = rows.filter(origin="policy")
    rewards = own.group_by("step", maintain_order=True).agg(pl.col("reward").mean())["reward"]
    assert curve.filter(metric="rl/reward")["value"].to_list() == pytest.approx(rewards.to_list())
    assert curve.filter(metric="rl/logprob_gap")["value"].max() < 1e-3
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_where_all_failed_some_give_way(inputs, tmp_path):
    additions = {"count": 2, "when": "failed", "replace": True, "choose": "understood"}
    _, outputs, rows = trained(inputs, tmp_path, additions, group_size=2, steps=2)
    groups = rows.group_by("step", "group").agg(
        failed=~pl.col("solved").filter(pl.col("origin") == "policy").any(),
        traces=(pl.col("origin") == "trace").sum(),
        given_way=(~pl.col("trained")).sum(),
    )
    failed = groups.filter("failed")
    assert 0 < len(failed) < len(groups)
    # Both answers of the group give way to both traces that are right.
    assert set(failed["traces"]) == set(failed["given_way"]) == {2}
    assert groups.filter(~pl.col("failed"))["traces"].sum() == 0
    credited = rows.filter(pl.col("advantages").list.len() > 0)
    assert set(credited["trained"]) == {True}


def test_the_best_refinement_joins_as_an_answer_to_the_problem_alone(inputs, tmp_path):
    part = Refinements(prompt="{problem} {solution} ({critique})", told="verdict")
    rows = [SimpleNamespace(text="{critique} 1", solved=solved) for solved in (True, False, None)]
    problem = SimpleNamespace(prompt="up 0 =", answer="1")
    says = ["correct", "incorrect", "incorrect"]
    assert [part.asks(problem, row) for row in rows] == [
        f"up 0 = {{critique}} 1 (The solution is {each}.)" for each in says
    ]
    unasked = {"additions": {"kind": "refinements", "prompt": "{problem} {solution}"}}
    with pytest.raises(UserError, match="prompt has no {critique}"):
        RlStageConfig.parse({"draw": unasked, "algorithm": {"foreign": "shaped"}}, where="rl")

    additions = {"kind": "refinements", "prompt": "{problem}{solution}{critique}"}
    given = {name: path for name, path in inputs.items() if name != "solutions"}
    config, outputs, rows = trained(given, tmp_path, additions, max_tokens=4)
    refined = rows.filter(origin="refinement")
    assert 0 < len(refined) <= 3 * 8
    assert (
        rows.group_by("step", "group")
        .agg((pl.col("origin") == "refinement").sum().alias("joined"))["joined"]
        .max()
    ) == 1
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def drawing(asked):
    """An engine that repeats each prompt's id, and a bench with it."""

    def sample(prompts, params):
        asked.append(([prompt.id for prompt in prompts], params.seed))
        return [SimpleNamespace(text=f"<{prompt.id}>") for prompt in prompts]

    engine = SimpleNamespace(sample=sample, context_length=64)
    return SimpleNamespace(work=SimpleNamespace(engine=engine, tokenizer=None))


def test_what_failed_is_criticized_and_what_is_right_is_told_by_rule(monkeypatch):
    """Of group a the first is right, the second wrong, the third not to be judged; of d both are
    wrong, and the second leaves no room for a critique.
    """
    texts, asked = [], []

    def encoded(_, prompts):
        texts.extend(prompts)
        return [[1] * (64 if each == "d long 7?" else 3) for each in prompts]

    monkeypatch.setattr("posttrain.data.templates.encode_prompts", encoded)
    part = Criticized(
        ask="{problem} {solution} {answer}?", prompt="{problem} {solution} ({critique})"
    )
    problems = [SimpleNamespace(id=name, prompt=name, answer="7", context="") for name in "ad"]
    solved = [(True, False, None), (False, False)]
    said = [("1", "{answer}", "3"), ("4", "long")]
    groups = [
        [SimpleNamespace(text=t, solved=s, trained=True) for t, s in zip(*each, strict=True)]
        for each in zip(said, solved, strict=True)
    ]
    at = SimpleNamespace(params=SamplingParams(max_tokens=4, seed=1))
    found = part.start(drawing(asked)).join(groups, problems, at)
    (criticized, seed), (refined, own_seed) = asked
    assert criticized == ["a/criticized-1-0", "d/criticized-0-0"]
    assert refined == [f"a/refined-{n}" for n in range(3)] + ["d/refined-0", "d/refined-1"]
    assert own_seed == 1 != seed
    assert texts == [
        "a {answer} 7?",
        "d 4 7?",
        "d long 7?",
        "a 1 (The solution is correct, the answer is 7.)",
        "a {answer} (<a/criticized-1-0>)",
        "a 3 (The solution is incorrect, the answer is 7.)",
        "d 4 (<d/criticized-0-0>)",
        "d long (The solution is incorrect, the answer is 7.)",
    ]
    assert [[each.text for each in joining.added] for joining in found] == [
        ["<a/refined-0>", "<a/refined-1>", "<a/refined-2>"],
        ["<d/refined-0>", "<d/refined-1>"],
    ]
    assert [each.best for each in found] == [part.count] * 2
    # Where one of a group is right, nothing of it is asked with `when: failed`.
    asked.clear()
    failed = part.model_copy(update={"when": "failed"})
    assert not failed.start(drawing(asked)).join(groups[:1], problems[:1], at)[0].added
    assert asked == []


def test_a_critic_must_be_asked_about_problem_and_solution():
    unasked = {"additions": {"kind": "criticized", "ask": "{problem}"}}
    with pytest.raises(UserError, match="ask has no {solution}"):
        RlStageConfig.parse({"draw": unasked, "algorithm": {"foreign": "shaped"}}, where="rl")


@pytest.fixture(scope="module")
def criticized(inputs, tmp_path_factory):
    """A whole run with the policy as its own critic, by arguments of `trained`."""
    given = {name: inputs[name] for name in ("policy", "problems")}
    additions = {
        "kind": "criticized",
        "ask": "{problem}{solution}",
        "prompt": "{problem}{solution}{critique}",
    }
    settings = {"max_tokens": 4, "staleness": 1, "checkpoint_every": 3}
    folder = tmp_path_factory.mktemp("criticized")
    return given, additions, settings, trained(given, folder, additions, **settings)


def test_a_run_with_a_critic_is_replayed_from_its_rows(criticized, tmp_path):
    given, _, _, (config, outputs, rows) = criticized
    assert 0 < len(rows.filter(origin="refinement")) <= 3 * 8
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": given["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_a_run_with_a_critic_that_was_stopped_goes_on_to_the_same_bytes(criticized, tmp_path):
    given, additions, settings, (_, whole, rows) = criticized
    update, calls = PolicyLearner.update, []

    def fail(self, samples, **where):
        calls.append(where["index"])
        if len(calls) == 5:
            raise KeyboardInterrupt
        return update(self, samples, **where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolicyLearner, "update", fail)
        with pytest.raises(KeyboardInterrupt):
            trained(given, tmp_path, additions, **settings)
    assert list((tmp_path / "scratch" / "checkpoints").iterdir())
    _, outputs, again = trained(given, tmp_path, additions, **settings)
    assert again.equals(rows)
    weights = [weights_digest(load_policy(each["policy"]).model) for each in (whole, outputs)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("kind", ["criticized", "refinements", "rethought", "tempered"])
def test_what_asks_the_policy_cannot_be_drawn_ahead(kind):
    """The policy that drew is gone once the answers are judged, so other answers would join."""
    said = {"staleness": 1, "ahead": 1, "algorithm": {"foreign": "shaped"}}
    with pytest.raises(UserError, match=f"draw.additions {kind} asks the policy that drew"):
        RlStageConfig.parse(said | {"draw": {"additions": kind}}, where="rl")
    traces = said | {"draw": {"additions": {"kind": "traces", "choose": "random"}}}
    assert RlStageConfig.parse(traces, where="rl").ahead == 1


def test_of_answers_that_join_those_with_the_highest_reward_stay_in_their_order():
    rewards = (0.0, None, 1.0, 0.5, 1.0)
    rows = [SimpleNamespace(place=at, reward=reward) for at, reward in enumerate(rewards)]
    assert [each.place for each in _best(rows, 2)] == [2, 4]
    assert [each.place for each in _best(rows, 4)] == [0, 2, 3, 4]
    assert _best(rows, None) == rows


def test_what_is_understood_makes_the_answer_likely(guesser, coins):
    policy = load_policy(guesser)
    bench = Workbench(None, None, policy.tokenizer, policy)
    asked = policy.tokenizer(coins[0].prompt)["input_ids"]
    plain, silent = understood(bench, asked, ["#### 1", "#### 2"], "1")
    assert 0.4 < plain < 1
    assert silent == 0


IMPORTANCE = {"foreign": {"kind": "importance", "against": "author", "most": 2.0}}


@pytest.fixture(scope="module")
def stored(inputs, tmp_path_factory):
    """Rollouts of a run without additions, of which some are right."""
    given = {name: inputs[name] for name in ("policy", "problems")}
    _, outputs, _ = trained(given, tmp_path_factory.mktemp("author"), None, algorithm={})
    return {**given, "stored": outputs["rollouts"]}


def test_rollouts_of_another_run_join_with_the_probabilities_of_who_drew_them(stored, tmp_path):
    config, outputs, rows = trained(stored, tmp_path, {"kind": "stored"}, algorithm=IMPORTANCE)
    joined = rows.filter(origin="trace")
    assert len(joined) > 0
    assert joined["solved"].all()
    theirs = {row["id"]: row for row in read_table(stored["stored"], ROLLOUTS).to_dicts()}
    for row in joined.to_dicts():
        author = theirs[row["parents"][-1]]
        assert (row["logprobs"], row["text"]) == (author["logprobs"], author["text"])
        said, spoken = row["spans"][1], author["spans"][1]
        assert row["token_ids"][said["begin"] :] == author["token_ids"][spoken["begin"] :]
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": stored["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)
    # The author's probabilities count: as if it had been sure, other weights come out.
    unknown = tmp_path / "unknown.parquet"
    sure = rows.with_columns(
        logprobs=pl.when(pl.col("origin") == "trace")
        .then(pl.col("logprobs").list.eval(pl.element() * 0))
        .otherwise(pl.col("logprobs"))
    )
    write_table(sure, unknown, ROLLOUTS)
    context = StageContext.quiet(tmp_path / "again", seed=3)
    assert replay(config, {"policy": stored["policy"]}, unknown, context) != found


def test_rollouts_by_another_tokenizer_are_refused(stored, tmp_path):
    path = tmp_path / "other.parquet"
    rows = read_table(stored["stored"], ROLLOUTS)
    write_table(rows.with_columns(text=pl.lit("in other words")), path, ROLLOUTS)
    with pytest.raises(UserError, match="the tokens of no rollout are its text"):
        trained({**stored, "stored": path}, tmp_path, {"kind": "stored"}, algorithm=IMPORTANCE)


def test_probabilities_of_an_author_whom_nobody_knows_are_refused():
    said = {"draw": {"additions": {"kind": "traces"}}, "algorithm": IMPORTANCE}
    with pytest.raises(UserError, match="draw.additions traces does not know them"):
        RlStageConfig.parse(said, where="rl")


def test_answers_of_others_without_a_loss_for_them_are_refused():
    with pytest.raises(UserError, match="nothing says how these enter the loss"):
        RlStageConfig.parse({"draw": {"additions": {"kind": "traces"}}}, where="rl")


def test_each_group_is_offered_what_was_drawn_for_its_own_problem():
    """Four groups of 1 nat a token, above the target: the cooler draw, for half of the share."""
    asked = []

    def sample(prompts, params):
        asked.append(params.temperature)
        for prompt in prompts:
            for place in range(params.num_samples):
                end = FinishReason.LENGTH if place == 1 else FinishReason.STOP
                yield SimpleNamespace(text=f"{prompt.id} {place}", finish_reason=end)

    bench = SimpleNamespace(work=SimpleNamespace(engine=SimpleNamespace(sample=sample)))
    row = SimpleNamespace(logprobs=[-1.0], token_ids=[1, 2], spans=[SimpleNamespace(end=1)])
    problems = [SimpleNamespace(id=name) for name in "abcd"]
    at = SimpleNamespace(params=SamplingParams(max_tokens=4, num_samples=3))
    tempered = Tempered(target=0.5, share=1.0, high=2.0, low=0.5).start(bench)
    found = tempered.join([[row, row]] * 4, problems, at)
    offered = [[each.text for each in joining.added] for joining in found]
    assert offered == [["a/tempered 0", "a/tempered 2"], ["b/tempered 0", "b/tempered 2"], [], []]
    assert asked == [0.5]


@pytest.mark.parametrize(("target", "groups"), [(100.0, 4), (0.0, 2)])
def test_right_answers_of_another_temperature_join_the_first_groups(
    inputs, tmp_path, target, groups
):
    """Half of 8 groups where the entropy is below the target, a quarter where it is above."""
    additions = {"kind": "tempered", "target": target, "share": 0.5, "high": 2.0, "low": 0.5}
    config, outputs, rows = trained(inputs, tmp_path, additions, algorithm={"foreign": "cloned"})
    joined = rows.filter(pl.col("origin") != "policy")
    assert 0 < len(joined) <= 3 * groups * 3
    assert set(joined["origin"]) == {"tempered"}
    assert joined["solved"].all()
    assert joined["group"].max() < groups
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_what_fails_is_decomposed_and_what_fails_again_is_refined():
    """Group a is solved; b is right in parts; c only once it is refined; d was never judged; of e
    the second answer in parts is wrong, and the first is not to be judged.
    """
    asked = []

    def sample(prompts, params):
        asked.append([prompt.id for prompt in prompts])
        assert params.num_samples == 1
        for prompt in prompts:
            right = prompt.id in ("b/decomposed-1", "c/refined-0")
            end = FinishReason.LENGTH if prompt.id == "c/decomposed-1" else FinishReason.STOP
            yield SimpleNamespace(text="yes" if right else prompt.id, finish_reason=end)

    def known(pairs):
        # What nobody can judge is neither right nor to be told wrong.
        verdicts = {"yes": True, "e/decomposed-0": None}
        return [SimpleNamespace(correct=verdicts.get(text, False)) for text, _ in pairs]

    def encoded(_, prompts):
        assert {each.context.before for each in prompts} == {"Be brief."}
        return [[1] for _ in prompts]

    engine = SimpleNamespace(sample=sample, context_length=64)
    rewarder = SimpleNamespace(known=known)
    bench = SimpleNamespace(work=SimpleNamespace(engine=engine, rewarder=rewarder, tokenizer=0))
    context = PromptContext(before="Be brief.").written()
    problems = [SimpleNamespace(id=name, prompt=name, context=context) for name in "abcde"]
    solved = [(False, True), (False, False), (False, None), (None, None), (False, False)]
    groups = [[SimpleNamespace(solved=each) for each in group] for group in solved]
    at = SimpleNamespace(params=SamplingParams(max_tokens=4, seed=1))
    part = Rethought(samples=2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("posttrain.data.templates.encode_prompts", encoded)
        found = part.start(bench).join(groups, problems, at)
        alone = Rethought(samples=2, refine=None).start(bench).join(groups, problems, at)
    # c's second answer was cut off, so that the first alone is there to be refined.
    # Of e's two the second alone is known to be wrong.
    assert asked[:2] == [
        [f"{name}/decomposed-{number}" for name in "bce" for number in (0, 1)],
        ["c/refined-0", "e/refined-0"],
    ]
    told = [[(each.text, each.origin) for each in joining.added] for joining in found]
    assert told == [[], [("yes", "decomposed")], [("yes", "refined")], [], []]
    assert [len(joining.added) for joining in alone] == [0, 1, 0, 0, 0]
    assert len(asked) == 3


def test_what_is_asked_anew_must_hold_what_it_is_about():
    assert (
        asked_anew("{problem}: {solution}", problem="{solution}?", solution="{problem}")
        == "{solution}?: {problem}"
    )
    for said, place in (({"decompose": "in parts"}, "problem"), ({"refine": "{problem}"}, "sol")):
        unasked = {"additions": {"kind": "rethought"} | said}
        with pytest.raises(UserError, match=f"has no {{{place}"):
            RlStageConfig.parse({"draw": unasked, "algorithm": {"foreign": "cloned"}}, where="rl")


def test_a_run_that_thinks_again_is_replayed_from_its_rows(inputs, tmp_path):
    additions = {"kind": "rethought", "samples": 4, "decompose": "{problem}", "refine": None}
    given = {name: path for name, path in inputs.items() if name != "solutions"}
    config, outputs, rows = trained(
        given, tmp_path, additions, algorithm={"foreign": "cloned"}, group_size=2
    )
    joined = rows.filter(pl.col("origin") != "policy")
    assert 0 < len(joined) <= 3 * 8 * 4
    assert set(joined["origin"]) == {"decomposed"}
    assert joined["solved"].all()
    groups = rows.group_by("step", "group").agg(
        own=(pl.col("solved") & (pl.col("origin") == "policy")).sum(),
        joined=(pl.col("origin") != "policy").sum(),
    )
    assert groups.filter(pl.col("joined") > 0)["own"].sum() == 0
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": inputs["policy"]}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)
