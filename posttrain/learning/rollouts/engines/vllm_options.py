"""Options of vLLM that a recipe hands through under vLLM's own names, and those that it may not."""

from collections.abc import Collection, Mapping

from pydantic import JsonValue

from posttrain.stage.errors import nearest

_OWN: Mapping[str, str] = {
    "dtype": "dtype",
    "max_num_seqs": "max_num_seqs",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "enforce_eager": "enforce_eager",
    "kv_cache_memory_bytes": "kv_cache_gib",
    "enable_sleep_mode": "sleep",
}
"""What a field of the engine sets, by vLLM's name."""

_OF_THE_POLICY = (
    *("model", "model_weights", "model_class_overrides", "hf_config_path", "hf_overrides"),
    *("revision", "code_revision", "tokenizer", "tokenizer_mode", "tokenizer_revision"),
    *("skip_tokenizer_init", "load_format", "runner", "convert", "trust_remote_code", "hf_token"),
    *("generation_config", "override_generation_config"),
)
_OF_THE_DRAW = (
    *("logits_processors", "async_scheduling", "speculative_config", "spec_method", "spec_model"),
    *("spec_tokens", "diffusion_config", "watermark", "watermark_config", "scheduler_cls"),
)
_OF_PROCESSES = (
    *("distributed_executor_backend", "worker_cls", "worker_extension_cls", "nnodes", "device_ids"),
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    *("prefill_context_parallel_size", "decode_context_parallel_size"),
)
_ONE_PROCESS = (
    "the engine draws in the stage's own process, on one GPU, where its tokens are those of every"
    " other engine here; a policy that stands still is asked of `vllm serve` by engine server, and"
    " several engines side by side are resources.ray"
)
_REASONS: Mapping[str, str] = {
    **dict.fromkeys(_OF_THE_POLICY, "weights, tokenizer and generation are those of the policy"),
    **dict.fromkeys(
        _OF_THE_DRAW, "the tokens are drawn by posttrain, so that every engine draws the same"
    ),
    **dict.fromkeys(_OF_PROCESSES, _ONE_PROCESS),
}
"""Why an option is not for a recipe to set, by vLLM's name."""


def refused_option(options: Mapping[str, JsonValue]) -> str:
    """Say what is wrong with options that need no vLLM to be looked at.

    Args:
        options: By vLLM's names.

    Returns:
        A sentence on the first that may not be set; empty where all may.

    """
    for name, value in options.items():
        if name in _OWN:
            return f"'{name}' has a field of its own; set engine.{_OWN[name]} instead"
        if name in _REASONS and not (name in _OF_PROCESSES and value == 1):
            return f"'{name}' cannot be set: {_REASONS[name]}; leave it out"
    longest = options.get("max_model_len", 1)
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < 1:
        return f"max_model_len is {longest!r}; give it as a number of tokens"
    return ""


def unknown_option(options: Mapping[str, JsonValue], known: Collection[str]) -> str:
    """Say which option the installed vLLM does not have.

    Args:
        options: By vLLM's names.
        known: Those that it has.

    Returns:
        A sentence; empty where it has all of them.

    """
    name = next((each for each in options if each not in known), None)
    if name is None:
        return ""
    return f"engine.options: vLLM has no option '{name}'{nearest(name, known)}"
