"""Answers in the words of OpenAI's protocol, whole or piece by piece."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from posttrain.learning.rollouts.engines.base import Sample
from posttrain.operations.serving.served import ServedPolicy, TokenScore

_Json = dict[str, Any]
_HALF = "\ufffd"
"""What a decoder writes for a letter of which bytes are still to come."""


@dataclass(frozen=True)
class ToldAnswer:
    """One answer of several, or a piece of one."""

    index: int
    text: str
    token_ids: Sequence[int] = ()
    finish_reason: str | None = None
    scores: Sequence[TokenScore] | None = None
    prompt_ids: Sequence[int] = ()


@dataclass
class AnswerForm(ABC):
    """The form of the answers to one request."""

    served: ServedPolicy
    with_ids: bool = False
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    PREFIX: ClassVar[str]
    WHOLE: ClassVar[str]
    PIECE: ClassVar[str]

    @abstractmethod
    def choice(self, each: ToldAnswer) -> _Json:
        """Form an answer."""

    @abstractmethod
    def piece(self, each: ToldAnswer) -> _Json:
        """Form a piece of an answer."""

    def opening(self, index: int) -> _Json | None:  # noqa: ARG002 - completions have none
        """Form what a stream begins with, before the first token, if anything."""
        return None

    def whole(self, choices: Sequence[ToldAnswer], usage: _Json) -> _Json:
        """Form the answer to a request that is not streamed."""
        return self._body(self.WHOLE, [self.choice(each) for each in choices]) | {"usage": usage}

    def chunk(self, choices: Sequence[_Json]) -> _Json:
        """Form a chunk of a stream."""
        return self._body(self.PIECE, choices)

    def _body(self, kind: str, choices: Sequence[_Json]) -> _Json:
        return {
            "id": f"{self.PREFIX}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.served.name,
            # Whose answers these are: the weights, by their digest.
            "system_fingerprint": self.served.digest[:16],
            "choices": list(choices),
        }


class CompletionAnswer(AnswerForm):
    """The form of `/v1/completions`."""

    PREFIX = "cmpl"
    WHOLE = PIECE = "text_completion"

    def choice(self, each: ToldAnswer) -> _Json:
        """See `AnswerForm.choice`."""
        made: _Json = {
            "index": each.index,
            "text": each.text,
            "finish_reason": each.finish_reason,
            "logprobs": None if each.scores is None else self._logprobs(each.scores),
        }
        if self.with_ids:
            made |= {"token_ids": list(each.token_ids), "prompt_token_ids": list(each.prompt_ids)}
        return made

    def piece(self, each: ToldAnswer) -> _Json:
        """See `AnswerForm.piece`."""
        return self.choice(each)

    def _logprobs(self, scores: Sequence[TokenScore]) -> _Json:
        spell = self.served.spell
        tokens = [spell(each.token_id) for each in scores]
        offsets = [sum(map(len, tokens[:place])) for place in range(len(tokens))]
        # Of tokens that are spelled alike, such as halves of letters, the likeliest is told.
        likely = [
            {spell(token): logprob for token, logprob in (_own(each), *reversed(each.likeliest))}
            if each.likeliest
            else None
            for each in scores
        ]
        return {
            "tokens": tokens,
            "token_logprobs": [each.logprob for each in scores],
            "top_logprobs": likely,
            "text_offset": offsets,
        }


class ChatAnswer(AnswerForm):
    """The form of `/v1/chat/completions`."""

    PREFIX = "chatcmpl"
    WHOLE, PIECE = "chat.completion", "chat.completion.chunk"

    def choice(self, each: ToldAnswer) -> _Json:
        """See `AnswerForm.choice`."""
        said = {"role": "assistant", "content": each.text, "refusal": None}
        return self._form(each) | {"message": said}

    def piece(self, each: ToldAnswer) -> _Json:
        """See `AnswerForm.piece`."""
        return self._form(each) | {"delta": {"content": each.text} if each.text else {}}

    def opening(self, index: int) -> _Json | None:
        """See `AnswerForm.opening`."""
        said = {"role": "assistant", "content": ""}
        return {"index": index, "delta": said, "logprobs": None, "finish_reason": None}

    def whole(self, choices: Sequence[ToldAnswer], usage: _Json) -> _Json:
        """See `AnswerForm.whole`."""
        ids = {"prompt_token_ids": list(choices[0].prompt_ids)} if self.with_ids else {}
        return super().whole(choices, usage) | ids

    def _form(self, each: ToldAnswer) -> _Json:
        scores = each.scores
        told = None if scores is None else {"content": list(map(self._token, scores))}
        made = {"index": each.index, "finish_reason": each.finish_reason, "logprobs": told}
        return made | ({"token_ids": list(each.token_ids)} if self.with_ids else {})

    def _token(self, score: TokenScore) -> _Json:
        likely = [self._spelled(*each) for each in score.likeliest]
        return self._spelled(*_own(score)) | {"top_logprobs": likely}

    def _spelled(self, token_id: int, logprob: float) -> _Json:
        token = self.served.spell(token_id)
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


class GrowingText:
    """What of an answer's text may be told so far; the pieces joined are the whole text."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        self._decode, self._stop = decode, stop
        self._ids: list[int] = []
        self._begin = self._end = 0
        self._text = ""
        self._told = 0

    def add(self, token_id: int) -> str:
        """Take one more token.

        Args:
            token_id: As it was drawn.

        Returns:
            What may be told now: empty in the midst of a letter, or of what may become a stop
            string.

        """
        self._ids.append(token_id)
        # Only the last tokens are decoded anew: the whole text each time would be quadratic work.
        before = self._decode(self._ids[self._begin : self._end])
        now = self._decode(self._ids[self._begin :])
        if now.endswith(_HALF):
            return ""
        self._text += now[len(before) :]
        self._begin, self._end = self._end, len(self._ids)
        return self._tell(self._safe())

    def finish(self, text: str) -> str:
        """End with the text that the answer has.

        Args:
            text: Of the whole answer.

        Returns:
            What of it was not told.

        """
        rest = text[self._told :]
        self._told = len(text)
        return rest

    def _tell(self, until: int) -> str:
        told = self._text[self._told : until]
        self._told = max(self._told, until)
        return told

    def _safe(self) -> int:
        """Characters before any stop string, and before any beginning of one at the end."""
        text = self._text
        found = [text.find(stop) for stop in self._stop if stop in text]
        begun = [
            len(text) - length
            for stop in self._stop
            for length in range(1, len(stop))
            if text.endswith(stop[:length])
        ]
        return min([len(text), *found, *begun])


def usage_of(prompts: Sequence[Sequence[int]], samples: Sequence[Sample]) -> _Json:
    """Count the tokens that were read and drawn."""
    read = sum(map(len, prompts))
    drawn = sum(len(each.token_ids) for each in samples)
    return {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn}


def error_body(sentence: str, *, kind: str, param: str | None, code: str | None) -> _Json:
    """_Say an error as OpenAI's clients read it."""
    told: Mapping[str, str | None] = {
        "message": sentence, "type": kind, "param": param, "code": code,
    }  # fmt: skip
    return {"error": told}


def _own(score: TokenScore) -> tuple[int, float]:
    return score.token_id, 0.0 if score.logprob is None else score.logprob
