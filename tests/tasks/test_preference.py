"""Preference optimization as a stage: it learns, its algorithms do what they say, it refuses."""

import importlib.util
import json
import math

import polars as pl
import pytest

from posttrain.data.chat_templates.turns import TurnsTemplate
from posttrain.data.contexts import turn_of
from posttrain.data.pair_builders.verifier import VerifierPairs
from posttrain.data.pairs import build_pairs
from posttrain.data.rows import TokenTable
from posttrain.data.schemas import (
    COMPLETIONS,
    IDENTITY,
    PAIRS,
    Completion,
    Problem,
    completions_table,
    with_row_ids,
)
from posttrain.data.tables import read_table, write_table
from posttrain.learning.algorithms.identity import digest
from posttrain.learning.algorithms.presets import PREFERENCE_PRESETS
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.models.reward_head import save_reward_model, start_reward_model
from posttrain.learning.preference import round_pairs, rounds
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rollouts.engines.base import FinishReason, SamplingParams
from posttrain.learning.rollouts.engines.mixture import MixtureRolloutEngine
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.learning.rollouts.scoring import (
    make_prompts,
    read_problems,
    sample_and_score,
    sample_and_score_all,
)
from posttrain.learning.training.pairwise import encode_pairs
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.preference import TASK
from tasks.preference.stage import run
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tests.quick import first_now, one_now_in

NAMES = ("policy", "pairs", "curve", "report")
QUICK = {
    "epochs": 3.0,
    "batch_tokens": 300,
    "optimization": {"learning_rate": 3e-3, "warmup_steps": 1},
    "sampling": {"problems": 30, "num_samples": 6, "max_tokens": 8},
}


@pytest.fixture(scope="module")
def probed(guesser, coins_path, tmp_path_factory):
    """Samples of a policy that is right two times in three."""
    folder = tmp_path_factory.mktemp("probed")
    outputs = {name: folder / f"{name}.parquet" for name in ("samples", "solve_rates")}
    given = {"policy": guesser, "problems": coins_path}
    probe(ProbeConfig(max_tokens=8), given, outputs, StageContext.quiet(folder / "scratch"))
    return outputs["samples"]


def go(inputs, folder, **config):
    outputs = {name: folder / name for name in NAMES}
    metrics = run(
        TASK.config(**QUICK | config), inputs, outputs, StageContext.quiet(folder / "scratch")
    )
    return metrics, outputs, json.loads(outputs["report"].read_text())


def measured(outputs):
    return set(pl.read_parquet(outputs["curve"])["metric"])


def declared(**config):
    return {f"preference/{name}" for name in TASK.config(**QUICK | config).metrics()}


def pass_at_1(path, coins_path):
    """Share of right answers among 20 samples of each problem."""
    policy, problems = load_policy(path), read_problems(coins_path)
    made = sample_and_score(
        TorchRolloutEngine(policy.model, policy.tokenizer),
        problems,
        make_prompts(policy.tokenizer, problems),
        SamplingParams(max_tokens=8, num_samples=20, seed=5),
        verify=VerifierCache(),
    )
    return sum(each.score.correct for each in made) / len(made)


def test_it_orders_heldout_pairs_and_solves_more_than_before(guesser, coins_path, probed, tmp_path):
    metrics, outputs, report = go({"policy": guesser, "samples": probed}, tmp_path)
    assert report["accuracy_low"] > 0.5
    assert report["accuracy"] == metrics["preference/accuracy"]
    assert report["margin"] > 0
    assert report["kl"] > 0
    assert pass_at_1(outputs["policy"], coins_path) > pass_at_1(guesser, coins_path) + 0.02
    curve = pl.read_parquet(outputs["curve"])
    # A policy that still is its reference has a log-ratio of 0 everywhere: ln 2.
    first = curve.filter((pl.col("metric") == "preference/loss") & (pl.col("step") == 1))
    assert first["value"][0] == pytest.approx(0.693147, abs=1e-5)
    pairs = pl.read_parquet(outputs["pairs"])
    sides = pairs.group_by("problem_id").agg(pl.col("split").n_unique())["split"]
    assert set(sides) == {1}


@pytest.mark.parametrize(
    "name", one_now_in(4, [name for name in PREFERENCE_PRESETS if name != "xpo"])
)
def test_every_offline_algorithm_orders_heldout_pairs(guesser, probed, tmp_path, name):
    rate = {"orpo": 3e-3, "kto": 3e-3}.get(name, 1e-3)
    _, outputs, report = go(
        {"policy": guesser, "samples": probed},
        tmp_path,
        algorithm=name,
        optimization={"learning_rate": rate},
    )
    assert measured(outputs) == declared(algorithm=name)
    assert report["accuracy"] > 0.6
    assert report["algorithm_digest"] == digest(PREFERENCE_PRESETS[name].algorithm)


