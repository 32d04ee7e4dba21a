"""Critiques of a model behind an endpoint: asked once, and only of what failed."""

from types import SimpleNamespace

from posttrain.learning.rl.additions.criticized import Criticized


def test_a_model_criticizes_what_failed_and_is_asked_once(server):
    server.reply = lambda body: f"no: {body['messages'][0]['content']}"
    part = Criticized(
        critic=server.endpoint(), ask="{problem} {solution} {answer}", temperature=0.7, max_tokens=9
    )
    problems = [SimpleNamespace(id="a", prompt="1 + 1 =", answer="2")]
    group = [
        SimpleNamespace(text=text, solved=solved)
        for text, solved in (("2", True), ("3", False), ("?", None), ("4", False))
    ]
    work = part.start(SimpleNamespace(work=None))
    said = work.critiques([group], problems, SimpleNamespace())
    assert said == [["", "no: 1 + 1 = 3 2", "", "no: 1 + 1 = 4 2"]]
    assert {(body["temperature"], body["max_tokens"]) for body in server.requests} == {(0.7, 9)}
    # A run that goes on after it was stopped hears the same.
    assert work.critiques([group], problems, SimpleNamespace()) == said
    assert len(server.requests) == 2
