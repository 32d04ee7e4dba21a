"""What a served model says of tokens that it is given: the log-probabilities of a prompt's tokens.

`prompt_logprobs` is a field of `vllm serve`'s completions beyond OpenAI's protocol: at each token
of the prompt the k likeliest ones by id, and the token itself where it is not among them, at
temperature 1. A server gives no more of them than it was started with (`--max-logprobs`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from posttrain.backends.endpoint.client import Asked, Client
from posttrain.stage.errors import UserError


class SaidOfToken(NamedTuple):
    """What a served model says at one token of a prompt."""

    logprob: float
    """Of the token itself, in nats."""
    likeliest: tuple[tuple[int, float], ...]
    """Ids and log-probabilities of the k likeliest tokens, by descending probability."""
    texts: Mapping[int, str]
    """What the server writes for these ids; empty where it does not say."""


def prompt_logprobs(
    client: Client, prompts: Sequence[Sequence[int]], *, top_k: int
) -> list[list[SaidOfToken | None]]:
    """Ask what a model says of the tokens of prompts.

    Args:
        client: Of the endpoint.
        prompts: Token ids.
        top_k: Likeliest tokens at each place, at least 1.

    Returns:
        Of each prompt an entry for each token; None for the first one, which has no past.

    Raises:
        UserError: The endpoint does not answer, gives fewer tokens, or knows no such field.

    """
    asked = [
        Asked(
            {
                "prompt": list(ids),
                # Servers refuse to draw nothing.
                "max_tokens": 1,
                "temperature": 0.0,
                "prompt_logprobs": top_k,
            }
        )
        for ids in prompts
    ]
    answers = client.ask("completions", asked, _read)
    return [
        _of_prompt(client, ids, places, top_k) for ids, places in zip(prompts, answers, strict=True)
    ]


def _read(answer: Any) -> list[Mapping[str, Any] | None]:
    """Read the field of an answer; ValueError, LookupError or TypeError where it is not there."""
    choice = answer["choices"][0]
    places = choice.get("prompt_logprobs", answer.get("prompt_logprobs"))
    if not isinstance(places, list):
        raise TypeError("it has no prompt_logprobs; serve the model with vLLM")
    for place in places[1:]:
        for each in place.values():
            float(each["logprob"])
    return places


def _of_prompt(
    client: Client, ids: Sequence[int], places: Sequence[Mapping[str, Any] | None], top_k: int
) -> list[SaidOfToken | None]:
    url = client.endpoint.base_url
    if len(places) != len(ids):
        raise UserError(
            f"{url} says something of {len(places)} tokens where it was given {len(ids)}; it must"
            " take token ids as they are: set add_special_tokens to false in the endpoint's options"
        )
    said: list[SaidOfToken | None] = [None]
    for own, place in zip(ids[1:], places[1:], strict=True):
        known = {int(name): each for name, each in (place or {}).items()}
        if own not in known:
            raise UserError(
                f"{url} says nothing of token {own}, which it was given; take a teacher with the"
                " policy's tokenizer"
            )
        ordered = sorted(known.items(), key=lambda each: (-float(each[1]["logprob"]), each[0]))
        if len(ordered) < top_k:
            raise UserError(
                f"{url} gives {len(ordered)} of {top_k} tokens; lower top_k, or start the server"
                f" with --max-logprobs {top_k}"
            )
        texts = {
            token: str(each["decoded_token"])
            for token, each in known.items()
            if each.get("decoded_token") is not None
        }
        likeliest = tuple((token, float(each["logprob"])) for token, each in ordered[:top_k])
        said.append(SaidOfToken(float(known[own]["logprob"]), likeliest, texts))
    return said