# What each loss is where policy and reference are one: ln 2, (1/2beta)^2, 1, and half a weight.
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("dpo", 0.693147),
        ("conservative", 0.693147),
        ("robust", 0.693147),
        ("ld_dpo", 0.693147),
        ("ipo", 25.0),
        ("ipo_per_token", 25.0),
        ("hinge", 1.0),
    ],
)
def test_the_first_loss_is_known(guesser, probed, tmp_path, name, first):
    _, outputs, _ = go({"policy": guesser, "samples": probed}, tmp_path, algorithm=name, steps=1)
    curve = pl.read_parquet(outputs["curve"])
    assert curve.filter(metric="preference/loss")["value"][0] == pytest.approx(first, rel=1e-4)


@pytest.mark.parametrize("name", first_now(["dpo", "xpo"]))
def test_rounds_sample_from_the_policy_as_it_is_and_train_on_that(
    guesser, coins_path, probed, tmp_path, name
):
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    # The chosen side's own likelihood keeps both sides from falling, which on a model this small
    # happens within a few steps.
    algorithm = {"preset": name, "sft_coefficient": 1.0}
    against = {"opponent": "reference", "accumulate": True} if name == "xpo" else {}
    _, outputs, report = go(inputs, tmp_path, rounds=4, algorithm=algorithm, **against)
    assert report["accuracy_low"] > 0.5
    assert len(report["rounds"]) == 4
    assert report["rounds"][-1]["solve_rate"] > report["rounds"][0]["solve_rate"]
    assert pass_at_1(outputs["policy"], coins_path) > pass_at_1(guesser, coins_path) + 0.1
    pairs = pl.read_parquet(outputs["pairs"])
    train, heldout = (pairs.filter(split=side) for side in ("train", "heldout"))
    assert sum(facts["num_pairs"] for facts in report["rounds"]) == len(train)
    assert not set(train["problem_id"]) & set(heldout["problem_id"])
    steps = pl.read_parquet(outputs["curve"]).filter(metric="preference/loss")["step"].to_list()
    assert steps == list(range(1, int(report["num_steps"]) + 1))


def test_a_round_drops_the_samples_that_were_cut_off(
    guesser, coins_path, probed, tmp_path, monkeypatch
):
    given = []

    def watched(*args, **settings):
        made = sample_and_score_all(*args, **settings)
        given.extend(made)
        return made

    monkeypatch.setattr(round_pairs, "sample_and_score_all", watched)
    monkeypatch.setattr("posttrain.learning.preference.rounds.learn", lambda *_, **__: 1)
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    sampling = {"problems": 30, "num_samples": 6, "max_tokens": 7, "temperature": 1.5}
    go(inputs, tmp_path, rounds=1, sampling=sampling | {"truncated": "dropped"})
    judged = {(each.sample.finish_reason, each.score.value is not None) for each in given}
    assert judged == {(FinishReason.LENGTH, False), (FinishReason.STOP, True)}


def test_a_round_trains_on_the_tokens_that_were_drawn(
    guesser, coins_path, probed, tmp_path, monkeypatch
):
    """A right answer that runs on to the limit has no end token, and is given none."""
    sampled, taught = {}, []
    sample = TorchRolloutEngine.sample

    def watched(self, prompts, params):
        drawn = sample(self, prompts, params)
        ids = {prompt.id: prompt.token_ids for prompt in prompts}
        for each in drawn:
            sampled.setdefault((*ids[each.prompt_id], *each.token_ids), each)
        return drawn

    def learned(_trainable, policy, pairs, **given):
        rows = encode_pairs(
            policy, pairs, config=given["config"], context=given["context"], where="x"
        )
        taught.extend(row.ids for side in rows.sides for row in side)
        return 1

    monkeypatch.setattr(TorchRolloutEngine, "sample", watched)
    monkeypatch.setattr("posttrain.learning.preference.rounds.learn", learned)
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    # Six tokens write "#### 1" and cut most of what goes on from there.
    sampling = {"problems": 30, "num_samples": 6, "max_tokens": 6, "temperature": 1.5}
    go(inputs, tmp_path, rounds=1, sampling=sampling)
    assert taught
    assert all(ids in sampled for ids in taught)
    assert any(sampled[ids].finish_reason == FinishReason.LENGTH for ids in taught)


