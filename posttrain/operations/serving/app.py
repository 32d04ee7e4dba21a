"""The app: its addresses, and every error in the form that OpenAI's clients read."""

import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from posttrain.learning.rollouts.engines.base import Sample, SamplingParams
from posttrain.learning.rollouts.engines.streamed import DrawnToken
from posttrain.operations.services.loopback import HOSTS
from posttrain.operations.serving.answers import (
    AnswerForm,
    ChatAnswer,
    CompletionAnswer,
    GrowingText,
    ToldAnswer,
    error_body,
    usage_of,
)
from posttrain.operations.serving.requests import ChatRequest, CompletionRequest, SamplingRequest
from posttrain.operations.serving.served import HeardTokens, ServedPolicy, TokenScore
from posttrain.stage.errors import UserError, first_line

_Say = Callable[[str], None]


class UnknownModel(UserError):
    """A name that is not served here."""


@dataclass(frozen=True)
class AskedPrompts:
    """A request, understood."""

    prompts: Sequence[Sequence[int]]
    params: SamplingParams
    answer: AnswerForm
    alternatives: int | None
    echo: bool = False
    only_read: bool = False

    def draw(self, served: ServedPolicy) -> AsyncIterator[HeardTokens]:
        """Begin to draw it."""
        return served.draw(
            self.prompts, self.params, alternatives=self.alternatives, only_read=self.only_read
        )


def create_server(served: ServedPolicy, say: _Say = lambda _line: None) -> FastAPI:
    """Make the app of a policy.

    Args:
        served: What answers.
        say: Told a line for every request that was answered.

    Returns:
        An ASGI app.

    """
    app = FastAPI(title="posttrain", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))
    app.exception_handler(UserError)(_say_refused)
    app.exception_handler(UnknownModel)(_say_unknown)
    app.exception_handler(RequestValidationError)(_say_unreadable)
    app.exception_handler(HTTPException)(_say_missing)
    app.exception_handler(Exception)(_say_broken)

    @app.get("/health")
    def health() -> Response:
        return Response()

    @app.get("/v1/models")
    def models() -> Any:
        return {"object": "list", "data": [_card(served)]}

    @app.get("/v1/models/{name:path}")
    def model(name: str) -> Any:
        _check_name(served, name)
        return _card(served)

    @app.post("/v1/completions")
    async def completions(asked: CompletionRequest, request: Request) -> Response:
        return await _answered(served, _completion(served, asked), asked, request, say)

    @app.post("/v1/chat/completions")
    async def chat(asked: ChatRequest, request: Request) -> Response:
        return await _answered(served, _chat(served, asked), asked, request, say)

    return app


def _card(served: ServedPolicy) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "posttrain",
        "max_model_len": served.context_length,
        "weights_sha256": served.digest,
    }


def _check_name(served: ServedPolicy, name: str) -> None:
    if name != served.name:
        raise UnknownModel(f"model: there is no '{name}' here; '{served.name}' is served")


def _completion(served: ServedPolicy, request: CompletionRequest) -> AskedPrompts:
    _check_name(served, request.model)
    prompts = [
        served.encode_text(each) if isinstance(each, str) else each for each in request.prompt
    ]
    room = served.check(prompts)
    only_read = request.max_tokens == 0
    if only_read and not request.echo:
        raise UserError("max_tokens: 0 tokens are asked for; ask for one, or for echo")
    if only_read:
        request = request.model_copy(update={"max_tokens": 1})
    answer = CompletionAnswer(served, with_ids=bool(request.return_token_ids))
    return AskedPrompts(
        prompts,
        request.params(room),
        answer,
        request.alternatives(),
        echo=bool(request.echo),
        only_read=only_read,
    )


def _chat(served: ServedPolicy, request: ChatRequest) -> AskedPrompts:
    _check_name(served, request.model)
    prompts = [served.encode_chat(request.prompt())]
    room = served.check(prompts)
    answer = ChatAnswer(served, with_ids=bool(request.return_token_ids))
    return AskedPrompts(prompts, request.params(room), answer, request.alternatives())


async def _answered(
    served: ServedPolicy,
    asked: AskedPrompts,
    request: SamplingRequest,
    connection: Request,
    say: _Say,
) -> Response:
    if not request.stream:
        began = time.monotonic()
        samples, scores = await _all_of(asked.draw(served), connection)
        usage = usage_of(asked.prompts, samples)
        say(_line(connection.url.path, usage, time.monotonic() - began))
        return JSONResponse(asked.answer.whole(_choices(served, asked, samples, scores), usage))
    _check_stream(asked)
    return StreamingResponse(
        _events(served, asked, usage=request.counts_in_stream, say=say),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache"},
    )


