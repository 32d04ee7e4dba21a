"""Evaluation: what is estimated, by hand; what a policy won and lost; what is refused."""

import gc
import json
import weakref
from dataclasses import replace

import polars as pl
import pytest
import torch

from posttrain.data.schemas import COMPLETIONS, PROBLEMS
from posttrain.data.tables import read_table
from posttrain.data.templates import encode_prompts
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.reward_head import save_reward_model, start_reward_model
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.strategies.best_of_n import BestOfNStrategy
from posttrain.learning.rollouts.strategies.length_filtered_vote import LengthFilteredVote
from posttrain.learning.rollouts.strategies.vote import VoteStrategy
from posttrain.learning.rollouts.variants.budgets import Budgets
from posttrain.learning.rollouts.variants.by_source import BySource
from posttrain.learning.rollouts.variants.length_bins import LengthBins
from posttrain.learning.rollouts.variants.length_halves import LengthHalves
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.evaluate import TASK
from tasks.evaluate.config import EvaluateConfig
from tasks.evaluate.report import read_report
from tasks.evaluate.stage import run
from tasks.evaluate.summary import estimates_of, mean_of_problems


def evaluate(folder, inputs, **config):
    folder.mkdir(exist_ok=True)
    outputs = {"report": folder / "report.json", "completions": folder / "completions.parquet"}
    settings = {"num_samples": 4, "pass_at": (1, 2, 4), "max_tokens": 8, **config}
    context = StageContext.quiet(folder / "scratch")
    metrics = run(EvaluateConfig(**settings), inputs, outputs, context)
    return read_report(outputs["report"]), metrics, outputs


@pytest.fixture(scope="module")
def always_up(guesser, tmp_path_factory):
    """The guesser, made to say 1 where it would say 1 or 2."""
    policy = load_policy(guesser)
    one, two = (policy.tokenizer.encode(digit, add_special_tokens=False)[0] for digit in "12")
    with torch.no_grad():
        head = policy.model.lm_head.weight
        policy.model.lm_head.weight = torch.nn.Parameter(head.clone())
        policy.model.lm_head.weight[two] = -4 * policy.model.lm_head.weight[one]
    policy.model.config.tie_word_embeddings = False
    path = tmp_path_factory.mktemp("up") / "policy"
    save_policy(policy.model, policy.tokenizer, path)
    return path


@pytest.fixture(scope="module")
def reward_model(guesser, tmp_path_factory):
    model = start_reward_model(guesser, parameterization="head")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model.model.score.weight.copy_(torch.randn(1, 32, generator=generator))
    path = tmp_path_factory.mktemp("reward") / "model"
    save_reward_model(model, path)
    return path


@pytest.fixture(scope="module")
def done(guesser, always_up, reward_model, coins_path, tmp_path_factory):
    inputs = {
        "problems": coins_path,
        "policies.guesser": guesser,
        "policies.up": always_up,
        "reward_model": reward_model,
    }
    folder = tmp_path_factory.mktemp("evaluation")
    return (inputs, *evaluate(folder / "a", inputs))


def test_one_policy_at_a_time_is_loaded(guesser, always_up, coins_path, tmp_path, monkeypatch):
    loaded, there = [], []

    def load(path, **options):
        gc.collect()
        there.append(sum(model() is not None for model in loaded))
        policy = load_policy(path, **options)
        loaded.append(weakref.ref(policy.model))
        return policy

    monkeypatch.setattr("tasks.evaluate.stage.load_policy", load)
    inputs = {"problems": coins_path, "policies.one": guesser, "policies.two": always_up}
    evaluate(tmp_path, {**inputs, "policies.three": guesser})
    assert there == [0, 0, 0]