def test_against_the_reference_one_side_of_each_pair_is_its_sample_and_all_rounds_count(
    guesser, coins_path, probed, tmp_path, monkeypatch
):
    """XPO, arXiv 2405.21046, algorithm 1: the bonus is on the reference's side of the pair."""
    before = load_policy(guesser).model.state_dict()
    drawn = {"policy": set(), "reference": set()}
    sample = TorchRolloutEngine.sample

    def watched(self, prompts, params):
        found = sample(self, prompts, params)
        now = self.model.state_dict()
        same = all(bool((now[name] == kept).all()) for name, kept in before.items())
        ids = {prompt.id: prompt.token_ids for prompt in prompts}
        by = "reference" if same else "policy"
        drawn[by] |= {(*ids[each.prompt_id], *each.token_ids) for each in found}
        return found

    taught = []

    def learned(_trainable, policy, pairs, **given):
        taught.append(pairs)
        for parameter in policy.model.parameters():
            parameter.data.mul_(1.001)
        return 1

    monkeypatch.setattr(TorchRolloutEngine, "sample", watched)
    monkeypatch.setattr("posttrain.learning.preference.rounds.learn", learned)
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    go(inputs, tmp_path, rounds=3, algorithm="xpo", opponent="reference", accumulate=True)
    assert [len(each) > 0 for each in taught] == [True] * 3
    assert taught[2]["id"].to_list()[: len(taught[1])] == taught[1]["id"].to_list()
    assert len(taught[2]) > len(taught[1]) > len(taught[0])
    config = TASK.config(**QUICK)
    policy = load_policy(guesser)
    rows = encode_pairs(
        policy,
        taught[2][len(taught[0]) :],
        config=config,
        context=StageContext.quiet(tmp_path),
        where="x",
        extra="sampled",
    )
    for chosen, rejected, sampled in zip(*rows.sides, strict=True):
        assert sampled in (chosen, rejected)
        assert sampled.ids in drawn["reference"]
        assert (rejected if sampled == chosen else chosen).ids in drawn["policy"]
    scores = taught[2].select("chosen_score", "rejected_score").rows()
    assert set(scores) == {(1.0, 0.0)}


def test_the_likelihood_that_is_added_is_per_token_or_a_sum(guesser, probed, tmp_path):
    """Before the first step DPO's own loss is log 2, so that the rest is the term."""
    found = {}
    for per_token in (True, False):
        algorithm = {"sft_coefficient": 0.5, "sft_per_token": per_token}
        folder = tmp_path / str(per_token)
        _, outputs, _ = go(
            {"policy": guesser, "samples": probed}, folder, algorithm=algorithm, steps=1
        )
        curve = dict(pl.read_parquet(outputs["curve"]).select("metric", "value").rows())
        term = curve["preference/loss"] - 0.693147
        assert term == pytest.approx(0.5 * curve["preference/chosen_nll"], abs=1e-5)
        found[per_token] = term
    # Every answer is "#### 1" or "#### 2" and an end, so the sum is the mean times their length.
    ratio = found[False] / found[True]
    assert ratio == pytest.approx(round(ratio), abs=0.2)
    assert ratio > 2


def test_the_engine_of_a_recipe_is_the_one_that_samples(guesser, coins_path, probed, tmp_path):
    """vLLM is not installed where this runs, so asking for it is refused by name."""
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    if importlib.util.find_spec("vllm"):
        pytest.skip("vLLM is here")
    with pytest.raises(UserError, match="vllm"):
        go(inputs, tmp_path, rounds=1, sampling={"engine": "vllm"})


def test_optimism_moves_the_policy_elsewhere(guesser, coins_path, probed, tmp_path):
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    curves = []
    for coefficient in (0.1, 0.2):
        given = {
            "algorithm": {"optimism_coefficient": coefficient},
            "opponent": "reference",
            "rounds": 1,
        }
        folder = tmp_path / str(coefficient)
        _, outputs, _ = go(inputs, folder, **given, steps=1)
        assert measured(outputs) == declared(**given)
        curves.append(dict(pl.read_parquet(outputs["curve"]).select("metric", "value").rows()))
    # The weights are still equal, so the losses differ by the coefficient times what they found.
    found = curves[0]["preference/sampled_logprob"]
    assert found < 0
    assert curves[1]["preference/loss"] - curves[0]["preference/loss"] == pytest.approx(
        0.1 * found, rel=1e-4
    )


def test_own_samples_are_drawn_anew_from_the_policy_of_every_step(
    guesser, probed, tmp_path, monkeypatch
):
    """HyPO, arXiv 2406.01462, algorithm 1: the answers are the present policy's, one a pair."""
    drawn, sample = [], TorchRolloutEngine.sample

    def watched(self, prompts, params):
        found = sample(self, prompts, params)
        drawn.append((len(prompts), weights_digest(self.model), found))
        return found

    monkeypatch.setattr(TorchRolloutEngine, "sample", watched)
    given = {
        "algorithm": {"terms": {"own_divergence": {"coefficient": 0.5}}},
        "sampling": {"max_tokens": 8},
        "optimization": {"learning_rate": 0.01},
    }
    _, outputs, _ = go({"policy": guesser, "samples": probed}, tmp_path, steps=3, **given)
    assert measured(outputs) == declared(**given)
    curve = pl.read_parquet(outputs["curve"]).filter(metric="preference/own_kl").sort("step")
    divergence = curve["value"].to_list()
    # Policy and reference are one at the first step, and no longer at the last.
    assert divergence[0] == pytest.approx(0.0, abs=1e-5)
    assert abs(divergence[2]) > 1e-3
    steps = drawn[:3]
    assert len({digest for _, digest, _ in steps}) == 3
    assert all(len(found) == count for count, _, found in steps)


