"""Passages are found by BM25, which holds against a hand-made sum; facts are asked hop by hop."""

import json
import math
import subprocess
import sys
from random import Random

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.episodes.retrieval import best_passages
from posttrain.learning.episodes.script import play_script
from posttrain.learning.episodes.worlds.facts import FactSearch
from posttrain.stage.errors import UserError

TEXTS = ("the cat sat", "a dog and a cat and a cow", "the dog", "nothing else")
# 1 key 2, 2 map 3, and a passage that is as good an answer to the first query.
POSED = {
    "passages": ["5 key 1", "2 map 3", "1 key 2", "7 map 8"],
    "gold": [1, 2],
    "question": "1 key map",
    "answer": "3",
    "searches": 3,
    "shown": 2,
}


def bm25(texts, query, k1=1.5, b=0.75):
    """Robertson's formula with Lucene's idf, which leaves out the factor k1 + 1."""
    split = [text.split() for text in texts]
    mean = sum(map(len, split)) / len(split)
    total = [0.0] * len(texts)
    for word in query.split():
        having = sum(word in words for words in split)
        idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for place, words in enumerate(split):
            count = words.count(word)
            total[place] += idf * count / (count + k1 * (1 - b + b * len(words) / mean))
    return total


def said(world, texts, facts=POSED):
    problem = Problem("facts", "1 key map", "", 1, "played", metadata=json.dumps({"facts": facts}))
    lines = iter(texts)
    episode = play_script(world, problem, lambda *_: next(lines), seed=1, most_turns=20)
    return problem, episode


@pytest.mark.parametrize("query", ["cat dog", "the", "cow cat cat", "sat a"])
def test_the_best_passages_are_those_of_the_formula(query):
    expected = bm25(TEXTS, query)
    places = sorted(range(4), key=lambda place: (-expected[place], place))
    assert best_passages(TEXTS, query, 4) == [place for place in places if expected[place]]
    assert best_passages(TEXTS, query.upper() + "!", 1) == places[:1]


def test_of_equally_good_passages_the_first_comes_first_and_strange_words_find_none():
    assert best_passages(("b a", "a b", "c"), "a b", 3) == [0, 1]
    assert best_passages(TEXTS, "zebra", 3) == []
    assert best_passages(TEXTS, "", 3) == []
    assert best_passages(("", "..."), "a", 3) == []


@pytest.mark.slow
def test_the_order_of_hashes_shows_nowhere():
    program = (
        "from posttrain.learning.episodes.retrieval import best_passages as best\n"
        "texts = tuple(f'{a} {b} {a + b}' for a in range(9) for b in range(9))\n"
        "print([best(texts, f'{a} {b}', 9) for a in range(9) for b in range(9)])"
    )
    out = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert out[0] == out[1]


def test_without_bm25s_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[search\]'"):
        best_passages(("a", "never seen before"), "a", 1)


def test_hop_by_hop_leads_to_the_answer_and_every_passage_is_told():
    problem, episode = said(FactSearch(), ["1 key", "2 map", "= 3"])
    told = [ask.new[0].text for each in episode.situations[1:] for ask in each.asks]
    # "1 key" and "5 key 1" have both words; of "2 map", "1 key 2" and "7 map 8" have one.
    assert told[0] == "5 key 1; 1 key 2"
    assert told[1].startswith("2 map 3; ")
    assert episode.earned(POLICY) == (0.0, 0.0, 1.0)
    assert episode.facts() == {"gold": 2.0, "supported": 1.0}
    assert episode.situations[1].read == (f"{problem.id}:1", f"{problem.id}:3")


def test_a_guess_is_right_and_supported_by_nothing():
    _, episode = said(FactSearch(), ["1 key", "=3"])
    assert (episode.earned(POLICY), episode.facts()) == ((0.0, 1.0), {"gold": 1.0})
    _, episode = said(FactSearch(), ["= 8"])
    assert (episode.earned(POLICY), episode.facts(), episode.end) == ((0.0,), {}, "over")


def test_queries_run_out_and_strange_ones_are_counted():
    _, episode = said(FactSearch(), ["?", "1", "1", "1"])
    assert episode.end == "over"
    assert episode.facts() == {"gold": 1.0, "tool_errors": 2.0}
    assert episode.earned(POLICY) == (0.0,) * 4


@pytest.mark.parametrize("hops", [1, 3, 5])
def test_the_gold_is_the_way_from_question_to_answer(hops):
    world = FactSearch(entities=12, relations=3, hops=hops, searches=5)
    for seed in range(20):
        posed = world.pose(Random(seed)).facts
        assert len(posed["passages"]) == len(set(posed["passages"])) == 36
        at, *asked = posed["question"].split()
        way = set()
        for name in asked:
            (place,) = (
                place
                for place, text in enumerate(posed["passages"])
                if text.split()[:2] == [at, name]
            )
            way.add(place)
            at = posed["passages"][place].split()[2]
        assert at == posed["answer"]
        assert sorted(way) == posed["gold"]
        assert len(asked) == hops


def test_more_hops_than_searches_are_refused():
    with pytest.raises(ValueError, match="hops 5 is above searches 4; raise searches"):
        FactSearch(hops=5)