def test_the_report_is_what_the_completions_say(done, coins):
    _, report, metrics, outputs = done
    samples = read_table(outputs["completions"], COMPLETIONS)
    assert len(samples) == 2 * 40 * 4
    assert [policy.name for policy in report.policies] == ["guesser", "up"]
    for policy in report.policies:
        own = samples.filter(generator=policy.digest)
        by_problem = own.group_by("problem_id", maintain_order=True)
        rates = by_problem.agg(pl.col("verified").mean())["verified"]
        assert policy.pass_at[0].value == pytest.approx(rates.mean())
        assert metrics[f"evaluate/{policy.name}/pass_at_1"] == policy.pass_at[0].value
        assert [at.k for at in policy.pass_at] == [1, 2, 4]
        assert policy.pass_at[2].value == pytest.approx((rates > 0).mean())
        assert sum(policy.solve_histogram) == 40
        assert policy.solve_histogram[4] == (rates == 1).sum()
        reach = 1.959964 * rates.std() / 40**0.5
        assert policy.pass_at[0].low == pytest.approx(rates.mean() - reach, abs=1e-6)
        assert policy.pass_at[0].high == pytest.approx(rates.mean() + reach, abs=1e-6)
        for slice_ in policy.by_source:
            of_source = own.filter(source=slice_.name)
            assert slice_.num_problems == 20
            assert slice_.pass_at_1.value == pytest.approx(of_source["verified"].mean())
        assert [slice_.name for slice_ in policy.by_difficulty] == ["0", "1"]
        assert policy.majority.k == 4
        assert 3 <= policy.mean_length <= 8


def test_gains_and_losses_against_the_parent(done, coins):
    _, report, metrics, outputs = done
    first, second = report.policies
    assert first.change is None
    assert second.change.parent == "guesser"
    samples = read_table(outputs["completions"], COMPLETIONS)
    rate = {
        policy.name: dict(
            samples.filter(generator=policy.digest)
            .group_by("problem_id")
            .agg(pl.col("verified").mean())
            .iter_rows()
        )
        for policy in report.policies
    }
    ids = [problem.id for problem in coins]
    won = {i for i in ids if rate["up"][i] >= 0.5 > rate["guesser"][i]}
    lost = {i for i in ids if rate["guesser"][i] >= 0.5 > rate["up"][i]}
    assert won
    assert lost
    assert second.change.newly_solved == tuple(sorted(won))
    assert second.change.newly_lost == tuple(sorted(lost))
    sources = {problem.id: problem.source for problem in coins}
    # Always answering 1 wins what says up and loses what says down.
    assert {sources[i] for i in won} == {"up"}
    assert {sources[i] for i in lost} == {"down"}
    gaps = torch.tensor([rate["up"][i] - rate["guesser"][i] for i in ids], dtype=torch.float64)
    difference = second.change.difference
    assert difference.value == pytest.approx(float(gaps.mean()))
    assert difference.high - difference.value == pytest.approx(
        1.959964 * float(gaps.std()) / 40**0.5, abs=1e-6
    )
    assert metrics["evaluate/up/gain"] == difference.value
    by_source = {slice_.name: slice_.pass_at_1.value for slice_ in second.change.by_source}
    assert by_source["up"] > 0 > by_source["down"]


def test_best_of_k_by_the_reward_model(done):
    _, report, _, _ = done
    for policy in report.policies:
        assert [at.k for at in policy.best_of] == [1, 2, 4]
        assert policy.best_of[0].value == pytest.approx(policy.pass_at[0].value)
        assert all(
            best.value <= at.value + 1e-9
            for best, at in zip(policy.best_of, policy.pass_at, strict=True)
        )
    assert report.reward_model


def test_exhibits_show_a_gain_a_loss_and_a_failure_side_by_side(done):
    _, report, _, _ = done
    assert len(report.exhibits) == 6
    assert len({shown.problem_id for shown in report.exhibits}) == 6
    gain, loss = report.exhibits[:2]
    assert [shown.policy for shown in gain.completions] == ["guesser", "up"]
    assert gain.source == "up"
    assert gain.completions[1].solve_rate > gain.completions[0].solve_rate
    assert loss.source == "down"
    assert loss.completions[1].solve_rate < loss.completions[0].solve_rate


