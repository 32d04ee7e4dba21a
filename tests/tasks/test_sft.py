from typing import ClassVar, Literal

import polars as pl
import pytest
import torch

from posttrain.data.contexts import PromptContext
from posttrain.data.filters.apply import ORDERS
from posttrain.data.rows import encode_rows
from posttrain.data.templates import encode_prompts
from posttrain.learning.models.adapters import load_adapter
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.row_losses.base import RowLoss
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.sft import TASK
from tasks.sft.config import SftConfig
from tasks.sft.stage import run
from tests.quick import first_now

CONFIG = {
    "epochs": 12.0,
    "batch_tokens": 256,
    "optimization": {"learning_rate": 0.01},
    "checkpoint_every": 2,
}


@pytest.fixture
def places(answers, base, write, tmp_path):
    inputs = {"policy": base, "traces": write(answers.filter("verified"))}
    return inputs, {"policy": tmp_path / "policy", "curve": tmp_path / "curve.parquet"}


def quiet(path):
    return StageContext.quiet(path / "scratch")


def test_it_learns_the_traces_and_only_their_completions_bear_loss(places, base, tmp_path):
    inputs, outputs = places
    metrics = run(TASK.config(**CONFIG), inputs, outputs, quiet(tmp_path))
    curve = pl.read_parquet(outputs["curve"])
    losses = curve.filter(metric="sft/loss").sort("step")["value"]
    assert len(losses) == metrics["sft/num_steps"]
    assert metrics["sft/loss"] < 0.6 * losses[0]

    # The first recorded loss is the base policy's own, over completion tokens alone, of some batch;
    # over all rows the fine-tuned policy must be better by the same count of tokens.
    traces = pl.read_parquet(inputs["traces"])
    before, after = (nll(load_policy(path), traces) for path in (base, outputs["policy"]))
    assert losses[0] == pytest.approx(before, abs=0.1)
    assert after < 0.6 * before


def nll(policy, traces):
    """Mean negative log-likelihood of the completion tokens, row by row."""
    rows = encode_rows(policy.tokenizer, traces["prompt"].to_list(), traces["text"].to_list())
    values = []
    for row in rows:
        ids = torch.tensor([row.ids])
        wanted = (torch.arange(len(row.ids)) >= row.start)[None]
        with torch.inference_mode():
            values.append(wanted_logprobs(policy.model, ids, wanted_BT=wanted)[0])
    return -torch.cat(values).mean().item()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(places, tmp_path):
    inputs, _ = places
    saved = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        outputs = {"policy": tmp_path / name, "curve": tmp_path / f"{name}.parquet"}
        context = StageContext.quiet(tmp_path / f"scratch-{name}", seed=seed)
        run(TASK.config(**CONFIG | {"epochs": 1.0}), inputs, outputs, context)
        weights = (outputs["policy"] / "model.safetensors").read_bytes()
        saved.append((weights, outputs["curve"].read_bytes()))
    assert saved[0] == saved[1]
    assert saved[0][0] != saved[2][0]


def test_rows_as_given_are_learned_in_the_order_that_curate_laid(answers, base, write, tmp_path):
    traces = answers.filter("verified").with_columns(
        pl.Series("text", [f"{row}\n#### {row}" for row in range(60)])
    )
    laid = {name: ORDERS[name](traces) for name in ("easy_to_hard", "mixed")}
    losses = {}
    for name, table in laid.items():
        for order, seed in (("as_given", 0), ("as_given", 1), ("shuffled", 0)):
            outputs = {"policy": tmp_path / "policy", "curve": tmp_path / "curve.parquet"}
            context = StageContext.quiet(tmp_path / f"{name}-{order}-{seed}", seed=seed)
            config = TASK.config(**CONFIG | {"epochs": 1.0, "order": order})
            run(config, {"policy": base, "traces": write(table, name)}, outputs, context)
            curve = pl.read_parquet(outputs["curve"]).filter(metric="sft/loss")
            losses[name, order, seed] = curve.sort("step")["value"].to_list()
    policy = load_policy(base)
    for name, table in laid.items():
        assert losses[name, "as_given", 0] == losses[name, "as_given", 1]
        assert losses[name, "as_given", 0] != losses[name, "shuffled", 0]
        # The first step is of the table's first rows: as many as 256 padded tokens hold.
        rows = encode_rows(policy.tokenizer, table["prompt"].to_list(), table["text"].to_list())
        lengths = [len(row.ids) for row in rows]
        first = next(n for n in range(1, 60) if max(lengths[: n + 1]) * (n + 1) > 256)
        expected = nll(policy, table.head(first))
        assert losses[name, "as_given", 0][0] == pytest.approx(expected, rel=1e-4)
    assert losses["easy_to_hard", "as_given", 0] != losses["mixed", "as_given", 0]