def test_packing_adapters_and_averages_train_too(guesser, probed, tmp_path):
    learner = {"packing": True, "lora": {"rank": 4}, "ema_decay": 0.5}
    _, outputs, report = go(
        {"policy": guesser, "samples": probed},
        tmp_path,
        learner=learner,
        optimization={"learning_rate": 0.01},
    )
    assert report["accuracy_low"] > 0.5
    assert weights_digest(load_policy(outputs["policy"]).model) != weights_digest(
        load_policy(guesser).model
    )


@pytest.mark.parametrize("name", first_now(["dpo", "kto", "ld_dpo", "rpo"]))
def test_micro_batches_and_packing_give_the_one_batch_result(guesser, probed, tmp_path, name):
    curves = []
    for key, more in {
        "whole": {"learner": {"packing": False}},
        "parts": {"micro_batch_tokens": 90},
        "packed": {"micro_batch_tokens": 90, "learner": {"packing": True}},
    }.items():
        _, outputs, _ = go(
            {"policy": guesser, "samples": probed},
            tmp_path / key,
            algorithm=name,
            batch_tokens=100000,
            steps=3,
            **more,
        )
        curves.append(pl.read_parquet(outputs["curve"]).filter(metric="preference/loss")["value"])
    for other in curves[1:]:
        assert other.to_list() == pytest.approx(curves[0].to_list(), abs=2e-4)


def test_ready_pairs_are_taken_with_their_split(guesser, probed, tmp_path):
    _, outputs, first = go({"policy": guesser, "samples": probed}, tmp_path / "a")
    _, _, second = go({"policy": guesser, "pairs": outputs["pairs"]}, tmp_path / "b")
    assert first == second


@pytest.fixture
def pairs_with(probed, tmp_path):
    """Write ready pairs of which the first has other values, and return the path."""

    def write(**values):
        pairs = build_pairs(
            read_table(probed, COMPLETIONS),
            pairs_per_problem=2,
            heldout_fraction=0.2,
            seed=0,
            builder=TASK.config().pairs.builder,
        )
        train = pl.int_range(pl.len()) == pairs["split"].to_list().index("train")
        others = [
            pl.when(train).then(value).otherwise(name).cast(PAIRS[name]).alias(name)
            for name, value in values.items()
        ]
        path = tmp_path / "pairs.parquet"
        write_table(pairs.with_columns(others), path, PAIRS)
        return path

    return write


@pytest.mark.parametrize(
    ("values", "algorithm", "sentence"),
    [
        ({"weight": 0.0}, {}, "with weight 0.0, which must be above 0 and finite"),
        ({"label_prob": 1.5}, {}, "with label_prob 1.5, which must be from 0 to 1"),
        ({"label_prob": 0.9}, {"loss": "hinge"}, "label_prob 0.9, but the loss hinge has one side"),
        ({"label_prob": 0.9}, {"loss": "kto"}, "the loss kto has one side alone; take sigmoid,"),
        (
            {"label_prob": 0.9},
            {"sft_coefficient": 0.5},
            "the loss sigmoid with sft_coefficient has one side",
        ),
    ],
)
def test_what_a_loss_cannot_read_of_a_pair_is_refused(
    guesser, pairs_with, tmp_path, values, algorithm, sentence
):
    """One pair of all has another value, which would count for nothing."""
    given = {"policy": guesser, "pairs": pairs_with(**values)}
    with pytest.raises(UserError, match=f"preference: there are pairs .*{sentence}"):
        go(given, tmp_path, algorithm=algorithm)


def test_steps_are_compared_by_a_loss_that_needs_no_other_answers(guesser, pairs_with, tmp_path):
    given = {"policy": guesser, "pairs": pairs_with(step_start=3)}
    with pytest.raises(UserError, match="pairs compare steps, and the loss kto compares with"):
        go(given, tmp_path, algorithm={"loss": "kto"})
    with pytest.raises(UserError, match="with step_start 3, but no loss reads it"):
        encode_pairs(
            load_policy(guesser),
            read_table(given["pairs"], PAIRS),
            config=TASK.config(),
            context=StageContext.quiet(tmp_path / "scratch"),
            where="reward",
        )


