"""What is handed through to vLLM, and what is refused before anything is started."""

import pytest
from pydantic import TypeAdapter

from posttrain.learning.rollouts.engines.config import EngineConfig
from posttrain.learning.rollouts.engines.kinds.vllm import VllmEngine
from posttrain.learning.rollouts.engines.vllm_options import unknown_option


def test_options_are_in_the_identity_where_they_are_given():
    engine = TypeAdapter(EngineConfig).validate_python(
        {"kind": "vllm", "options": {"max_model_len": 4096, "quantization": "fp8"}}
    )
    assert engine.options == {"max_model_len": 4096, "quantization": "fp8"}
    assert engine.model_dump()["options"] == engine.options
    assert "options" not in VllmEngine().model_dump()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dtype": "half"}, "'dtype' has a field of its own; set engine.dtype instead"),
        ({"kv_cache_memory_bytes": 9}, "set engine.kv_cache_gib instead"),
        ({"speculative_config": {}}, "'speculative_config' cannot be set: the tokens are drawn by"),
        ({"hf_overrides": {}}, "those of the policy; leave it out"),
        ({"tensor_parallel_size": 2}, "in the stage's own process, on one GPU"),
        ({"max_model_len": "4k"}, "max_model_len is '4k'; give it as a number of tokens"),
        ({"max_model_len": 0}, "max_model_len is 0; give it as a number of tokens"),
    ],
)
def test_what_would_draw_other_tokens_is_refused_by_the_recipe(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        VllmEngine(options=options)


def test_one_process_may_be_said():
    assert VllmEngine(options={"tensor_parallel_size": 1}).options == {"tensor_parallel_size": 1}


def test_an_option_that_the_installed_one_lacks_is_named_with_its_nearest():
    known = {"max_model_len", "block_size"}
    assert unknown_option({"block_size": 16}, known) == ""
    assert unknown_option({"block_sise": 16}, known) == (
        "engine.options: vLLM has no option 'block_sise'; did you mean 'block_size'?"
    )
