"""A served model as a teacher, behind the tests' own server, against the same model read here."""

import pytest
import torch

from posttrain.data.rows import TokenRow
from posttrain.data.schemas import Problem
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rewards.components.base import Answers, Inquiry
from posttrain.learning.rewards.components.teacher import TeacherComponent
from posttrain.learning.rewards.port_models import PortModels
from posttrain.learning.training.teachers import LocalTeacher, ServedTeacher
from posttrain.stage.errors import UserError

ROWS = [TokenRow((1, 40, 41, 42, 2), 2), TokenRow((1, 50, 51, 52, 2), 1, silent=((2, 3),))]


@pytest.fixture(scope="module")
def policy():
    tokenizer = train_tokenizer(["1 + 2 = 3"], vocab_size=259)
    model = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)
    return Policy(model, tokenizer)


def serve(server, policy, *, texts=None):
    """Let the server answer as vLLM does: by id, the token itself beside the likeliest ones."""

    def complete(body):
        with torch.no_grad():
            logits = policy.model(torch.tensor([body["prompt"]])).logits[0]
        places = [None]
        for at, token in enumerate(body["prompt"][1:]):
            whole = logits[at].log_softmax(-1)
            top = whole.topk(body["prompt_logprobs"]).indices.tolist()
            places.append({str(each): said(whole, each) for each in dict.fromkeys([token, *top])})
        return {"text": "", "prompt_logprobs": places}

    def said(whole, token):
        text = policy.tokenizer.decode([token]) if texts is None else texts(token)
        return {"logprob": whole[token].item(), "rank": 1, "decoded_token": text}

    server.complete = complete


def test_a_served_teacher_says_what_it_would_say_here(server, policy):
    serve(server, policy)
    there = ServedTeacher(server.endpoint(), policy.tokenizer)
    here = LocalTeacher(policy, len(policy.tokenizer), 64)
    assert there.context_length == 63
    asked, read = (each.ask(ROWS, top_k=5, temperature=1.0) for each in (there, here))
    for (one, own), (other, expected) in zip(asked, read, strict=True):
        assert one.ids_NK.tolist() == other.ids_NK.tolist()
        for name in ("logprobs_NK", "rest_N"):
            assert torch.allclose(getattr(one, name), getattr(other, name), atol=1e-4)
        assert torch.allclose(own, expected, atol=1e-4)
    assert [body["prompt_logprobs"] for body in server.requests] == [5, 5]
    # What was paid for is not asked again.
    there.ask(ROWS, top_k=5, temperature=1.0)
    assert len(server.requests) == 2


def test_another_tokenizer_is_refused(server, policy):
    serve(server, policy, texts=lambda token: f"other {token}")
    with pytest.raises(UserError, match="take one with the policy's tokenizer"):
        ServedTeacher(server.endpoint(), policy.tokenizer).ask(ROWS, top_k=5, temperature=1.0)
    serve(server, policy, texts=lambda _: None)
    with pytest.raises(UserError, match="nothing shows that its tokenizer is the policy's"):
        ServedTeacher(server.endpoint(), policy.tokenizer).ask(ROWS, top_k=6, temperature=1.0)


def test_a_server_that_gives_fewer_tokens_or_none_is_refused(server, policy):
    serve(server, policy)
    server.faults = [(400, {"error": {"message": "Requested 64, greater than max allowed: 20"}})]
    with pytest.raises(UserError, match="refused a request .400: Requested 64"):
        ServedTeacher(server.endpoint(), policy.tokenizer).ask(ROWS[:1], top_k=64, temperature=1.0)
    full = server.complete
    server.complete = lambda body: full({**body, "prompt_logprobs": 2})
    with pytest.raises(UserError, match="gives 3 of 8 tokens; lower top_k, or start the server"):
        ServedTeacher(server.endpoint(), policy.tokenizer).ask(ROWS[:1], top_k=8, temperature=1.0)
    server.complete = lambda _: {"text": ""}
    with pytest.raises(UserError, match="it has no prompt_logprobs; serve the model with vLLM"):
        ServedTeacher(server.endpoint(retries=0), policy.tokenizer).ask(
            ROWS[:1], top_k=9, temperature=1.0
        )


def test_a_served_teacher_pays_for_drawn_tokens_what_one_here_does(server, policy):
    serve(server, policy)
    group = Answers(
        problem=Problem("own", "7 =", "7", 1, "exact"),
        texts=("a", "b"),
        lengths=(2, 3),
        truncated=(False, False),
        token_ids=((1, 40, 41, 42), (1, 50, 51, 52, 2)),
        drawn=((False, False, True, True), (False, False, True, True, True)),
        logprobs=((-1.0, -2.0), (-0.5, -3.0, -1.0)),
    )
    here = PortModels(tokenizer=policy.tokenizer)
    here._loaded["references.teacher"] = policy
    known = Inquiry(list, models=here)
    read = TeacherComponent().score_tokens([group], known)
    asked = TeacherComponent(endpoint=server.endpoint()).score_tokens([group], known)
    for one, other in zip(asked[0], read[0], strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    with torch.no_grad():
        whole = policy.model(torch.tensor([[1, 40, 41, 42]])).logits[0].log_softmax(-1)
    by_hand = [whole[1, 41].item() + 1.0, whole[2, 42].item() + 2.0]
    assert read[0][0] == pytest.approx(by_hand, abs=1e-4)
    clipped = TeacherComponent(beta=0.5, clip=0.25).score_tokens([group], known)[0][0]
    held = [max(-0.25, min(0.25, 0.5 * each)) for each in by_hand]
    assert clipped == pytest.approx(held, abs=1e-4)