def _trained(guesser, path, folder, **config):
    _, outputs, _ = go({"policy": guesser, "pairs": path}, folder, **config)
    return weights_digest(load_policy(outputs["policy"]).model)


@pytest.mark.parametrize("loss", ["sigmoid", "kto", "simpo"])
def test_the_weight_of_a_pair_counts(guesser, pairs_with, tmp_path, loss):
    algorithm = {"loss": loss, "per_token": loss == "simpo"}
    found = {
        weight: _trained(
            guesser, pairs_with(weight=weight), tmp_path / str(weight), algorithm=algorithm
        )
        for weight in (1.0, 8.0)
    }
    assert found[1.0] != found[8.0]


def test_the_probability_of_a_label_counts_and_1_is_to_the_bit_what_is_sure(
    guesser, pairs_with, tmp_path
):
    sure = _trained(guesser, pairs_with(), tmp_path / "a")
    assert _trained(guesser, pairs_with(label_prob=1.0, weight=1.0), tmp_path / "b") == sure
    assert _trained(guesser, pairs_with(label_prob=0.5), tmp_path / "c") != sure


def test_what_cannot_be_learned_from_is_refused(guesser, probed, tmp_path):
    with pytest.raises(UserError, match="neither is connected"):
        go({"policy": guesser}, tmp_path)
    with pytest.raises(UserError, match="both are connected"):
        go({"policy": guesser, "samples": probed, "pairs": probed}, tmp_path)
    with pytest.raises(UserError, match="rounds sample problems, and none are connected"):
        go({"policy": guesser, "samples": probed}, tmp_path, rounds=1)
    verified = pl.read_parquet(probed).filter("verified")
    write_table(verified, tmp_path / "verified.parquet", COMPLETIONS)
    with pytest.raises(UserError, match="no problem gives a pair"):
        go({"policy": guesser, "samples": tmp_path / "verified.parquet"}, tmp_path)


@pytest.mark.slow
def test_rounds_do_not_go_on_with_other_problems(
    guesser, coins_path, probed, tmp_path, monkeypatch
):
    """Ended by an error in the second round, after the first is kept."""
    calls = []

    def fail(*arguments, **named):
        calls.append(named["context"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return learn(*arguments, **named)

    learn = rounds.learn
    monkeypatch.setattr(rounds, "learn", fail)
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    with pytest.raises(KeyboardInterrupt):
        go(inputs, tmp_path, rounds=2)
    fewer = tmp_path / "fewer.parquet"
    pl.read_parquet(coins_path)[:-1].write_parquet(fewer)
    with pytest.raises(UserError, match="this checkpoint was made with inputs.problems="):
        go({**inputs, "problems": fewer}, tmp_path, rounds=2)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"algorithm": "dppo"}, "there is no preference algorithm 'dppo'; did you mean 'dpo'"),
        ({"algorithm": "xpo"}, "optimism_coefficient needs pairs .* set rounds .* and opponent"),
        (
            {"algorithm": "xpo", "rounds": 2},
            "optimism_coefficient needs pairs .* set rounds .* and opponent",
        ),
        ({"opponent": "reference"}, "opponent says what rounds do; set rounds"),
        ({"accumulate": True}, "accumulate says what rounds do; set rounds"),
        (
            {"opponent": "reference", "rounds": 2, "reference": "round"},
            "would set the policy against itself; set reference to initial",
        ),
        (
            {
                "opponent": "reference",
                "rounds": 2,
                "pairs": {"builder": {"kind": "length_balanced"}},
            },
            "pairs.builder builds nothing; leave one of them out",
        ),
        ({"reference": "round"}, "reference 'round' needs rounds"),
        ({"algorithm": {"loss": "simpo"}}, "simpo works per token; set per_token to true"),
        ({"algorithm": {"preset": "ipo", "label_smoothing": 0.1}}, "no effect on ipo"),
        ({"algorithm": {"target_margin": 1.0}}, "target_margin is simpo's"),
        ({"algorithm": {"preset": "ld_dpo", "per_token": True}}, "length_alpha weighs a sum"),
    ],
)
def test_nonsense_is_refused_with_a_remedy(values, sentence):
    with pytest.raises(UserError, match=sentence):
        TASK.config.parse(values, where="preference")


