"""The policy that is served: one request draws at a time, in a thread of its own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

from posttrain.data.templates import encode_prompts
from posttrain.learning.models.mask_policy import is_mask_policy
from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams
from posttrain.learning.rollouts.engines.stop import end_tokens
from posttrain.learning.rollouts.engines.streamed import DrawnToken, StreamedEngine
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.contexts import AnyPrompt
    from posttrain.learning.models.load import Policy


class TokenScore(NamedTuple):
    """How likely the policy finds a token where it stands, and what it finds likelier."""

    token_id: int
    logprob: float | None
    """In nats at temperature 1; None of a text's first token, which follows nothing."""
    likeliest: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens of that place, in order."""


@dataclass(frozen=True)
class HeardTokens:
    """What came of a request so far: some tokens, or at last all of its samples."""

    drawn: Sequence[DrawnToken] = ()
    samples: Sequence[Sample] | None = None
    scores: Sequence[Sequence[TokenScore]] = ()
    """Of every sample, where they were asked for: the tokens of its prompt and its own."""
    error: Exception | None = None


class _Left(Exception):
    """Who asked has gone, or the server ends."""


@dataclass
class ServedPolicy:
    """A policy under a name, and what draws from it.

    Requests are drawn one after the other, each by itself: what one is answered does not depend on
    who else asks.
    """

    name: str
    policy: "Policy"
    digest: str
    created: int
    batch_size: int = 64
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        if is_mask_policy(self.policy.model):
            raise UserError(
                f"{self.name} was taught to fill masks and draws no token after token; sample it"
                " by engine: masked_diffusion in a recipe"
            )
        self.engine = StreamedEngine(
            self.policy.model, self.policy.tokenizer, batch_size=self.batch_size
        )
        self.ends = frozenset(end_tokens(self.policy.model, self.policy.tokenizer))

    @property
    def context_length(self) -> int:
        """Tokens of prompt and answer together."""
        return self.engine.context_length

    def encode_chat(self, prompt: "AnyPrompt") -> list[int]:
        """Encode a conversation as every stage does, by the tokenizer's chat template."""
        return encode_prompts(self.policy.tokenizer, [prompt])[0]

    def encode_text(self, text: str) -> list[int]:
        """Encode a text that is continued; what spells a special token is one, as in vLLM."""
        tokenizer = self.policy.tokenizer
        ids = list(tokenizer(text)["input_ids"])
        # What the tokenizer closes a text with of its own accord: the text is to go on.
        return ids[:-1] if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id else ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Decode an answer's tokens, without those that end it."""
        kept = [each for each in token_ids if each not in self.ends]
        return str(self.policy.tokenizer.decode(kept, skip_special_tokens=True))

    def spell(self, token_id: int) -> str:
        """Spell one token by itself, special ones by their names."""
        return str(self.policy.tokenizer.decode([token_id]))

    def spelled(self, token_ids: Sequence[int]) -> str:
        """Spell a prompt, special tokens by their names."""
        return str(self.policy.tokenizer.decode(list(token_ids)))

    def check(self, prompts: Sequence[Sequence[int]]) -> int:
        """Refuse prompts that cannot be continued.

        Args:
            prompts: Token ids of each.

        Returns:
            Room for an answer behind the longest.

        Raises:
            UserError: One is empty, too long, or has tokens that the model does not know.

        """
        known = self.policy.model.get_input_embeddings().weight.shape[0]
        for ids in prompts:
            if not ids:
                raise UserError("prompt: it has no tokens; write a text")
            if len(ids) >= self.context_length:
                raise UserError(
                    f"prompt: its {len(ids)} tokens leave no room in the model's context of"
                    f" {self.context_length}; shorten it"
                )
            odd = next((each for each in ids if not 0 <= each < known), None)
            if odd is not None:
                raise UserError(f"prompt: there is no token {odd}; ids go from 0 to {known - 1}")
        return self.context_length - max(map(len, prompts))

    async def draw(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        alternatives: int | None = None,
        only_read: bool = False,
    ) -> AsyncIterator[HeardTokens]:
        """Draw answers, and tell what comes as it comes; to leave the iterator ends the work.

        Args:
            prompts: Token ids of each.
            params: How to draw.
            alternatives: Score the tokens as well, with so many likely ones of every place.
            only_read: Draw nothing: answers without a token.

        Yields:
            Tokens of every step, then the samples prompt by prompt.

        Raises:
            Exception: Whatever the engine raised.

        """
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[HeardTokens]()
        gone = threading.Event()

        def tell(heard: HeardTokens) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, heard)

        def hear(drawn: list[DrawnToken]) -> None:
            if gone.is_set() or self._ending.is_set():
                raise _Left
            tell(HeardTokens(drawn))

        def work() -> None:
            with self._turn:
                try:
                    hear([])
                    drawn = self._read(prompts) if only_read else self._drawn(prompts, params, hear)
                    scores = self._scores(prompts, drawn, alternatives)
                    last = HeardTokens(samples=drawn, scores=scores)
                except _Left:
                    last = HeardTokens(error=UserError("the server is ending; ask again later"))
                except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
                    last = HeardTokens(error=error)
            if not loop.is_closed():
                tell(last)

        threading.Thread(target=work, name="draw", daemon=True).start()
        try:
            while True:
                heard = await queue.get()
                if heard.error is not None:
                    raise heard.error
                yield heard
                if heard.samples is not None:
                    return
        finally:
            gone.set()

    def stop(self, patience: float) -> None:
        """Let what draws now end at its next token, and wait for that."""
        self._ending.set()
        self._turn.acquire(timeout=patience)

    def _drawn(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        hear: Callable[[list[DrawnToken]], None],
    ) -> list[Sample]:
        return self.engine.sample_heard(_named(prompts), params, hear)

    def _read(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        """Answers without a token, for who only wants a prompt scored."""
        from posttrain.learning.rollouts.engines.base import FinishReason

        return [
            Sample(prompt.id, 0, (), (), "", FinishReason.LENGTH, 0) for prompt in _named(prompts)
        ]

    def _scores(
        self,
        prompts: Sequence[Sequence[int]],
        samples: Sequence[Sample],
        alternatives: int | None,
    ) -> list[list[TokenScore]]:
        if alternatives is None:
            return []
        asked = {str(place): ids for place, ids in enumerate(prompts)}
        return [
            self._scored([*asked[each.prompt_id], *each.token_ids], alternatives)
            for each in samples
        ]

    @torch.inference_mode()
    def _scored(self, token_ids: Sequence[int], alternatives: int) -> list[TokenScore]:
        """Score tokens by one pass over all of them."""
        model = self.policy.model
        ids = torch.tensor([token_ids], device=model.device)
        logprobs_TV = model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
        of_tokens_T = logprobs_TV.gather(-1, ids[0, 1:, None])[:, 0].tolist()
        best = logprobs_TV.topk(min(alternatives, logprobs_TV.shape[1]), dim=-1)
        likeliest = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        pairs = (zip(tokens, values, strict=True) for tokens, values in likeliest)
        behind = zip(token_ids[1:], of_tokens_T, pairs, strict=True)
        first = TokenScore(token_ids[0], None)
        return [first, *(TokenScore(each, lp, tuple(likely)) for each, lp, likely in behind)]


def _named(prompts: Sequence[Sequence[int]]) -> list[Prompt]:
    """Prompts by their place in the request: with a seed, the same request draws the same."""
    return [Prompt(str(place), tuple(ids)) for place, ids in enumerate(prompts)]