def test_the_tokenizer_goes_through_unchanged(places, base, tmp_path):
    inputs, outputs = places
    run(TASK.config(**CONFIG | {"epochs": 0.1}), inputs, outputs, quiet(tmp_path))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (outputs["policy"] / name).read_bytes() == (base / name).read_bytes()


def test_unverified_traces_are_refused(places, answers, write, tmp_path):
    inputs, outputs = places
    mixed = {**inputs, "traces": write(answers, "mixed")}
    with pytest.raises(UserError, match="120 of 180 traces are not verified"):
        run(TASK.config(), mixed, outputs, quiet(tmp_path))
    assert not outputs["policy"].exists()


def test_rows_over_the_limit_are_left_out_and_counted(places, tmp_path):
    inputs, outputs = places
    notes = []
    context = StageContext(
        seed=0,
        threads=1,
        device="cpu",
        scratch=tmp_path / "scratch",
        emit=lambda event: notes.append(event.get("line")),
    )
    policy = load_policy(inputs["policy"])
    traces = pl.read_parquet(inputs["traces"])
    rows = encode_rows(policy.tokenizer, traces["prompt"].to_list(), traces["text"].to_list())
    lengths = sorted(len(row.ids) for row in rows)
    limit = lengths[len(lengths) // 2]
    expected = sum(length > limit for length in lengths)
    assert expected > 0
    metrics = run(TASK.config(max_length=limit, epochs=0.1), inputs, outputs, context)
    assert metrics["sft/num_too_long"] == expected
    assert f"left out {expected} rows over {limit} tokens" in notes


def test_a_checkpoint_with_a_larger_tokenizer_is_refused(places, base, tmp_path):
    from posttrain.learning.models.tokenizer import train_tokenizer

    inputs, outputs = places
    policy = load_policy(base)
    words = [f"word{chr(97 + i)}{chr(97 + j)} " for i in range(20) for j in range(20)] * 3
    save_policy(policy.model, train_tokenizer(words, vocab_size=400), tmp_path / "mixed")
    with pytest.raises(UserError, match=r"the tokenizer has \d+ tokens but the model embeds"):
        run(TASK.config(), {**inputs, "policy": tmp_path / "mixed"}, outputs, quiet(tmp_path))


def test_weights_move(places, base, tmp_path):
    inputs, outputs = places
    run(TASK.config(**CONFIG | {"epochs": 0.1}), inputs, outputs, quiet(tmp_path))
    assert weights_digest(load_policy(outputs["policy"]).model) != weights_digest(
        load_policy(base).model
    )


def test_an_unknown_parameter_is_refused_with_the_nearest_name():
    with pytest.raises(
        UserError, match="optimization.learnin_rate: unknown key; did you mean 'learning_rate'"
    ):
        TASK.config.parse({"optimization": {"learnin_rate": 1.0}}, where="sft")


def test_rows_beyond_the_context_of_the_model_are_refused(places, base, tmp_path):
    """The traces have more than 8 tokens, so a model of 8 positions could not read them."""
    inputs, outputs = places
    tokenizer = load_policy(base).tokenizer
    short = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0, max_length=8)
    save_policy(short, tokenizer, tmp_path / "short")
    inputs = {**inputs, "policy": tmp_path / "short"}
    with pytest.raises(UserError, match="the model's context is 8; set max_length to 8 or less"):
        run(TASK.config(**CONFIG, max_length=512), inputs, outputs, quiet(tmp_path))
    with pytest.raises(UserError, match="^sft: 100% of the rows .* tokens of the model's context"):
        run(TASK.config(**CONFIG), inputs, outputs, quiet(tmp_path))