def test_a_name_is_a_tuple_and_its_digest_follows_the_tuple_alone():
    named = TASK.config.parse({"algorithm": "dpo"}, where="p").algorithm
    spelled = TASK.config.parse(
        {"algorithm": {"beta": 0.1, "loss": "sigmoid"}}, where="p"
    ).algorithm
    other = TASK.config.parse({"algorithm": {"beta": 0.2}}, where="p").algorithm
    assert digest(named) == digest(spelled) != digest(other)
    # A frozen spelling: a change of these digits makes every stored digest incomparable.
    assert digest(named) == "8c96c2c1005b8dcdff8d0543644fee8277cf045015c096ef6031efb816877b12"
    named_alike: dict[str, set[str]] = {}
    for name, preset in PREFERENCE_PRESETS.items():
        named_alike.setdefault(digest(preset.algorithm), set()).add(name)
    # What Agent-RLVR prefers by is RPO's loss; its pairs are what is its own. DNO and Nash-MD take
    # their steps by one regression, and differ in what it is held by and set against.
    alike = {frozenset(names) for names in named_alike.values() if len(names) > 1}
    # The baseline of offline learning is asked of DPO itself; what searches or decodes by a policy
    # afterwards has it trained by DPO.
    assert alike == {
        frozenset({"iterative_rpo", "agent_rlvr"}),
        frozenset({"dno", "dno_prct", "lspo", "nash_md"}),
        frozenset({"dpo", "behavior_baseline", "from_r_to_q", "step_q"}),
    }


def test_the_pairs_are_a_table_of_their_schema(guesser, probed, tmp_path):
    _, outputs, _ = go({"policy": guesser, "samples": probed}, tmp_path, steps=1)
    assert pl.read_parquet_schema(outputs["pairs"]) == PAIRS


def learned_text(policy, row):
    """What of a row bears loss."""
    batch = TokenTable([row], pad=0).batch([0])
    return policy.tokenizer.decode(batch.input_ids_BT[batch.wanted_BT])


def test_two_episodes_are_compared_by_all_that_was_said_in_each(guesser, tmp_path):
    """Equal last turns are other answers where what was said before them differs."""
    problem = Problem("booking", "book day", "1", 1, "exact")

    def episode(question, told, right):
        between = (turn_of("assistant", question), turn_of("user", told))
        verdict = (float(right), right, "correct" if right else "no")
        return Completion(problem, "book fri", "policy", *verdict, between=between)

    samples = completions_table([episode("day?", "fri", True), episode("time?", "5pm", False)])
    pairs = build_pairs(
        samples, pairs_per_problem=4, heldout_fraction=0.5, seed=0, builder=VerifierPairs()
    )
    assert pairs["parents"].to_list() == [samples["id"].to_list()]
    policy = load_policy(guesser)
    policy.tokenizer.chat_template = TurnsTemplate().chat_template(policy.tokenizer)
    options = {"config": TASK.config(**QUICK), "context": StageContext.quiet(tmp_path)}
    for turns, learned in (("last", "book fri<eos>"), ("assistant", "{}<eos>book fri<eos>")):
        rows = encode_pairs(policy, pairs, where="x", turns=turns, **options)
        for side, question, told in zip(rows.sides, ("day?", "time?"), ("fri", "5pm"), strict=True):
            whole = f"<bos>book day\n{question}<eos>{told}\nbook fri<eos>"
            assert policy.tokenizer.decode(side[0].ids) == whole
            assert learned_text(policy, side[0]) == learned.format(question)
    with pytest.raises(ValueError, match="turns assistant compares two episodes"):
        TASK.config(**QUICK, turns="assistant", rounds=1)


def test_an_oracle_labels_pairs_of_a_policy_with_itself(
    guesser, coins_path, probed, tmp_path, monkeypatch
):
    """Every pair is two samples as they were drawn; the likelier side is chosen."""
    taught = []

    def learned(_trainable, _policy, pairs, **given):
        taught.append((pairs, given["reference"]))
        return 1

    monkeypatch.setattr("posttrain.learning.preference.rounds.learn", learned)
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    given = {"rounds": 2, "pairs": {"per_problem": 3}, "reference": {"initial": 0.25}}
    go(inputs, tmp_path, oracle={"kind": "verifier", "label": "win_rates"}, **given)
    (first, reference), (second, _) = taught
    assert set(first["id"]) != set(second["id"])
    assert (reference.share, reference.anchor is None) == (0.25, False)
    # Who is right wins half a comparison more than who is wrong, whatever it is set against.
    sure = 1 / (1 + 2.718281828**-0.5)
    assert first["label_prob"].to_list() == pytest.approx([sure] * len(first))
    assert set(first.select("chosen_score", "rejected_score").rows()) == {(1.0, 0.0)}
    assert first.group_by("problem_id").len()["len"].max() <= 3


