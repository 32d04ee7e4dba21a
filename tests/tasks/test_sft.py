import polars as pl
import pytest
import torch

from posttrain.data.filters.apply import ORDERS
from posttrain.data.rows import encode_rows
from posttrain.data.templates import encode_prompts
from posttrain.learning.models.adapters import load_adapter
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import load_policy, save_policy, weights_digest
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.sft import TASK
from tasks.sft.stage import run

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
    with pytest.raises(UserError, match="the model's context is 8; set max_length to 8 or less"):
        run(
            TASK.config(**CONFIG),
            {**inputs, "policy": tmp_path / "short"},
            outputs,
            quiet(tmp_path),
        )


@pytest.mark.parametrize("save", ["merged", "adapter"])
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
    assert nll(policy, traces) < nll(load_policy(base), traces) - 0.1


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