def test_twice_the_same_bytes_and_plain_json(done, tmp_path):
    inputs, _, _, outputs = done
    _, _, again = evaluate(tmp_path / "b", inputs)
    for name, path in outputs.items():
        assert again[name].read_bytes() == path.read_bytes()
    plain = json.loads(outputs["report"].read_text())
    assert plain["policies"][0]["pass_at"][0]["k"] == 1
    assert plain["layout"] == 1


def test_one_policy_without_a_reward_model(guesser, coins_path, tmp_path):
    inputs = {"problems": coins_path, "policies.only": guesser}
    report, metrics, _ = evaluate(tmp_path / "a", inputs)
    assert report.reward_model is None
    assert report.policies[0].best_of == ()
    assert report.policies[0].digest == weights_digest(load_policy(guesser).model)
    assert "evaluate/only/gain" not in metrics


def test_another_tokenizer_is_refused(guesser, coins_path, tmp_path):
    policy = load_policy(guesser)
    save_policy(policy.model, train_tokenizer(["other 1 2"], vocab_size=262), tmp_path / "other")
    inputs = {"problems": coins_path, "policies.a": guesser, "policies.b": tmp_path / "other"}
    with pytest.raises(UserError, match="policies 'a' and 'b': the tokenizers differ"):
        evaluate(tmp_path / "run", inputs)


def test_each_policy_is_asked_by_its_own_template(guesser, coins_path, tmp_path):
    """As after fine-tuning with a template, which the base lacks; the reward model has it too."""
    taught, judge = load_policy(guesser), start_reward_model(guesser, parameterization="likelihood")
    taught.tokenizer.chat_template = "{% for m in messages %}2 1 {{ m['content'] }}{% endfor %}"
    judge.tokenizer.chat_template = taught.tokenizer.chat_template
    save_policy(taught.model, taught.tokenizer, tmp_path / "taught")
    save_reward_model(judge, tmp_path / "judge")
    alone = {"problems": coins_path, "policies.taught": tmp_path / "taught"}
    both = {"problems": coins_path, "policies.base": guesser} | alone
    _, _, expected = evaluate(tmp_path / "alone", alone)
    report, _, found = evaluate(tmp_path / "both", both | {"reward_model": tmp_path / "judge"})
    assert [policy.name for policy in report.policies] == ["base", "taught"]
    texts = read_table(found["completions"], COMPLETIONS)["text"].to_list()
    half = len(texts) // 2
    assert texts[half:] == read_table(expected["completions"], COMPLETIONS)["text"].to_list()
    assert texts[:half] != texts[half:]


def test_no_policy_is_refused(coins_path, tmp_path):
    with pytest.raises(UserError, match="no policy is connected"):
        evaluate(tmp_path / "run", {"problems": coins_path})


def test_asking_for_more_than_was_sampled_is_refused():
    with pytest.raises(UserError, match="evaluate: pass_at asks for k=16 of 8 samples; raise"):
        EvaluateConfig.parse({"pass_at": [1, 16]}, where="evaluate")


def best_of(rewards, correct, *, k):
    return BestOfNStrategy().solved(DrawnSamples([], correct, rewards), k)


def majority(answers, correct):
    return VoteStrategy().solved(DrawnSamples(answers, correct), correct.shape[1])


def test_best_of_two_of_three_by_enumeration():
    """Pairs of (3: right, 2: wrong, 1: right): 3 wins two of the three, 2 wins one: 2/3 right."""
    rewards = torch.tensor([[2.0, 3.0, 1.0]])
    correct = torch.tensor([[0.0, 1.0, 1.0]], dtype=torch.float64)
    assert best_of(rewards, correct, k=1).item() == pytest.approx(2 / 3)
    assert best_of(rewards, correct, k=2).item() == pytest.approx(2 / 3)
    assert best_of(rewards, correct, k=3).item() == pytest.approx(1.0)