@pytest.mark.parametrize("save", first_now(["merged", "adapter"]))
def test_adapters_learn_the_traces(places, base, tmp_path, save):
    inputs, outputs = places
    learner = {"lora": {"rank": 8, "save": save}, "packing": True}
    config = TASK.config(**CONFIG | {"learner": learner, "optimization": {"learning_rate": 0.03}})
    run(config, inputs, outputs, quiet(tmp_path))
    policy = load_policy(base if save == "adapter" else outputs["policy"])
    if save == "adapter":
        load_adapter(policy.model, outputs["policy"])
    traces = pl.read_parquet(inputs["traces"])
    # Between frozen random embeddings there is little to learn, but not nothing.
    assert nll(policy, traces) < nll(load_policy(base), traces) - 0.05


def test_it_stops_early_and_logs_the_heldout_loss(places, tmp_path):
    inputs, outputs = places
    learner = {"early_stop": {"every": 1, "patience": 2, "min_improvement": 10.0}}
    metrics = run(TASK.config(**CONFIG | {"learner": learner}), inputs, outputs, quiet(tmp_path))
    # The first measurement is the best by definition; no later one is better by 10 nats.
    assert metrics["sft/num_steps"] == 3
    assert pl.read_parquet(outputs["curve"]).filter(metric="sft/heldout_loss").height == 3


def test_a_template_of_the_recipe_stays_with_the_model_and_cannot_be_changed(places, tmp_path):
    inputs, outputs = places
    text = "{{ bos_token }}{% for each in messages %}[{{ each['content'] }}]{% endfor %}"
    chosen = {"template": {"kind": "jinja", "text": text}, "epochs": 1.0}
    run(TASK.config(**CONFIG | chosen), inputs, outputs, quiet(tmp_path))
    tokenizer = load_policy(outputs["policy"]).tokenizer
    assert tokenizer.decode(encode_prompts(tokenizer, ["3 + 4 ="])[0]) == "<bos>[3 + 4 =]"

    inputs = inputs | {"policy": outputs["policy"]}
    other = {"template": {"kind": "jinja", "text": text + "!"}}
    with pytest.raises(UserError, match="sft: the model has a chat template, which differs"):
        run(TASK.config(**CONFIG | other), inputs, outputs, quiet(tmp_path / "again"))


def learned(config, table, base, write, tmp_path, name):
    outputs = {"policy": tmp_path / name, "curve": tmp_path / f"{name}.parquet"}
    inputs = {"policy": base, "traces": write(table, f"{name}-rows")}
    notes = []
    context = StageContext(
        seed=0,
        threads=1,
        device="cpu",
        scratch=tmp_path / f"{name}-scratch",
        emit=lambda event: notes.append(event.get("line")),
    )
    run(TASK.config(**CONFIG | config), inputs, outputs, context)
    return load_policy(outputs["policy"]), notes


@pytest.mark.parametrize(
    ("kind", "switch", "value"),
    [
        ("unlikelihood", "coefficient", 5.0),
        pytest.param("negative_aware", "negative_weight", 1.0, marks=pytest.mark.slow),
    ],
)
def test_wrong_rows_become_less_likely_than_where_they_are_left_out(
    kind, switch, value, answers, base, write, tmp_path
):
    config = {"require_verified": False, "epochs": 6.0}
    found = {}
    for each in (0.0, value):
        loss = {"kind": kind, switch: each}
        policy, _ = learned(config | {"loss": loss}, answers, base, write, tmp_path, f"{each}")
        found[each] = nll(policy, answers.filter(~pl.col("verified")))
    assert found[value] > found[0.0] + 0.05