def _check_stream(asked: AskedPrompts) -> None:
    """Refuse what only a whole answer has."""
    if asked.alternatives:
        raise UserError("stream: likely tokens come with whole answers; ask for none, or no stream")
    if asked.alternatives is not None and asked.params.temperature not in (0.0, 1.0):
        raise UserError(
            "stream: log-probabilities are those at temperature 1, and come with whole answers at"
            " any other; leave out logprobs, or stream"
        )
    if asked.echo or len(asked.prompts) > 1:
        raise UserError("stream: one prompt is streamed at a time, without echo")


async def _all_of(
    heard: AsyncIterator[HeardTokens], connection: Request
) -> tuple[Sequence[Sample], Sequence[Sequence[TokenScore]]]:
    """Wait for the samples; who has gone is drawn for no longer."""
    async for each in heard:
        if each.samples is not None:
            return each.samples, each.scores
        if await connection.is_disconnected():
            break
    raise UserError("who asked has gone")


def _choices(
    served: ServedPolicy,
    asked: AskedPrompts,
    samples: Sequence[Sample],
    scores: Sequence[Sequence[TokenScore]],
) -> list[ToldAnswer]:
    choices = []
    for place, sample in enumerate(samples):
        ids = asked.prompts[int(sample.prompt_id)]
        told = scores[place] if scores else None
        choices.append(
            ToldAnswer(
                index=place,
                text=(served.spelled(ids) if asked.echo else "") + sample.text,
                token_ids=sample.token_ids,
                finish_reason=str(sample.finish_reason),
                scores=told if told is None or asked.echo else told[len(ids) :],
                prompt_ids=ids,
            )
        )
    return choices


async def _events(
    served: ServedPolicy, asked: AskedPrompts, *, usage: bool, say: _Say
) -> AsyncIterator[str]:
    """Tell an answer as server-sent events, and an error in their midst as one of them."""
    answer, began = asked.answer, time.monotonic()
    texts = [GrowingText(served.decode, asked.params.stop) for _ in range(asked.params.num_samples)]
    counts = {"usage": None} if usage else {}
    openings = [answer.opening(index) for index in range(len(texts))]
    if begun := [each for each in openings if each is not None]:
        yield _event(answer.chunk(begun) | counts)
    try:
        async for heard in asked.draw(served):
            for drawn in heard.drawn:
                piece = answer.piece(_piece(drawn, texts[drawn.row], asked))
                yield _event(answer.chunk([piece]) | counts)
            for sample in heard.samples or ():
                rest = texts[sample.index].finish(sample.text)
                last = ToldAnswer(sample.index, rest, finish_reason=str(sample.finish_reason))
                yield _event(answer.chunk([answer.piece(last)]) | counts)
            if heard.samples is not None:
                total = usage_of(asked.prompts, heard.samples)
                say(_line(answer.WHOLE, total, time.monotonic() - began))
                if usage:
                    yield _event(answer.chunk([]) | {"usage": total})
    except Exception as error:  # noqa: BLE001 - the status is sent already
        kind = "invalid_request_error" if isinstance(error, UserError) else "server_error"
        yield _event(error_body(first_line(error), kind=kind, param=None, code=None))
        return
    yield "data: [DONE]\n\n"


def _piece(drawn: DrawnToken, text: GrowingText, asked: AskedPrompts) -> ToldAnswer:
    scores = None if asked.alternatives is None else [TokenScore(drawn.token_id, drawn.logprob)]
    return ToldAnswer(drawn.row, text.add(drawn.token_id), (drawn.token_id,), scores=scores)


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


def _line(what: str, usage: dict[str, Any], seconds: float) -> str:
    read, drawn = usage["prompt_tokens"], usage["completion_tokens"]
    return f"{what}: {read} tokens read, {drawn} drawn in {seconds:.2f} s"


def _refusal(
    sentence: str, status: int, code: str | None = None, param: str | None = None
) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse(error_body(sentence, kind=kind, param=param, code=code), status_code=status)


def _say_refused(_request: Request, error: Exception) -> Response:
    param, colon, _ = str(error).partition(":")
    return _refusal(str(error), 400, param=param if colon and param.isidentifier() else None)


def _say_unknown(_request: Request, error: Exception) -> Response:
    return _refusal(str(error), 404, "model_not_found", "model")


def _say_unreadable(_request: Request, error: Exception) -> Response:
    wrong = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    place = ".".join(str(part) for part in wrong.get("loc", ())[1:] if isinstance(part, int | str))
    said = str(wrong.get("msg", "this is no request")).removeprefix("Value error, ")
    if wrong.get("type") == "json_invalid":
        return _refusal("the body is not JSON", 400)
    if wrong.get("type") == "extra_forbidden":
        said = "this server does not know it; leave it out"
    if not place:
        place, _, said = said.partition(": ")
    return _refusal(f"{place}: {said[:1].lower()}{said[1:]}", 400, param=place)


def _say_missing(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    known = "/v1/models, /v1/completions and /v1/chat/completions"
    return _refusal(f"there is no {request.method} {request.url.path}; there are {known}", code)


def _say_broken(_request: Request, error: Exception) -> Response:
    return _refusal(f"the server failed: {type(error).__name__}: {first_line(error)}", 500)