def test_a_reward_model_compares_the_samples_of_a_round(
    guesser, coins_path, probed, tmp_path, monkeypatch
):
    """The label of a pair is σ of the difference of its rewards, by the model alone."""
    taught = []

    def learned(_trainable, _policy, pairs, **_given):
        taught.append(pairs)
        return 1

    monkeypatch.setattr("posttrain.learning.preference.rounds.learn", learned)
    model = start_reward_model(guesser, parameterization="likelihood", scale=2.0)
    save_reward_model(model, tmp_path / "model")
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    inputs["reward_models.liked"] = tmp_path / "model"
    go(inputs, tmp_path, rounds=1, oracle={"kind": "model", "model": "liked"})
    [pairs] = taught
    chosen, rejected = (
        model.score(pairs["prompt"].to_list(), pairs[side].to_list())
        for side in ("chosen", "rejected")
    )
    gaps = [one - other for one, other in zip(chosen, rejected, strict=True)]
    assert min(gaps) >= 0
    wanted = [1 / (1 + math.exp(-gap)) for gap in gaps]
    assert pairs["label_prob"].to_list() == pytest.approx(wanted, abs=1e-5)


def test_a_teachers_answers_join_the_samples_of_a_round(
    guesser, coins_path, probed, tmp_path, monkeypatch
):
    """Right answers of a teacher win against wrong ones of the policy; the rest is too near."""
    taught = []

    def learned(_trainable, policy, pairs, **given):
        settings = {"config": given["config"], "context": given["context"], "where": "x"}
        taught.append((pairs, encode_pairs(policy, pairs, **settings)))
        return 1

    monkeypatch.setattr("posttrain.learning.preference.rounds.learn", learned)
    marked = pl.col("text") + " indeed"
    teacher = read_table(probed, COMPLETIONS).filter("verified").with_columns(text=marked)
    write_table(with_row_ids(teacher, IDENTITY["completions"]), tmp_path / "taught", COMPLETIONS)
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    inputs["reference_samples"] = tmp_path / "taught"
    given = {"rounds": 1, "oracle": "verifier", "opponent": "teacher"}
    go(inputs, tmp_path, **given, pairs={"builder": {"kind": "margin"}, "per_problem": 99})
    [(pairs, rows)] = taught
    by_teacher = pairs.filter(pl.col("chosen").str.contains("indeed"))
    assert 0 < len(by_teacher) < len(pairs)
    assert not pairs["rejected"].str.contains("indeed").any()
    # Right wins half a comparison more than wrong against whomever.
    gaps = pairs["chosen_score"] - pairs["rejected_score"]
    assert gaps.to_list() == pytest.approx([0.5] * len(pairs))
    assert len(rows.kept) == len(pairs)


def test_rounds_do_not_go_on_with_another_teacher(
    guesser, coins_path, probed, tmp_path, monkeypatch
):
    first = read_table(probed, COMPLETIONS)
    write_table(first.head(40), tmp_path / "fewer", COMPLETIONS)
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    learn = rounds.learn

    def fail(*args, **settings):
        if settings["context"].scratch.name == "round-002":
            raise RuntimeError("pulled the plug")
        return learn(*args, **settings)

    monkeypatch.setattr(rounds, "learn", fail)
    given = {"rounds": 2, "opponent": "teacher"}
    with pytest.raises(RuntimeError, match="pulled the plug"):
        go({**inputs, "reference_samples": probed}, tmp_path, **given)
    monkeypatch.setattr(rounds, "learn", learn)
    with pytest.raises(UserError, match=r"inputs\.teacher"):
        go({**inputs, "reference_samples": tmp_path / "fewer"}, tmp_path, **given)


def test_a_teacher_who_is_not_there_is_refused():
    config = TASK.config(**QUICK | {"rounds": 1, "opponent": "teacher"})
    inputs = {
        "policy": Reference(ArtifactKind.CHECKPOINT, stage="sft", output="policy"),
        "samples": Reference(ArtifactKind.COMPLETIONS, stage="probe", output="samples"),
        "problems": Reference(ArtifactKind.PROBLEMS, stage="curate", output="problems"),
    }
    stage = Stage("preference", TASK, config, inputs)
    with pytest.raises(UserError, match=r"add preference: {inputs: {reference_samples: STAGE"):
        TASK.refuse(stage, Dag({"preference": stage}))


def test_a_game_of_the_policys_strategies_has_no_teacher_in_it():
    """What a teacher wrote is no draw of the policy: the shares of strategies would be others."""
    config = TASK.config(
        **QUICK
        | {
            "rounds": 1,
            "opponent": "teacher",
            "pairs": {"builder": "margin"},
            "oracle": {"kind": "latent_game", "asks": "verifier"},
        }
    )
    samples = Reference(ArtifactKind.COMPLETIONS, stage="probe", output="samples")
    inputs = {
        "policy": Reference(ArtifactKind.CHECKPOINT, stage="sft", output="policy"),
        "problems": Reference(ArtifactKind.PROBLEMS, stage="curate", output="problems"),
        "samples": samples,
        "reference_samples": samples,
    }
    stage = Stage("preference", TASK, config, inputs)
    with pytest.raises(UserError, match="goes by how often the policy draws an answer, and teach"):
        TASK.refuse(stage, Dag({"preference": stage}))