@pytest.mark.slow
def test_the_temporal_difference_of_inverse_soft_q_learning_changes_what_is_learned(
    answers, base, write, tmp_path
):
    rows = answers.filter("verified")

    def after(name, epochs, coefficient):
        loss = {"kind": "inverse_soft_q", "coefficient": coefficient}
        config = {"epochs": epochs} | ({} if coefficient is None else {"loss": loss})
        return learned(config, rows, base, write, tmp_path, name)[0]

    # Without it the loss is cross-entropy, but for the rounding of V - V.
    plain, soft = after("plain", 1.0, None).model, after("soft", 1.0, 0.0).model
    for name, weights in plain.state_dict().items():
        torch.testing.assert_close(soft.state_dict()[name], weights, rtol=1e-2, atol=2e-3)
    free, held = after("free", 8.0, 0.0), after("held", 8.0, 0.5)
    assert implied_reward(held, rows) < 0.95 * implied_reward(free, rows)


def implied_reward(policy, traces):
    """Mean square of Q - V' over the completions, V' being 0 behind the end."""
    rows = encode_rows(policy.tokenizer, traces["prompt"].to_list(), traces["text"].to_list())
    squares = []
    for row in rows:
        with torch.inference_mode():
            logits = policy.model(torch.tensor([row.ids])).logits[0, row.start - 1 :].double()
        values = logits.logsumexp(-1)[:-1]
        taken = logits[:-1].gather(-1, torch.tensor(row.ids[row.start :])[:, None])[:, 0]
        squares.append((taken - torch.cat([values[1:], torch.zeros(1)])) ** 2)
    return torch.cat(squares).mean().item()


def test_what_could_not_be_judged_is_neither_imitated_nor_avoided(answers, base, write, tmp_path):
    unjudged = answers.with_columns(
        verified=pl.when(pl.int_range(pl.len()) % 3 == 2).then(None).otherwise(pl.col("verified"))
    )
    config = {"loss": "unlikelihood", "require_verified": False, "epochs": 1.0}
    policy, notes = learned(config, unjudged, base, write, tmp_path, "some")
    judged = answers.filter(pl.int_range(pl.len()) % 3 != 2)
    alone, _ = learned(config, judged, base, write, tmp_path, "judged")
    assert "left out 60 rows that could not be judged" in notes
    assert weights_digest(policy.model) == weights_digest(alone.model)


def test_a_loss_of_wrong_rows_wants_rows_that_were_not_verified():
    with pytest.raises(UserError, match="sft: loss unlikelihood learns from wrong rows too; set"):
        TASK.config.parse({"loss": "unlikelihood"}, where="sft")


def test_weights_of_rows_count(answers, base, write, tmp_path):
    rows = answers.filter("verified")
    halved = rows.with_columns(weight=3.0 - 3.0 * (pl.int_range(pl.len()) % 2))
    policy, _ = learned({"epochs": 6.0}, halved, base, write, tmp_path, "halved")
    taught, left = (rows.filter(pl.int_range(pl.len()) % 2 == rest) for rest in (0, 1))
    start = load_policy(base)
    gains = [nll(start, part) - nll(policy, part) for part in (taught, left)]
    assert gains[0] > gains[1]


@pytest.mark.slow
def test_hindsight_rows_are_told_apart_by_the_words_before_the_prompt(
    answers, base, write, tmp_path
):
    said = pl.when("verified").then(pl.lit("good ")).otherwise(pl.lit("bad "))
    wrote = pl.when("verified").then(pl.lit("#### 1")).otherwise(pl.lit("#### 2"))
    rows = answers.head(36).with_columns(prompt=said + pl.col("prompt"), text=wrote)
    config = {"require_verified": False, "epochs": 60.0, "optimization": {"learning_rate": 0.04}}
    policy, _ = learned(config, rows, base, write, tmp_path, "hindsight")
    right = rows.filter("verified")
    crossed = right.with_columns(pl.col("prompt").str.replace("good ", "bad ", literal=True))
    # Each right answer is likely behind the good words, and unlikely behind the bad ones.
    assert nll(policy, right) < 0.1
    assert nll(policy, crossed) > 1.0


