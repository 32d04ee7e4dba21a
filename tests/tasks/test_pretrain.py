import random

import polars as pl
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from posttrain.data.rows import TokenTable, encode_rows
from posttrain.data.schemas import Completion, Problem, completions_table
from posttrain.learning.models.load import load_policy, load_tokenizer
from posttrain.learning.models.tokenizer import tokenizer_digest
from posttrain.learning.training.token_batches import next_token_loss
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.pretrain import TASK
from tasks.pretrain.stage import run

SMALL = {"hidden": 16, "layers": 1, "heads": 2, "vocab_size": 290}
FAST = SMALL | {"epochs": 3.0, "batch_tokens": 512, "optimization": {"warmup_steps": 2}}


@pytest.fixture
def places(answers, write, tmp_path):
    return (
        {"corpus": write(answers)},
        {"policy": tmp_path / "policy", "curve": tmp_path / "curve.parquet"},
    )


def quiet(path, **options):
    return StageContext.quiet(path / "scratch", **options)


def test_a_base_model_comes_out_of_nothing_and_plain_transformers_loads_it(places, tmp_path):
    inputs, outputs = places
    metrics = run(TASK.config(**FAST | {"epochs": 8.0}), inputs, outputs, quiet(tmp_path))
    model = AutoModelForCausalLM.from_pretrained(outputs["policy"])
    tokenizer = AutoTokenizer.from_pretrained(outputs["policy"])
    assert model.config.vocab_size == len(tokenizer) <= 290
    assert model.num_parameters() == metrics["pretrain/num_parameters"]
    losses = pl.read_parquet(outputs["curve"]).filter(metric="pretrain/loss")["value"]
    assert losses[-1] < 0.8 * losses[0]


def test_the_raw_corpus_is_used_whole_unverified_rows_included(places, answers, tmp_path):
    inputs, outputs = places
    metrics = run(TASK.config(**FAST | {"epochs": 0.1}), inputs, outputs, quiet(tmp_path))
    assert metrics["pretrain/num_rows"] == len(answers) > answers["verified"].sum()


def test_the_same_seed_gives_the_same_bytes(places, tmp_path):
    inputs, _ = places
    saved = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        outputs = {"policy": tmp_path / name, "curve": tmp_path / f"{name}.parquet"}
        context = StageContext.quiet(tmp_path / f"scratch-{name}", seed=seed)
        run(TASK.config(**FAST | {"epochs": 0.5}), inputs, outputs, context)
        saved.append({path.name: path.read_bytes() for path in outputs["policy"].iterdir()})
    assert saved[0] == saved[1]
    assert saved[0]["model.safetensors"] != saved[2]["model.safetensors"]
    assert saved[0]["tokenizer.json"] == saved[2]["tokenizer.json"]


def test_training_goes_on_from_a_given_policy_and_keeps_its_tokenizer(places, base, tmp_path):
    inputs, outputs = places
    config = TASK.config(
        **FAST | {"hidden": 32, "epochs": 0.1, "optimization": {"learning_rate": 1e-9}}
    )
    run(config, {**inputs, "policy": base}, outputs, quiet(tmp_path))
    assert tokenizer_digest(load_tokenizer(outputs["policy"])) == tokenizer_digest(
        load_tokenizer(base)
    )
    model = AutoModelForCausalLM.from_pretrained(outputs["policy"])
    parent = AutoModelForCausalLM.from_pretrained(base)
    # A vanishing learning rate: the weights are the parent's, not fresh ones of the config's size.
    assert (model.lm_head.weight - parent.lm_head.weight).abs().max() < 1e-6


def test_prompts_bear_loss_unless_told_otherwise(places, tmp_path):
    inputs, outputs = places
    first = {}
    for loud in (True, False):
        config = TASK.config(**FAST | {"epochs": 0.1, "loss_on_prompts": loud})
        run(config, inputs, outputs, StageContext.quiet(tmp_path / str(loud)))
        curve = pl.read_parquet(outputs["curve"])
        first[loud] = curve.filter(metric="pretrain/loss")["value"][0]
    # Equal weights and rows, but a mean over other tokens.
    assert first[True] != first[False]


