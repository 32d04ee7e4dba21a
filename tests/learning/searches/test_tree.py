"""Tree search by hand: bounds, what is drawn where, what is counted, and independence."""

import math

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.models.load import Policy
from posttrain.learning.rewards.score import Score
from posttrain.learning.rollouts.engines.base import FinishReason, Prompt, Sample, SamplingParams
from posttrain.learning.rollouts.scoring import ScoredSample
from posttrain.learning.rollouts.searches.answer_tree import AnswerNode, AnswerTree, widen
from posttrain.learning.rollouts.searches.base import SearchBench
from posttrain.learning.rollouts.searches.tree import TreeSearch

END = 2


class Letters:
    """Tokens are characters; the end token is written as nothing."""

    eos_token_id, chat_template = END, None

    def decode(self, ids, **_options):
        return "".join(chr(each) for each in ids if each != END)


class Config:
    eos_token_id = END


class Model:
    generation_config = Config()


def ids(text):
    return tuple(map(ord, text))


class Lines:
    """Answers `1` or `2` on each of two lines, by a count of what it was asked; then ends."""

    context_length = 50

    def __init__(self):
        self.asked = []

    def sample(self, prompts, params):
        found = []
        for prompt in prompts:
            self.asked.append((prompt.id, "".join(map(chr, prompt.token_ids)), params))
            begun = "".join(map(chr, prompt.token_ids)).partition("=")[2]
            for index in range(params.num_samples):
                rest = ["12"[(index + n) % 2] + "\n" for n in range(2 - begun.count("\n"))]
                text = rest[0] if params.stop and rest else "".join(rest)
                tokens = ids(text) if params.stop and rest else (*ids(text), END)
                tokens = tokens[: params.max_tokens]
                logprobs = (-0.5,) * len(tokens)
                found.append(Sample(prompt.id, index, tokens, logprobs, "", FinishReason.STOP, 0))
        return found


def problem(name, answer):
    return Problem("lines", name, answer, 1, "exact")


def search(search, *problems, engine=None, most=20):
    def score(drawn):
        return [
            ScoredSample(owner, each, Score(float(each.text == owner.answer), ""))
            for owner, each in drawn
        ]

    prompts = [Prompt(each.id, ids(f"{each.prompt}=")) for each in problems]
    params = SamplingParams(max_tokens=most, num_samples=9, seed=3)
    return search.searched(
        problems,
        prompts,
        params,
        engine=engine or Lines(),
        policy=Policy(Model(), Letters()),
        score=score,
        report=lambda _: None,
    )


def texts(made, name):
    return [each.sample.text for each in made if each.problem.prompt == name]


def test_bounds_of_a_step():
    # 4 visits of the state, 2 of the step with 1 right: 1/2 + c sqrt(ln 4 / 2), 1/2 + c 2/3.
    root = AnswerNode(visits=4)
    step, new = AnswerNode(root, visits=2, total=1.0), AnswerNode(root)
    uct, puct = TreeSearch(exploration=1.5), TreeSearch(rule="puct", exploration=1.5)
    assert uct._bound(step) == pytest.approx(0.5 + 1.5 * math.sqrt(math.log(4) / 2))
    assert uct._bound(new) == math.inf
    assert puct._bound(step) == pytest.approx(0.5 + 1.5 * 2 / 3)
    assert puct._bound(new) == pytest.approx(1.5 * 2)


def test_every_attempt_is_a_whole_answer_and_the_first_right_one_ends_it():
    right, never = problem("a", "2\n2\n"), problem("b", "no")
    made = search(TreeSearch(iterations=12, children=2), right, never)
    found = texts(made, "a")
    assert "2\n2\n" not in found[:-1]
    assert found[-1] == "2\n2\n"
    assert len(texts(made, "b")) == 12
    assert {*texts(made, "b")} <= {"1\n1\n", "1\n2\n", "2\n1\n", "2\n2\n"}
    assert [each.sample.index for each in made] == [*range(len(found)), *range(12)]
    for each in made:
        assert each.sample.token_ids == (*ids(each.sample.text), END)
        assert len(each.sample.logprobs) == len(each.sample.token_ids)


def test_equal_steps_are_one_child():
    tree = AnswerTree(problem("a", "no"), Prompt("a", ids("a=")))
    bench = SearchBench(Lines(), Policy(Model(), Letters()), score=None, report=None)
    params = SamplingParams(max_tokens=20, num_samples=1, seed=3)
    # Of four steps every other one is the same.
    widen([tree], [tree.root], params, bench, iteration=0, children=4)
    assert [node.tokens for node in tree.root.children] == [ids("1\n"), ids("2\n")]


def test_a_search_that_goes_on_spends_all_its_iterations_where_answers_are_right():
    made = search(TreeSearch(iterations=40, children=2, until_solved=False), problem("a", "2\n2\n"))
    found = texts(made, "a")
    assert len(found) == 40
    # Of four answers one is right; the tree finds it and comes back to it.
    assert found[20:].count("2\n2\n") > 10


def test_what_is_drawn_for_a_problem_hangs_on_no_other():
    settings = TreeSearch(iterations=6, children=2)
    one, other = problem("a", "no"), problem("b", "no")
    assert texts(search(settings, one, other), "b") == texts(search(settings, other), "b")


def test_steps_end_at_a_line_break_and_stay_within_the_limit():
    engine = Lines()
    made = search(TreeSearch(iterations=3, children=2), problem("a", "no"), engine=engine, most=3)
    # The first step is drawn with all of the limit; behind a line of two tokens one is left.
    steps = [(text, params) for name, text, params in engine.asked if name.endswith("/step")]
    assert steps[0][0] == "a="
    assert (steps[0][1].num_samples, steps[0][1].stop, steps[0][1].max_tokens) == (2, ("\n",), 3)
    assert {params.max_tokens for text, params in steps[1:]} == {1}
    assert all(len(each.sample.token_ids) <= 3 for each in made)


def test_a_prompt_without_room_has_one_empty_attempt():
    long = Problem("lines", "x" * 60, "no", 1, "exact")
    made = search(TreeSearch(iterations=4, children=2), long, problem("a", "no"))
    assert texts(made, long.prompt) == [""]
    assert len(texts(made, "a")) == 4