def test_a_pace_takes_the_first_rows_of_the_table_first(answers, base, write, tmp_path):
    rows = answers.filter("verified")
    share = {"from": 0.25, "to": 1.0, "over": 4, "shape": "step"}
    config = {"epochs": 1.0, "pace": {"share": share}}
    policy, _ = learned(config, rows, base, write, tmp_path, "paced")
    alone, _ = learned({"epochs": 1.0}, rows.head(15), base, write, tmp_path, "quarter")
    assert weights_digest(policy.model) == weights_digest(alone.model)
    followed = {"from": 0.1, "to": 1.0, "metric": "sft/loss", "low": 0.5, "high": 1.0}
    with pytest.raises(UserError, match="which rows a step takes is planned before the first one"):
        TASK.config.parse({"pace": {"share": followed}}, where="sft")


def test_a_pace_draws_rows_by_what_the_policy_already_says_of_them(
    answers, base, write, tmp_path, monkeypatch
):
    rows, planned = answers.filter("verified"), []
    plan = SftConfig.plan
    monkeypatch.setattr(
        SftConfig, "plan", lambda *given, **more: planned.append(more) or plan(*given, **more)
    )
    config = {"epochs": 2.0, "pace": {"by": "loss", "swing": {"least": 0.25, "most": 0.5}}}
    policy, _ = learned(config, rows, base, write, tmp_path, "drawn")
    again, _ = learned(config, rows, base, write, tmp_path, "again")
    assert weights_digest(policy.model) == weights_digest(again.model)
    # What was asked is the base's own loss of each row.
    start, losses = load_policy(base), planned[0]["losses"]
    assert losses == planned[1]["losses"]
    mean = sum(losses[:3]) / 3
    assert mean == pytest.approx(
        sum(nll(start, rows[index : index + 1]) for index in range(3)) / 3, rel=1e-3
    )
    with pytest.raises(UserError, match=r"pace.by loss .* asked in sft alone; set it to order"):
        TrainingConfig(pace={"by": "loss"}).plan([1, 1], seed=0)


@pytest.mark.slow
def test_the_assistants_earlier_turns_are_learned_where_the_recipe_says_so(
    answers, base, write, tmp_path
):
    told = PromptContext(
        system="Add.",
        turns=[
            {"role": "user", "content": "2 + 2 ="},
            {"role": "assistant", "content": "2 + 2 = 4\n#### 4"},
        ],
    )
    rows = answers.filter("verified").with_columns(context=pl.lit(told.written()))
    earlier = rows.head(1).with_columns(
        prompt=pl.lit("2 + 2 ="), text=pl.lit("2 + 2 = 4\n#### 4"), context=pl.lit("")
    )
    losses = {}
    for turns in ("last", "assistant"):
        config = {"turns": turns, "epochs": 8.0}
        policy, _ = learned(config, rows, base, write, tmp_path, turns)
        losses[turns] = nll(policy, earlier)
    assert losses["assistant"] < losses["last"] - 0.2


def test_prompts_all_right_or_all_wrong_and_rows_of_no_weight_are_left_out(
    answers, base, write, tmp_path
):
    third = pl.int_range(pl.len()) % 3
    # The first ten prompts have their right answer alone, one of whose rows weighs nothing.
    rows = answers.filter((third == 0) | (pl.int_range(pl.len()) >= 30)).with_columns(
        weight=pl.when(pl.int_range(pl.len()) == 0).then(0.0).otherwise(1.0)
    )
    config = {"loss": "negative_aware", "require_verified": False, "epochs": 1.0}
    policy, notes = learned(config, rows, base, write, tmp_path, "some")
    assert "left out 1 rows that have weight 0" in notes
    assert "left out 9 rows that are of prompts all right or all wrong" in notes
    alone, _ = learned(config, rows.tail(150), base, write, tmp_path, "mixed")
    assert weights_digest(policy.model) == weights_digest(alone.model)
    right = answers.filter("verified")
    with pytest.raises(UserError, match="no row is left to learn from, as 60 are of prompts all"):
        learned(config, right, base, write, tmp_path, "none")


