"""Tokenizer, chat template, special tokens and generation config come out as they went in."""

import json

import pytest
import torch
import transformers as hf
from tokenizers import AddedToken, Tokenizer

from posttrain.data.schemas import Completion, completions_table
from posttrain.learning.models.load import load_tokenizer
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.context import StageContext
from tasks.import_model.config import ImportModelConfig
from tasks.import_model.stage import run as import_model
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run as rl
from tasks.sft.config import SftConfig
from tasks.sft.stage import run as sft

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXTS = (
    "2 + 3",
    "<|im_start|>user\nhi <img> <tool> x   wide y<|im_end|>",
    " lead",
    "\u00e9e\u0301",
)
GENERATION = {
    **{"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20},
    **{"repetition_penalty": 1.05, "max_new_tokens": 2048, "bos_token_id": 1, "pad_token_id": 0},
}
OPTIONS = {
    **{"eos_token": "<|im_end|>", "model_max_length": 131072, "padding_side": "left"},
    **{"clean_up_tokenization_spaces": False, "of_its_own": "kept"},
    # A class whose own tokenizer has another vocabulary and cuts text in other ways.
    "tokenizer_class": "LlamaTokenizerFast",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A model's folder as it comes: tokens that were added, several end tokens, opinions."""
    folder = tmp_path_factory.mktemp("source") / "model"
    tokenizer = train_tokenizer(["2 + 3 = 5\n#### 5 up down user assistant"] * 3, vocab_size=270)
    tokenizer.add_tokens(
        [AddedToken("<tool>", normalized=False), AddedToken("  wide", lstrip=True)]
    )
    special = [AddedToken(each, special=True) for each in ("<|im_start|>", "<|im_end|>", "<img>")]
    tokenizer.add_tokens(special, special_tokens=True)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = hf.Qwen2Config(
        vocab_size=288, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        eos_token_id=end, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    hf.Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    changed(folder / "tokenizer_config.json", OPTIONS)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    # Many ends, so that answers of a random model differ in length, which is rewarded below.
    ends = [end, 2, *range(10, 90)]
    (folder / "generation_config.json").write_text(json.dumps({**GENERATION, "eos_token_id": ends}))
    return folder


def changed(file, options):
    file.write_text(json.dumps({**read(file), **options}))


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made(source, coins, coins_path, tmp_path_factory):
    """The folder of the policy after each stage, by its name."""
    folder = tmp_path_factory.mktemp("made")

    def step(stage, name, config, inputs, *files):
        outputs = {each: folder / name / each for each in ("policy", *files)}
        (folder / name).mkdir()
        stage(config, inputs, outputs, StageContext.quiet(folder / name / "scratch"))
        return outputs["policy"]

    traces = [Completion(each, each.answer, "teacher", 1.0, True, "correct") for each in coins]
    table = folder / "traces.parquet"
    completions_table(traces).write_parquet(table)
    given = {"files.model": source}
    base = step(import_model, "imported", ImportModelConfig(path="m"), given, "report")
    tuned = step(sft, "tuned", SftConfig(steps=1), {"policy": base, "traces": table}, "curve")
    brief = {"correct": "verifier", "brief": {"kind": "shortness", "scale": 0.1}}
    config = RlStageConfig(
        steps=1, problems_per_step=4, group_size=4, max_tokens=8,
        reward={"components": brief, "bonus_may_outweigh": True},
    )  # fmt: skip
    inputs = {"policy": tuned, "problems": coins_path}
    last = step(rl, "reinforced", config, inputs, "rollouts", "curve", "report")
    return {"imported": base, "tuned": tuned, "reinforced": last}


@pytest.mark.parametrize("stage", ["imported", "tuned", "reinforced"])
def test_text_becomes_the_tokens_that_the_file_says(source, made, stage):
    filed, kept = Tokenizer.from_file(str(source / "tokenizer.json")), load_tokenizer(made[stage])
    for text in TEXTS:
        ids = filed.encode(text).ids
        assert kept(text).input_ids == ids
        assert kept.decode(ids, skip_special_tokens=False) == filed.decode(
            ids, skip_special_tokens=False
        )
    assert (made[stage] / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    assert {str(token): token.lstrip for token in kept.added_tokens_decoder.values()}["  wide"]


@pytest.mark.parametrize("stage", ["imported", "tuned", "reinforced"])
def test_template_and_settings_come_out_but_for_what_is_named(source, made, stage):
    folder = made[stage]
    assert (folder / "chat_template.jinja").read_text() == TEMPLATE
    before, after = (read(each / "tokenizer_config.json") for each in (source, folder))
    # Its class follows tokenizer.json from now on, in transformers' own words.
    assert after.pop("tokenizer_class") == "TokenizersBackend"
    assert before.pop("tokenizer_class") == "LlamaTokenizerFast"
    assert after == before
    loaded = load_tokenizer(folder)
    assert (loaded.pad_token, loaded.eos_token, loaded.padding_side) == (
        "<pad>",
        "<|im_end|>",
        "left",
    )


@pytest.mark.parametrize("stage", ["imported", "tuned", "reinforced"])
def test_sampling_defaults_and_all_end_tokens_are_kept(source, made, stage):
    before, after = (read(each / "generation_config.json") for each in (source, made[stage]))
    assert after.pop("transformers_version") == hf.__version__
    assert after == before
    config = read(made[stage] / "config.json")
    stated = read(source / "config.json")
    assert {key: config[key] for key in stated if key.endswith("_token_id")} == {
        key: value for key, value in stated.items() if key.endswith("_token_id")
    }


def test_a_pad_token_is_added_where_there_is_none(source, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    settings = read(folder / "tokenizer_config.json")
    del settings["pad_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    loaded = load_tokenizer(folder)
    assert loaded.pad_token == loaded.eos_token == "<|im_end|>"
