"""vLLM in this process, on the weights of the policy that is being trained."""

import copy
import dataclasses
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from posttrain.learning.models.adapters import plain_weights
from posttrain.learning.models.context import context_length
from posttrain.learning.models.memory import free_memory
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    Sample,
    SamplingParams,
    check_prompts,
)
from posttrain.learning.rollouts.engines.copied_weights import as_stored
from posttrain.learning.rollouts.engines.rng import row_keys
from posttrain.learning.rollouts.engines.stop import end_tokens, text_before, without_end
from posttrain.learning.rollouts.engines.vllm_choice import ROW, Draws, choice_class
from posttrain.learning.rollouts.engines.vllm_options import unknown_option
from posttrain.stage.errors import UserError
from posttrain.stage.extras import package_line
from posttrain.stage.formatting import bytesize

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from posttrain.learning.rollouts.engines.vllm_settings import VllmSettings


_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
_CPU_CACHE_GIB = 1.0

_ENVIRONMENT = {
    # The engine's loop in this process: its weights can be written, and its draws are ours.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Of its two model runners the one that takes logits processors.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    # Threads are the stage's to set.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}


class VllmRolloutEngine:
    """Samples from a policy through vLLM; see `base.RolloutEngine` for the contract.

    The engine holds a copy of the weights. `update` writes the policy's present ones into it, in
    place and from memory: no file, no restart. It must be told so; a change that it was not told
    of is not seen. Keys and values of a prompt are shared by its samples within a call; calls
    share none, as a prompt that is found in the cache rounds otherwise than one that is read.
    A process has one at a time: engines share state, which goes with the first that is closed.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        config: "VllmSettings",
        *,
        policy_version: int = 0,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.config = config
        if beyond := config.beyond_device(lambda: _capability(model.device)):
            raise UserError(beyond)
        # vLLM asks for it once, as it starts.
        os.environ["VLLM_BATCH_INVARIANT"] = str(int(config.batch_invariant))
        self._vllm = import_vllm(model.device)
        _check_engine(self._vllm, model)
        self._choice = choice_class()
        self._process = unchanged_process()
        self._asleep = False
        self._engine = self._start()
        with ExitStack() as refused:
            refused.callback(self.close)
            self._names = self._engine.apply_model(_parameter_names)[0]
            self.update(policy_version)
            refused.pop_all()

    @property
    def context_length(self) -> int:
        """Positions that the model knows, or fewer where the options say so."""
        longest = self.config.options.get("max_model_len")
        return longest if isinstance(longest, int) else context_length(self.model.config)

    def update(self, policy_version: int) -> None:
        """Write the policy's present weights into the engine; later samples carry this version."""
        self._wake()
        weights = as_stored(self.model, plain_weights(self.model, self._names))
        with _refusals():
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self.policy_version = policy_version

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Let vLLM draw, with the random numbers of this tree; see `RolloutEngine.sample`."""
        check_prompts(prompts, context_length=self.context_length)
        if not prompts:
            return []
        self._wake()
        self._engine.reset_prefix_cache()
        rows = [(prompt, index) for prompt in prompts for index in range(params.num_samples)]
        keys = row_keys(params.seed, [prompt.id for prompt in prompts], params.num_samples)
        draws = Draws(params, keys, [[] for _ in rows])
        self._choice.draws = draws
        outputs = self._engine.generate(
            [{"prompt_token_ids": list(prompt.token_ids)} for prompt, _ in rows],
            [self._request(row, params) for row in range(len(rows))],
            use_tqdm=False,
        )
        if self.config.sleep:
            self._engine.sleep(level=1)
            self._asleep = True
        ended = [output.outputs[0] for output in outputs]
        return list(self._samples(rows, ended, draws))

    def close(self) -> None:
        """Give back the engine's memory, and leave the process as it was before."""
        self._engine.llm_engine.engine_core.shutdown()
        del self._engine
        self._process.close()

    def _start(self) -> Any:
        device, config = self.model.device, self.config
        cache_gib = config.kv_cache_gib or (_CPU_CACHE_GIB if device.type == "cpu" else None)
        _check_cache(cache_gib, str(device))
        known = {field.name for field in dataclasses.fields(self._vllm.EngineArgs)}
        if unknown := unknown_option(config.options, known):
            raise UserError(unknown)
        with _refusals(), random_states(), TemporaryDirectory(prefix="posttrain-") as directory:
            write_description(self.model, self.tokenizer, Path(directory))
            arguments: dict[str, Any] = {
                "load_format": "dummy",
                "dtype": _dtype(self.model, config),
                "max_model_len": self.context_length,
                "max_num_seqs": config.max_num_seqs,
                "gpu_memory_utilization": config.gpu_memory_utilization,
                "kv_cache_memory_bytes": int(cache_gib * 2**30) if cache_gib else None,
                "enforce_eager": config.enforce_eager or device.type == "cpu",
                "enable_sleep_mode": config.sleep,
                "enable_prefix_caching": True,
                # The choice of a token needs those before it, which would still be on their way.
                "async_scheduling": False,
                "logits_processors": [self._choice],
            }
            return self._vllm.LLM(directory, **arguments | config.options)

    def _request(self, row: int, params: SamplingParams) -> Any:
        return self._vllm.SamplingParams(
            temperature=0.0,
            max_tokens=params.max_tokens,
            stop=list(params.stop),
            stop_token_ids=end_tokens(self.model, self.tokenizer),
            detokenize=bool(params.stop),
            extra_args={ROW: row},
        )

    def _samples(
        self, rows: Sequence[tuple[Prompt, int]], ended: Sequence[Any], draws: Draws
    ) -> Iterator[Sample]:
        ends = end_tokens(self.model, self.tokenizer)
        texts = self.tokenizer.batch_decode(
            [without_end(output.token_ids, ends) for output in ended], skip_special_tokens=True
        )
        answers = zip(rows, ended, texts, draws.logprobs, strict=True)
        for (prompt, index), output, text, logprobs in answers:
            yield Sample(
                prompt_id=prompt.id,
                index=index,
                token_ids=tuple(output.token_ids),
                logprobs=tuple(logprobs[: len(output.token_ids)]),
                text=text_before(text, draws.params.stop),
                finish_reason=_REASONS[output.finish_reason],
                policy_version=self.policy_version,
            )

    def _wake(self) -> None:
        if self._asleep:
            self._engine.wake_up()
            self._asleep = False


def _parameter_names(model: torch.nn.Module) -> frozenset[str]:
    return frozenset(name for name, _ in model.named_parameters(remove_duplicate=False))


def _capability(device: torch.device) -> tuple[int, int] | None:
    return None if device.type == "cpu" else torch.cuda.get_device_capability(device)


def _check_engine(vllm: Any, model: "PreTrainedModel") -> None:
    """Refuse what vLLM would only find out about in the middle of a batch."""
    if model.device.type != "cpu":
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    text = model.config.get_text_config()
    width = text.to_dict().get("head_dim") or text.hidden_size // text.num_attention_heads
    widths = CPUAttentionBackend.get_supported_head_sizes()
    if width not in widths:
        raise UserError(
            f"engine vllm: its CPU build has no attention for heads of width {width}, only for"
            f" {', '.join(map(str, widths))}; take engine torch, or fewer heads"
        )


def _dtype(model: "PreTrainedModel", config: "VllmSettings") -> str:
    """Named, as vLLM's own `auto` would turn float32 into bfloat16."""
    return str(model.dtype).removeprefix("torch.") if config.dtype == "auto" else config.dtype


def _check_cache(gib: float | None, device: str) -> None:
    """Refuse what is not there: vLLM trusts the number, and so may the kernel until it is used."""
    free = free_memory(device)
    if gib is not None and gib * 2**30 > free:
        raise UserError(
            f"engine vllm: a cache of {gib:g} GiB is asked for, but {bytesize(free)} are free on"
            f" {device}; lower kv_cache_gib or max_num_seqs"
        )


@contextmanager
def _refusals() -> Iterator[None]:
    """A refusal by vLLM, of a model or for want of memory, as one sentence."""
    try:
        yield
    # An architecture that vLLM's own code for it does not start with ends as an AttributeError.
    except (ValueError, RuntimeError, NotImplementedError, AttributeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise UserError(
            f"engine vllm cannot take this policy: {' '.join(lines[:3])}; lower max_num_seqs,"
            " kv_cache_gib or gpu_memory_utilization if it is about memory, else take engine torch"
        ) from error


def import_vllm(device: torch.device) -> Any:
    """The package, told to stay in this process and off the network; `UserError` without it."""
    os.environ.update(_ENVIRONMENT)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        import vllm
    except ModuleNotFoundError as error:
        install = package_line("vllm", device=device.type)
        missing = "" if error.name == "vllm" else f" ({error.name} is missing)"
        raise UserError(
            f"engine vllm is not installed{missing}; run: {install}; or take engine torch"
        ) from None
    return vllm


def unchanged_process() -> ExitStack:
    """Remembers, and on close restores, the random states and torch's functions that vLLM sets."""
    stack = ExitStack()
    stack.callback(setattr, torch, "set_num_threads", torch.set_num_threads)
    return stack


def random_states() -> ExitStack:
    """Keeps the generators of Python, numpy and torch as they are over its context."""
    stack = ExitStack()
    stack.callback(random.setstate, random.getstate())
    stack.callback(np.random.set_state, np.random.get_state())
    stack.enter_context(torch.random.fork_rng())
    return stack


def write_description(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", path: Path
) -> None:
    """Write all that an engine reads of a checkpoint but the weights, which it is handed in memory.

    Args:
        model: Its config and generation config.
        tokenizer: Written whole.
        path: The folder.

    """
    config = copy.deepcopy(model.config)
    # A config that was not read from a file does not say so, and vLLM would have to guess.
    config.architectures = [type(model).__name__]
    config.save_pretrained(path)
    model.generation_config.save_pretrained(path)
    tokenizer.save_pretrained(path)