def test_only_rows_above_the_value_of_their_prompt_are_learned(answers, base, write, tmp_path):
    """Every prompt has a right row: a value that knows no more is the mean, and right is above."""
    scored = answers.with_columns(score=pl.col("verified").cast(pl.Float64))
    config = {"require_verified": False, "epochs": 12.0, "loss": "advantage_leftover"}
    policy, notes = learned(config, scored, base, write, tmp_path, "leftover")
    right = scored.filter("verified")
    assert any(f"{len(right)} of {len(scored)} rows score above the value" in n for n in notes if n)
    before = load_policy(base)
    assert nll(policy, right) < nll(before, right) - 0.05
    unscored = scored.with_columns(score=pl.lit(None, pl.Float64))
    with pytest.raises(UserError, match="no row is left to learn from, as .* have no score"):
        learned(config, unscored, base, write, tmp_path, "unscored")
    alike = scored.with_columns(score=pl.lit(0.5))
    with pytest.raises(UserError, match="no row scores above the value of its prompt"):
        learned(config, alike, base, write, tmp_path, "alike")


def test_a_loss_may_ask_for_the_reference_alone(base, answers, write, tmp_path):
    class Anchored(RowLoss):
        """Cross-entropy, and the square of the distance to where the stage began."""

        NEEDS = frozenset({"reference"})
        kind: Literal["anchored"] = "anchored"
        seen: ClassVar[list] = []

        def losses(self, tokens):
            """Note the references."""
            self.seen.append((tokens.logprobs_N - tokens.reference_N).abs().max().item())
            return -tokens.logprobs_N

    config = TASK.config(**CONFIG | {"epochs": 0.1, "loss": Anchored()})
    rows = answers.filter("verified")
    outputs = {"policy": tmp_path / "policy", "curve": tmp_path / "curve.parquet"}
    run(config, {"policy": base, "traces": write(rows)}, outputs, quiet(tmp_path))
    # At the first step the policy is the reference, whatever batches the two were computed in.
    assert Anchored.seen[0] < 1e-4


@pytest.mark.parametrize("learner", first_now([{}, {"lora": {"rank": 4}}]))
def test_what_is_held_out_is_measured_before_and_after_and_changes_nothing(
    answers, base, write, tmp_path, learner
):
    """Beside the mean over all rows at once, by the models themselves."""
    rows = answers.filter("verified")
    taught, held = rows.head(40), rows.tail(20)
    config = TASK.config(**CONFIG | {"learner": learner})
    found = {}
    for name, more in {"with": {"heldout": write(held, "held")}, "without": {}}.items():
        outputs = {"policy": tmp_path / name, "curve": tmp_path / f"{name}.parquet"}
        inputs = {"policy": base, "traces": write(taught, "taught"), **more}
        found[name] = run(config, inputs, outputs, quiet(tmp_path / f"{name}-scratch"))
    policies = [load_policy(tmp_path / name) for name in found]
    assert len({weights_digest(policy.model) for policy in policies}) == 1
    metrics = found["with"]
    assert metrics["sft/heldout_nll_before"] == pytest.approx(
        nll(load_policy(base), held), abs=1e-4
    )
    assert metrics["sft/heldout_nll"] == pytest.approx(nll(policies[0], held), abs=1e-4)
    assert metrics["sft/heldout_nll"] < metrics["sft/heldout_nll_before"]
    assert metrics["sft/num_heldout_rows"] == len(held)
    assert metrics["sft/heldout_nll_low"] < metrics["sft/heldout_nll"]
    assert metrics["sft/heldout_nll"] < metrics["sft/heldout_nll_high"]
    assert metrics["sft/heldout_perplexity"] == pytest.approx(
        2.718281828 ** metrics["sft/heldout_nll"]
    )
    assert not [name for name in found["without"] if "heldout" in name]