def loss_of(path, frame):
    """Mean loss of a policy on the raw rows of a frame."""
    policy = load_policy(path)
    prompts, texts = frame["prompt"].to_list(), frame["text"].to_list()
    rows = encode_rows(policy.tokenizer, prompts, texts, mask_prompts=False)
    batch = TokenTable(rows, pad=0).batch(range(len(rows)))
    return next_token_loss(policy.model, batch, float(batch.num_units))[0].item()


def test_a_mixture_teaches_what_it_favors(places, answers, write, tmp_path):
    _, outputs = places
    first_digit = pl.col("prompt").str.slice(0, 1).cast(pl.Int32)
    split = answers.with_columns(
        source=pl.when(first_digit < 5).then(pl.lit("low")).otherwise(pl.lit("high"))
    )
    inputs = {"corpus": write(split, "split")}
    losses = {}
    for favored in ("low", "high"):
        config = TASK.config(**FAST | {"mixture": {favored: 1.0}, "epochs": 8.0})
        run(config, inputs, outputs, StageContext.quiet(tmp_path / favored))
        losses[favored] = {
            name: loss_of(outputs["policy"], split.filter(source=name)) for name in ("low", "high")
        }
    assert losses["low"]["low"] < losses["high"]["low"]
    assert losses["high"]["high"] < losses["low"]["high"]


def test_a_mixture_of_an_unknown_source_is_refused(places, tmp_path):
    inputs, outputs = places
    config = TASK.config(**FAST | {"mixture": {"middle": 1.0}})
    with pytest.raises(UserError, match="mixture names 'middle', which has no row"):
        run(config, inputs, outputs, quiet(tmp_path))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"hidden": 20, "heads": 4}, "hidden 20 does not split into 4 heads .* multiple of 8"),
        ({"mixture": {"a": 0.0}}, "mixture gives 'a' the share 0.0"),
        ({"vocab_size": 100}, "vocab_size"),
    ],
)
def test_nonsense_is_refused_with_a_remedy(values, sentence):
    with pytest.raises(UserError, match=sentence):
        TASK.config.parse(values, where="pretrain")


def test_adapters_on_nothing_are_refused(places, tmp_path):
    inputs, outputs = places
    config = TASK.config(**FAST | {"learner": {"lora": {}}})
    with pytest.raises(UserError, match="this one begins from nothing; leave learner.lora out"):
        run(config, inputs, outputs, quiet(tmp_path))


def test_the_context_of_a_new_model_holds_the_rows_whatever_their_length(places, write, tmp_path):
    """Texts of 600 letters, which a vocabulary of bytes spells in as many tokens."""
    _, outputs = places
    problems = [Problem("long", f"{index} =", "1", 1, "exact") for index in range(8)]
    texts = ["".join(random.Random(index).choices("abcdefghijklmnop", k=600)) for index in range(8)]
    rows = [
        Completion(problem, text, "teacher", 1.0, True, "correct")
        for problem, text in zip(problems, texts, strict=True)
    ]
    inputs = {"corpus": write(completions_table(rows))}
    fast = FAST | {"vocab_size": 259, "steps": 1}
    metrics = run(TASK.config(**fast), inputs, outputs, quiet(tmp_path))
    config = AutoModelForCausalLM.from_pretrained(outputs["policy"]).config
    needed = metrics["pretrain/row_tokens"]
    assert needed > 600
    assert 1.25 * needed <= config.max_position_embeddings == metrics["pretrain/max_length"]
    assert metrics["pretrain/num_too_long"] == 0
    with pytest.raises(UserError, match="100% of the rows are longer than max_length 512"):
        run(TASK.config(**fast, max_length=512), inputs, outputs, quiet(tmp_path))


def test_short_rows_leave_the_context_at_what_it_was(places, tmp_path):
    inputs, outputs = places
    saved = []
    for name, values in (("auto", {}), ("stated", {"max_length": 512})):
        made = {**outputs, "policy": tmp_path / name}
        config = TASK.config(**FAST | {"steps": 1}, **values)
        run(config, inputs, made, StageContext.quiet(tmp_path / f"scratch-{name}"))
        saved.append({path.name: path.read_bytes() for path in made["policy"].iterdir()})
    assert saved[0] == saved[1]
