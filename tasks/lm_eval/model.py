"""A policy as lm-evaluation-harness asks one: likelihoods by torch, answers by our engines."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from posttrain.data.templates import BORDER, render_turns
from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import Prompt, RolloutEngine, SamplingParams
from posttrain.stage.errors import UserError

Scored = tuple[float, bool]
"""Log-likelihood of a continuation in nats, and whether greedy decoding would write it."""

_KNOWN = {
    "do_sample", "max_gen_toks", "max_length", "max_tokens", "max_new_tokens", "temperature",
    "top_k", "top_p", "until",
}  # fmt: skip


class PolicyLM(TemplateLM):  # type: ignore[misc]
    """Answers the harness's three kinds of requests.

    Where prompts are messages, a prompt and what follows are tokenized apart and joined, as every
    stage does; else together, as the harness has it.
    """

    def __init__(
        self,
        policy: Policy,
        engine: RolloutEngine,
        *,
        as_messages: bool,
        batch_size: int,
        max_tokens: int,
        seed: int,
        progress: Callable[[int, int], None],
    ) -> None:
        super().__init__()
        self.model, self.tokenizer = policy.model, policy.tokenizer
        self.engine, self.seed = engine, seed
        self.as_messages, self.rows, self.max_tokens = as_messages, batch_size, max_tokens
        self.progress = progress
        self.num_cut = 0
        """Prompts that were cut on the left to fit into the context."""

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        """What a text without a beginning follows: the opening token, where there is one."""
        opening = self.tokenizer.bos_token_id
        return self.eot_token_id if opening is None else int(opening)

    @property
    def tokenizer_name(self) -> str:
        """Name of the tokenizer; nothing is cached under it."""
        return "policy"

    def chat_template(self, chat_template: bool | str = False) -> str:  # noqa: ARG002
        """Return the policy's template, empty where it has none."""
        return str(self.tokenizer.chat_template or "")

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Write messages as stages do."""
        if not self.tokenizer.chat_template:
            return "".join(each["content"] + BORDER for each in chat_history)
        return render_turns(self.tokenizer, chat_history, open_answer=add_generation_prompt)

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_options: Any
    ) -> list[int]:
        """Encode a text; a template writes its own opening token."""
        templated = self.as_messages and bool(self.tokenizer.chat_template)
        opens = not templated if add_special_tokens is None else add_special_tokens
        ids = list(self.tokenizer(string, add_special_tokens=opens)["input_ids"])
        # What the tokenizer closes a text with of its own accord: the text is to go on.
        closed = opens and len(ids) > 1 and ids[-1] == self.tokenizer.eos_token_id
        return ids[:-1] if closed else ids

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if not self.as_messages:
            context_ids, ids = super()._encode_pair(context, continuation)
            return context_ids, ids
        return self.tok_encode(context), self.tok_encode(continuation, add_special_tokens=False)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **_options: Any
    ) -> list[Scored]:
        return self._scored([(context, ids) for _, context, ids in requests])

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:  # noqa: ARG002
        """Score whole texts, in windows that overlap by no token."""
        texts = [self.tok_encode(request.args[0], add_special_tokens=False) for request in requests]
        most = self.engine.context_length
        windows = [list(_windows(ids, self.prefix_token_id, most)) for ids in texts]
        scores = iter(self._scored(list(chain.from_iterable(windows))))
        return [sum(next(scores)[0] for _ in each) for each in windows]

    def _scored(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[Scored]:
        """Score what follows each context; long rows first, so that memory fails at once."""
        order = sorted(range(len(pairs)), key=lambda place: -sum(map(len, pairs[place])))
        found: dict[int, Scored] = {}
        for begin in range(0, len(order), self.rows):
            places = order[begin : begin + self.rows]
            scores = self._batch([pairs[place] for place in places])
            found.update(zip(places, scores, strict=True))
            self.progress(len(found), len(pairs))
        return [found[place] for place in range(len(pairs))]

    @torch.inference_mode()
    def _batch(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[Scored]:
        most = self.engine.context_length
        rows = [self._fitting([*context, *ids], most) for context, ids in pairs]
        longest = max(map(len, rows))
        ids_BT = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask_BT = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        device = self.model.device
        logits_BTV = self.model(
            input_ids=ids_BT.to(device), attention_mask=mask_BT.to(device)
        ).logits
        scores = []
        for row, (_, ids), logits_TV in zip(rows, pairs, logits_BTV, strict=True):
            count = min(len(ids), len(row) - 1)
            logprobs_NV = logits_TV[len(row) - 1 - count : len(row) - 1].float().log_softmax(-1)
            said_N = torch.tensor(row[len(row) - count :], device=device)
            total = logprobs_NV.gather(-1, said_N[:, None]).sum()
            scores.append((float(total), bool((logprobs_NV.argmax(-1) == said_N).all())))
        return scores

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:  # noqa: ARG002
        """Generate by the engine; what a request draws depends on its place and the seed alone."""
        alike: dict[SamplingParams, list[int]] = defaultdict(list)
        for place, request in enumerate(requests):
            alike[self._params(request.args[1])].append(place)
        texts: dict[int, str] = {}
        for params, places in alike.items():
            room = max(self.engine.context_length - params.max_tokens, 1)
            prompts = [
                Prompt(str(n), tuple(self._fitting(self.tok_encode(requests[n].args[0]), room)))
                for n in places
            ]
            for sample in self.engine.sample(prompts, params):
                texts[int(sample.prompt_id)] = sample.text
            self.progress(len(texts), len(requests))
        return [texts[place] for place in range(len(requests))]

    def _fitting(self, ids: list[int], most: int) -> list[int]:
        """Cut on the left what is more than so many tokens."""
        self.num_cut += len(ids) > most
        return ids[-most:]

    def _params(self, given: Mapping[str, Any]) -> SamplingParams:
        """Read what a task says of generation; a word that nobody here knows is refused."""
        odd = sorted(given.keys() - _KNOWN)
        if odd:
            raise UserError(
                f"lm_eval: the task sets generation_kwargs.{odd[0]}, which no engine here has; take"
                " it out of a YAML of your own"
            )
        lengths = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_length")
        stated = next((int(given[name]) for name in lengths if given.get(name)), self.max_tokens)
        until = given.get("until") or ()
        draws = bool(given.get("do_sample", float(given.get("temperature") or 0.0) > 0))
        return SamplingParams(
            max_tokens=min(stated, self.engine.context_length - 1),
            temperature=float(given.get("temperature") or 1.0) if draws else 0.0,
            top_p=float(given.get("top_p") or 1.0) if draws else 1.0,
            top_k=int(given.get("top_k") or 0) if draws else 0,
            seed=self.seed,
            stop=tuple(filter(None, [until] if isinstance(until, str) else until)),
        )


def _windows(ids: list[int], prefix: int, most: int) -> Iterator[tuple[list[int], list[int]]]:
    """Windows of a text, each token in one of them behind as much as fits."""
    return map(
        make_disjoint_window,
        get_rolling_token_windows(
            token_list=ids, prefix_token=prefix, max_seq_len=most, context_len=1
        ),
    )