def test_equal_rewards_share_their_places():
    """Rewards 1, 1, 0; right, wrong, right. Pairs: {0,1} 1/2, {0,2} 1, {1,2} 0: 1/2 on average."""
    rewards = torch.tensor([[1.0, 1.0, 0.0]])
    correct = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
    assert best_of(rewards, correct, k=2).item() == pytest.approx(0.5)
    all_equal = torch.zeros(1, 3)
    for k in (1, 2, 3):
        assert best_of(all_equal, correct, k=k).item() == pytest.approx(2 / 3)


def test_majority_ignores_samples_that_state_nothing():
    answers = [["5", "5", "6"], [None, None, "7"], ["1", "2", None], [None, None, None]]
    correct = torch.tensor([[1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0]], dtype=torch.float64)
    # Most; the only one stated; a tie of one right and one wrong; nothing at all.
    assert majority(answers, correct).tolist() == [1.0, 1.0, 0.5, 0.0]
    assert majority([[None]], torch.zeros(1, 1)).tolist() == [0.0]


def test_interval_is_over_problems_and_never_of_width_zero_at_an_extreme():
    # Mean 1/2, deviation sqrt(1/3) of 4: 1/2 +- 1.96 sqrt(1/12).
    estimate = mean_of_problems(torch.tensor([0.0, 1.0, 0.0, 1.0]))
    assert estimate.low == 0.0
    assert estimate.high == 1.0
    many = mean_of_problems(torch.tensor([0.0, 1.0] * 50))
    assert many.high - many.value == pytest.approx(1.959964 * (0.25 / 99) ** 0.5, abs=1e-6)
    # Wilson for 10 of 10: 10 / (10 + z^2).
    sure = mean_of_problems(torch.ones(10))
    assert (sure.value, sure.high) == (1.0, 1.0)
    assert sure.low == pytest.approx(10 / (10 + 1.959964**2), abs=1e-6)
    none = mean_of_problems(torch.zeros(10))
    assert none.high == pytest.approx(1 - sure.low)
    assert mean_of_problems(torch.tensor([0.3])).high == 1.0


def test_the_interval_of_few_problems_is_students():
    # Mean 1/2, deviation 1/2 of 3 problems: 1/2 +- 4.302653 (1/2) / sqrt(3), t tables of 2 degrees.
    few = mean_of_problems(torch.tensor([0.0, 0.5, 1.0]), lowest=-1.0, few=True)
    assert few.value - few.low == pytest.approx(4.302653 * 0.5 / 3**0.5, abs=1e-6)


def test_a_strategy_is_graded_by_its_own_budgets_where_it_has_what_it_needs():
    samples = DrawnSamples([["1", "2", "1"], [None] * 3], torch.tensor([[1.0, 0, 1], [0, 0, 0]]))
    (vote,) = estimates_of(VoteStrategy(), samples, [1, 2])
    assert (vote.k, vote.value) == (3, 0.5)
    assert estimates_of(BestOfNStrategy(), samples, [1]) == ()
    with pytest.raises(UserError, match="has 'vote' twice"):
        EvaluateConfig.parse({"strategies": ["vote", "vote"]}, where="evaluate")


def test_what_could_not_be_judged_is_a_share_of_each_policy_and_told(guesser, coins_path, tmp_path):
    """At a limit that some answers meet: those are dropped, and their problems compared of none."""
    told = []
    config = EvaluateConfig(
        num_samples=2, pass_at=(1,), max_tokens=4, temperature=2.0, truncated="dropped"
    )
    outputs = {"report": tmp_path / "report.json", "completions": tmp_path / "completions.parquet"}
    context = replace(StageContext.quiet(tmp_path / "scratch"), emit=told.append)
    metrics = run(config, {"problems": coins_path, "policies.it": guesser}, outputs, context)
    samples = read_table(outputs["completions"], COMPLETIONS)
    share = samples["score"].null_count() / len(samples)
    assert 0.1 < share < 1.0
    assert metrics["evaluate/it/unjudged"] == share
    lost = samples.filter(pl.col("score").is_null())["problem_id"].n_unique()
    assert metrics["evaluate/num_unjudged"] == lost
    notes = [each["line"] for each in told if each["kind"] == "note"]
    assert any("samples of policy 'it' could not be judged" in each for each in notes)