def test_a_reward_model_that_is_asked_or_connected_alone_is_refused():
    def planned(oracle, **wired):
        config = TASK.config(**QUICK | {"rounds": 1, "oracle": oracle})
        inputs = {
            "policy": Reference(ArtifactKind.CHECKPOINT, stage="sft", output="policy"),
            "samples": Reference(ArtifactKind.COMPLETIONS, stage="probe", output="samples"),
            "problems": Reference(ArtifactKind.PROBLEMS, stage="curate", output="problems"),
            **wired,
        }
        stage = Stage("preference", TASK, config, inputs)
        TASK.refuse(stage, Dag({"preference": stage}))

    liked = Reference(ArtifactKind.REWARD_MODEL, stage="reward", output="reward_model")
    asks = {"kind": "model", "model": "liked"}
    planned(asks, **{"reward_models.liked": liked})
    with pytest.raises(UserError, match=r"it asks reward_models.liked, which is not connected"):
        planned(asks)
    with pytest.raises(UserError, match=r"nothing under preference.oracle asks for this"):
        planned("verifier", **{"reward_models.liked": liked})


def test_a_mixture_of_references_is_between_the_two(guesser, coins_path, probed, tmp_path):
    """In the first round both are one policy; in the second the loss lies between its ends."""
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    # Rounds whose policies differ, and a step that shows what the second one's reference is.
    given = {
        "rounds": 2,
        "steps": 1,
        "oracle": "verifier",
        "algorithm": {"loss": "ipo", "beta": 0.5},
        "optimization": {"learning_rate": 0.02, "warmup_steps": 0, "lr_schedule": "constant"},
    }
    seen = {}
    for name, reference in {
        "initial": "initial",
        "mixed": {"initial": 0.3},
        "round": "round",
    }.items():
        _, outputs, _ = go(inputs, tmp_path / name, reference=reference, **given)
        margins = pl.read_parquet(outputs["curve"]).filter(metric="preference/margin")
        seen[name] = margins.sort("step")["value"].to_list()
    assert [each[0] for each in seen.values()] == pytest.approx([0.0] * 3, abs=1e-6)
    assert seen["round"][1] == pytest.approx(0.0, abs=1e-6)
    assert abs(seen["initial"][1]) > 1e-3
    assert seen["mixed"][1] == pytest.approx(0.3 * seen["initial"][1], rel=1e-3)


def test_what_wins_against_a_mixture_is_drawn_from_it(
    guesser, coins_path, probed, tmp_path, monkeypatch
):
    """Nash-MD: the policy's own samples are compared by what they win against the mixture's."""
    shares, sample = [], MixtureRolloutEngine.sample

    def watched(self, prompts, params):
        shares.append(self.share)
        return sample(self, prompts, params)

    monkeypatch.setattr(MixtureRolloutEngine, "sample", watched)
    inputs = {"policy": guesser, "samples": probed, "problems": coins_path}
    given = {"oracle": {"kind": "verifier", "label": "win_rates"}, "reference": {"initial": 0.25}}
    go(inputs, tmp_path, rounds=1, steps=1, opponent="mixture", **given)
    assert shares
    assert set(shares) == {0.25}


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"oracle": "verifier"}, "oracle says what rounds do; set rounds"),
        ({"rounds": 1, "opponent": "mixture"}, "opponent mixture asks .* set reference"),
        (
            {
                "rounds": 1,
                "oracle": {"kind": "verifier", "label": "win_rates"},
                "pairs": {"builder": "margin"},
                "opponent": "mixture",
                "reference": {"initial": 0.5},
            },
            "so pairs.builder builds nothing",
        ),
        (
            {
                "rounds": 1,
                "oracle": {"kind": "verifier", "label": "majority"},
                "pairs": {"builder": "margin"},
            },
            "pairs.builder margin goes by what samples win on average, .* leave oracle.label out",
        ),
        (
            {
                "rounds": 1,
                "oracle": {"kind": "verifier", "label": "win_rates"},
                "pairs": {"builder": "best_worst"},
            },
            "pairs.builder best_worst goes by .* leave oracle.label out",
        ),
        (
            {"rounds": 1, "oracle": "verifier", "opponent": "teacher"},
            "opponent teacher with an oracle ranks .* set pairs.builder to margin or best_worst",
        ),
        ({"opponent": "teacher"}, "opponent says what rounds do; set rounds"),
        (
            {"rounds": 1, "oracle": "verifier", "algorithm": "hinge"},
            "the oracle gives probabilities, but the loss hinge has one side alone",
        ),
        ({"reference": {"initial": 0.5}}, "needs rounds; set rounds"),
    ],
)
def test_an_oracle_that_nobody_asks_is_refused(config, complaint):
    with pytest.raises(UserError, match=complaint):
        TASK.config.parse(config, where="preference")