def test_a_limit_that_is_a_number_or_a_word_is_named_as_it_was_written():
    with pytest.raises(UserError) as caught:
        EvaluateConfig.parse({"max_tokens": 0}, where="evaluate")
    assert str(caught.value) == (
        "evaluate.max_tokens: input should be greater than or equal to 1, got 0"
    )


def test_at_temperature_0_the_likeliest_token_is_taken_and_every_problem_has_one_sample(
    guesser, coins_path, tmp_path
):
    """Beside a loop over whole forward passes, which knows no engine."""
    inputs = {"problems": coins_path, "policies.it": guesser}
    config = EvaluateConfig.parse({"temperature": 0, "max_tokens": 8}, where="evaluate")
    assert (config.num_samples, config.pass_at) == (1, (1,))
    outputs = {"report": tmp_path / "report.json", "completions": tmp_path / "completions.parquet"}
    metrics = run(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch"))
    samples = read_table(outputs["completions"], COMPLETIONS)
    assert len(samples) == len(read_table(coins_path, PROBLEMS))
    policy = load_policy(guesser)
    for row in samples.head(5).to_dicts():
        ids = list(encode_prompts(policy.tokenizer, [row["prompt"]])[0])
        start = len(ids)
        while len(ids) < start + 8:
            with torch.no_grad():
                ids.append(int(policy.model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == policy.tokenizer.eos_token_id:
                break
        assert row["text"] == policy.tokenizer.decode(ids[start:], skip_special_tokens=True)
    report = read_report(outputs["report"])
    assert (report.temperature, report.num_samples) == (0.0, 1)
    assert metrics["evaluate/it/pass_at_1"] == samples["verified"].mean()
    # Another seed draws nothing else, as nothing is drawn.
    again = {name: tmp_path / f"again_{path.name}" for name, path in outputs.items()}
    run(config, inputs, again, replace(StageContext.quiet(tmp_path / "scratch"), seed=7))
    assert read_table(again["completions"], COMPLETIONS).equals(samples)


def test_more_samples_of_what_is_not_drawn_are_refused():
    with pytest.raises(UserError, match="at temperature 0 all 8 samples of a problem would be the"):
        EvaluateConfig.parse({"temperature": 0, "num_samples": 8}, where="evaluate")
    with pytest.raises(UserError, match="temperature: input should be greater than or equal to 0"):
        EvaluateConfig.parse({"temperature": -1}, where="evaluate")
    once = EvaluateConfig.parse({"temperature": 0}, where="evaluate")
    # What a resolved recipe says of itself is read back as it is.
    assert EvaluateConfig.parse(once.model_dump(), where="evaluate") == once


def test_budgets_grade_what_had_ended_by_then():
    """One problem: right in 2 tokens, wrong in 2, right in 5; at 1 none had ended."""
    samples = DrawnSamples(
        [["a", "b", "a"]], torch.tensor([[1.0, 0, 1]]), lengths_PN=torch.tensor([[2.0, 2, 5]])
    )
    found = Budgets(tokens=(1, 2, 5)).measured(samples, samples, [])
    at = {name: float(each) for name, each in found.items()}
    assert [at[f"at_{b}"] for b in (1, 2, 5)] == pytest.approx([0, 1 / 3, 2 / 3])
    assert [at[f"ended_{b}"] for b in (1, 2, 5)] == pytest.approx([0, 2 / 3, 1])
    assert at["average"] == pytest.approx(1 / 3)
    with pytest.raises(UserError, match="budgets above 0 that rise"):
        Budgets.parse({"kind": "budgets", "tokens": [4, 2]}, where="x")


def test_length_bins_find_the_best_length_of_each_level(coins):
    """Level 1 is right in its middle third, level 2 in its longest: the best length grows."""
    problems = [replace(coins[0], difficulty=1), replace(coins[0], difficulty=2)]
    samples = DrawnSamples(
        [[None] * 3] * 2,
        torch.tensor([[0.0, 1, 0], [0, 0, 1]]),
        lengths_PN=torch.tensor([[4.0, 6, 8], [8, 6, 4]]).flip(0).sort(-1).values,
    )
    found = LengthBins(bins=3).measured(samples, samples, problems)
    assert [float(found[f"bin_{n}"].nanmean()) for n in (1, 2, 3)] == [0.0, 0.5, 0.5]
    assert [float(found[f"best_{level}"][0]) for level in (1, 2)] == [6.0, 8.0]
    assert float(found["grows"][0]) == 1.0
    assert float(found["hump"][0]) == 0.0


def test_halves_by_length_are_of_one_problem_each(coins):
    """Medians of 5 and of 6; a sample as long as the median is in no half, nor is one of equals."""
    samples = DrawnSamples(
        [[None] * 4] * 3,
        torch.tensor([[1.0, 1, 0, 1], [0, 0, 1, 1], [1, 0, 1, 0]], dtype=torch.float64),
        lengths_PN=torch.tensor([[2.0, 4, 6, 9], [6, 3, 6, 8], [5, 5, 5, 5]], dtype=torch.float64),
    )
    found = LengthHalves().measured(samples, samples, [coins[0]] * 3)
    assert found["shorter"][:2].tolist() == [1.0, 0.0]
    assert found["longer"][:2].tolist() == [0.5, 1.0]
    assert found["change"][:2].tolist() == [-0.5, 1.0]
    assert all(each[2].isnan() for each in found.values())


def test_a_filtered_vote_is_of_the_lengths_that_agree():
    """Of lengths 2-3 two say y, of 4-5 there are x, x, z: y votes first, though x is commoner."""
    samples = DrawnSamples(
        [["y", "y", "x", "x", "x", "z", None]],
        torch.tensor([[1.0, 1, 0, 0, 0, 0, 0]]),
        lengths_PN=torch.tensor([[2.0, 3, 4, 5, 4, 5, 2]]),
    )
    vote = LengthFilteredVote(width=2, groups=1)
    assert vote.solved(samples, 7).tolist() == [1.0]
    # Both groups: x has 3 of 6 votes, y 2.
    assert LengthFilteredVote(width=2, groups=2).solved(samples, 7).tolist() == [0.0]
    silent = DrawnSamples([[None]], torch.zeros(1, 1), lengths_PN=torch.ones(1, 1))
    assert vote.solved(silent, 1).tolist() == [0.0]


def test_an_intervention_asks_anew_and_is_paired_with_the_plain_prompt(done, tmp_path):
    """What a variant asks changes nothing of what stands beside it, and is judged as ever."""
    inputs, plain, _, _ = done
    variants = {
        "told": {"kind": "intervention", "after": " 1"},
        "same": {"kind": "budgets", "tokens": [8]},
    }
    report, metrics, _ = evaluate(tmp_path / "b", inputs, variants=variants)
    for policy, before in zip(report.policies, plain.policies, strict=True):
        assert policy.pass_at == before.pass_at
        assert policy.variants["same"]["at_8"].value <= policy.pass_at[0].value
        told = policy.variants["told"]
        change = told["pass_at_1"].value - policy.pass_at[0].value
        assert told["change"].value == pytest.approx(change)
        assert metrics[f"evaluate/{policy.name}/told/change"] == told["change"].value
    assert before.variants == {}
    variants = {"told": {"kind": "intervention", "before": "{plan}"}}
    with pytest.raises(UserError, match=r"names \{plan\}, which the metadata of problem"):
        evaluate(tmp_path / "c", inputs, variants=variants)


def test_what_decodes_otherwise_is_graded_beside_the_plain_answers(done, tmp_path):
    """A beam has one answer a problem; the first policy's own values leave it as it is."""
    inputs, plain, _, _ = done
    variants = {
        "beam": {"kind": "beam", "width": 2},
        "greedy": {"kind": "beam", "width": 1},
        "chosen": {"kind": "best_step", "candidates": 2},
        "as_it_is": {"kind": "end_scaled", "temperature": 1.0},
        "sooner": {"kind": "end_scaled", "temperature": 0.1},
    }
    report, _, _ = evaluate(tmp_path / "d", inputs, variants=variants)
    alone, _, _ = evaluate(tmp_path / "e", inputs, temperature=0, num_samples=1, pass_at=(1,))
    for policy, before, greedy in zip(report.policies, plain.policies, alone.policies, strict=True):
        assert policy.pass_at == before.pass_at
        assert policy.variants["greedy"]["pass_at_1"].value == greedy.pass_at[0].value
        assert policy.variants["greedy"]["length"].value == greedy.mean_length
        found = policy.variants["beam"]
        assert found["change"].value == pytest.approx(
            found["pass_at_1"].value - policy.pass_at[0].value
        )
        chosen = policy.variants["chosen"]
        assert chosen["change"].value == pytest.approx(
            chosen["pass_at_1"].value - policy.pass_at[0].value
        )
        assert policy.variants["as_it_is"]["change"].value == 0
        assert policy.variants["as_it_is"]["saved"].value == 0
        sooner = policy.variants["sooner"]
        assert sooner["saved"].value > 0
        assert sooner["length"].value == pytest.approx(policy.mean_length - sooner["saved"].value)


def test_dev_and_unseen_part_the_problems_by_their_ids():
    ids = [f"{n:04x}" for n in range(1000)]
    parts = {name: EvaluateConfig(part=name, dev_share=0.3) for name in ("all", "dev", "unseen")}
    found = {name: {each for each in ids if part.has(each)} for name, part in parts.items()}
    assert found["dev"] | found["unseen"] == found["all"] == {*ids}
    assert not found["dev"] & found["unseen"]
    # 300 expected of 1000 fair draws, with a deviation of 14.5.
    assert 230 < len(found["dev"]) < 370


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"part": "dev"}, None),
        ({"part": "unseen"}, None),
        ({"part": "all"}, "with the same dev_share set its part to dev"),
        ({"part": "dev", "dev_share": 0.2}, "with the same dev_share"),
    ],
)
def test_problems_that_settings_were_chosen_by_are_not_unseen(other, told):
    heldout = Reference(ArtifactKind.PROBLEMS, "synthesize", "heldout")
    policy = Reference(ArtifactKind.CHECKPOINT, "sft", "policy")
    inputs = {"problems": heldout, "policies.sft": policy}
    last = Stage("last", TASK, EvaluateConfig(part="unseen"), inputs)
    tuned = Stage("tuned", TASK, EvaluateConfig(**other), inputs)
    dag = Dag()
    dag.stages |= {"last": last, "tuned": tuned}
    if told is None:
        TASK.refuse(last, dag)
        return
    with pytest.raises(UserError, match=told):
        TASK.refuse(last, dag)


def test_accuracy_is_told_by_source_and_of_the_worst_one(coins):
    correct_PN = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    drawn = DrawnSamples((), correct_PN, torch.zeros(3, 2))
    problems = [replace(coins[0], source=name) for name in ("sums", "sums", "logic")]
    found = BySource().measured(drawn, drawn, problems)
    assert found.keys() == {"sums", "logic", "least"}
    assert found["sums"][:2].tolist() == [0.5, 1.0]
    assert found["sums"][2].isnan()
    assert found["logic"].nanmean() == 0
    # The problems of the worst source alone, so that the interval is of these.
    assert found["least"][2] == 0
    assert found["least"][:2].isnan().all()
    problems[2] = replace(problems[2], source="least")
    with pytest.raises(UserError, match="a source is called least"):
        BySource().measured(drawn, drawn, problems)
