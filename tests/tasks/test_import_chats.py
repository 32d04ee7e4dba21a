"""Conversations of the user's own: read, parted, weighed, capped; what is left out says why."""

import json
from contextlib import nullcontext
from dataclasses import replace

import polars as pl
import pytest

from posttrain.data.contexts import PromptContext
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.import_chats import TASK
from tasks.import_chats.stage import run
from tasks.sft import TASK as SFT


def chat(asked, said, **more):
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
    return {"messages": messages, **more}


@pytest.fixture
def imported(tmp_path):
    """Import files: name -> rows, with the sources as a recipe has them."""

    def run_on(files, sources, policy=None, **config):
        for name, rows in files.items():
            (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        parsed = TASK.config.parse({"sources": sources, **config}, where="import_chats")
        inputs = {f"files.{n}": tmp_path / path for n, path in parsed.local_files().items()}
        inputs |= {"policy": policy} if policy else {}
        outputs = {name: tmp_path / f"{name}.out" for name in TASK.outputs}
        metrics = run(parsed, inputs, outputs, StageContext.quiet(tmp_path / "scratch"))
        tables = {n: pl.read_parquet(outputs[n]) for n in ("traces", "heldout", "dropped")}
        return tables, json.loads(outputs["report"].read_text()), metrics

    return run_on


def test_every_row_is_learned_or_held_out_or_left_out_with_a_reason(imported):
    rows = [chat(f"q{n}", f"a{n}", system="Be brief.") for n in range(40)]
    rows += [rows[0], {"messages": rows[0]["messages"][:1]}]
    tables, report, metrics = imported(
        {"c.jsonl": rows}, [{"path": "c.jsonl"}], heldout_fraction=0.25
    )
    kept = pl.concat([tables["traces"], tables["heldout"]]).sort("prompt")
    assert sorted(kept["prompt"]) == sorted(f"q{n}" for n in range(40))
    for row in kept.to_dicts():
        number = int(row["prompt"][1:])
        assert row["text"] == f"a{number}"
        assert row["parents"] == [f"c.jsonl:{number + 1}"]
        assert PromptContext.read(row["context"]) == PromptContext(system="Be brief.")
        # Accepted, as nobody was to judge it: SFT asks for no verifier.
        assert (row["verified"], row["score"], row["reason"]) == (True, None, "given")
    assert 2 <= len(tables["heldout"]) <= 20
    assert tables["dropped"].select("reason", "parents").rows() == [
        ("duplicate", ["c.jsonl:41", "c.jsonl:1"]),
        ("its last message is the user's, so there is no answer to learn", ["c.jsonl:42"]),
    ]
    assert report["read_as"] == {"c": "messages: messages, system"}
    assert report["rows"]["c"] == {
        "train": len(tables["traces"]),
        "heldout": len(tables["heldout"]),
    }
    assert metrics["import_chats/num_left_out"] == 2


def calling(asked, name, **arguments):
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"messages": [{"role": "user", "content": asked}, said], "tools": [{"name": name}]}


def test_answers_that_call_tools_are_rows_and_one_question_stays_on_one_side(imported):
    rows = [calling(f"q{n}", "look", of=of) for n in range(30) for of in ("a", "b")]
    tables, _, metrics = imported({"c.jsonl": rows}, [{"path": "c.jsonl"}], heldout_fraction=0.3)
    assert metrics["import_chats/num_left_out"] == 0
    kept = pl.concat([tables["traces"], tables["heldout"]])
    assert (len(kept), kept["id"].n_unique(), set(kept["text"])) == (60, 60, {""})
    contexts = [PromptContext.read(each) for each in kept["context"]]
    called = [dict(each.answer_calls[0]["function"]["arguments"]) for each in contexts]
    assert sorted(each["of"] for each in called) == ["a"] * 30 + ["b"] * 30
    sides = [set(tables[side]["prompt"]) for side in ("traces", "heldout")]
    assert sides[1]
    assert not sides[0] & sides[1]


def test_sources_weigh_and_are_capped_and_parted_by_prompt(imported):
    files = {
        "a.jsonl": [chat(f"q{n}", "a") for n in range(20)],
        "b.jsonl": [{"instruction": f"q{n}", "output": "b"} for n in range(20)],
        "test.jsonl": [{"prompt": "q3", "completion": "t"}],
    }
    sources = [
        {"path": "a.jsonl", "weight": 2.0, "limit": 7, "use": "train"},
        {"path": "b.jsonl", "format": "alpaca", "name": "bees"},
        {"path": "test.jsonl", "use": "heldout"},
    ]
    tables, report, _ = imported(files, sources)
    weights = dict(tables["traces"].group_by("source").agg(pl.col("weight").unique()).rows())
    assert weights == {"a": [2.0], "bees": [1.0]}
    assert report["left_out"]["over the limit of 7"] == 13
    # q3 is in the file that is held out whole, so nothing of it is learned.
    assert set(tables["traces"]["prompt"]) & set(tables["heldout"]["prompt"]) == set()
    held = {row["source"] for row in tables["heldout"].filter(prompt="q3").to_dicts()}
    assert held == {"bees", "test"}
    again, _, _ = imported(files, sources)
    for name, table in tables.items():
        assert again[name].equals(table)


def test_the_rows_that_a_cap_leaves_do_not_hang_on_their_order(imported):
    rows = [chat(f"q{n}", "a") for n in range(30)]
    source = [{"path": "c.jsonl", "limit": 10}]
    kept = []
    for each in (rows, rows[::-1]):
        tables, _, _ = imported({"c.jsonl": each}, source)
        kept.append({*tables["traces"]["prompt"], *tables["heldout"]["prompt"]})
    assert kept[0] == kept[1]
    assert len(kept[0]) == 10


def test_of_two_prompts_one_is_held_out_and_of_one_none_can_be(imported):
    tables, _, _ = imported({"c.jsonl": [chat("a", "1"), chat("b", "2")]}, [{"path": "c.jsonl"}])
    assert (len(tables["traces"]), len(tables["heldout"])) == (1, 1)
    with pytest.raises(UserError, match="c: there is no row to hold out, and 0 were left out"):
        imported({"c.jsonl": [chat("a", "1")]}, [{"path": "c.jsonl"}])
    with pytest.raises(
        UserError, match="no row to learn from, and 1 were left out .c.jsonl:1: its"
    ):
        imported({"c.jsonl": [{"messages": chat("a", "1")["messages"][:1]}]}, [{"path": "c.jsonl"}])


def test_questions_teach_their_solution_and_preferences_are_for_another_stage(imported):
    rows = [{"problem": f"{n}?", "solution": f"so {n}", "answer": n} for n in range(2)]
    tables, _, _ = imported({"q.jsonl": rows}, [{"path": "q.jsonl"}])
    assert tables["traces"]["text"][0].startswith("so ")
    rows = [{"prompt": "p", "chosen": "c", "rejected": "r"}]
    with pytest.raises(
        UserError,
        match="p.jsonl: format preference gives preferences, and"
        " import_chats takes what has one answer to learn; import_pairs",
    ):
        imported({"p.jsonl": rows}, [{"path": "p.jsonl"}])  # fmt: skip


def test_a_broken_row_is_named_with_its_line(imported):
    rows = [chat("a", "1")] * 8 + [{"messages": [{"role": "usr", "content": "x"}]}]
    with pytest.raises(UserError, match=r"^c.jsonl:9: message 1 has the role 'usr'; did you mean"):
        imported({"c.jsonl": rows}, [{"path": "c.jsonl"}])


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"sources": []}, "import_chats.sources: tuple should have at least 1 item"),
        (
            {"sources": [{"path": "x/a.jsonl"}, {"path": "y/a.csv"}]},
            "import_chats: two sources are called 'a'; give each a name of its own",
        ),
        ({"sources": [{"path": "a", "weight": 0}]}, "weight: input should be greater than 0"),
        ({"sources": [{"path": "a", "format": "alpacca"}]}, "did you mean 'alpaca'?"),
    ],
)
def test_parameters_that_are_refused(config, sentence):
    with pytest.raises(UserError) as caught:
        TASK.config.parse(config, where="import_chats")
    assert sentence in str(caught.value)


def test_how_many_rows_are_held_out_is_said(tmp_path):
    """By content: of 4 rows a twentieth is none, and one is held out all the same."""
    (tmp_path / "c.jsonl").write_text(
        "".join(json.dumps(chat(f"q{n}", "a")) + "\n" for n in range(4))
    )
    config = TASK.config.parse(
        {"sources": [{"path": "c.jsonl"}], "heldout_fraction": 1e-9}, where="import_chats"
    )
    told = []
    outputs = {name: tmp_path / f"{name}.out" for name in TASK.outputs}
    context = replace(StageContext.quiet(tmp_path / "scratch"), emit=told.append)
    run(config, {"files.c": tmp_path / "c.jsonl"}, outputs, context)
    assert "1 of 4 rows are held out" in [each.get("line") for each in told]


CHATML = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}{% endfor %}"


@pytest.fixture
def policy(tmp_path):
    """A folder with a tokenizer whose template knows nothing of tools."""
    tokenizer = train_tokenizer(["q and a"] * 20, vocab_size=270)
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(tmp_path / "policy")
    return tmp_path / "policy"


def test_rows_that_the_template_of_the_model_does_not_write_are_left_out(imported, policy):
    """An earlier turn that only calls a tool would be learned as the end of a turn."""
    asked, called = calling("q", "look")["messages"]
    answered = [asked, called, {"role": "tool", "content": "a"}, *chat("and?", "a")["messages"]]
    rows = [chat("q0", "a"), {"messages": answered}, chat("q1", "a")]
    tables, _, metrics = imported({"c.jsonl": rows}, [{"path": "c.jsonl"}], policy=policy)
    assert tables["dropped"].select("reason", "parents").rows() == [
        (
            "the chat template does not write the assistant's calls of tools; use a template that"
            " does",
            ["c.jsonl:2"],
        )
    ]
    assert metrics["import_chats/num_rows"] + metrics["import_chats/num_heldout"] == 2


def test_where_nothing_is_left_the_reason_is_in_the_sentence(imported, policy):
    files = {"c.jsonl": [calling("q", "look")]}
    with pytest.raises(UserError, match=r"no row to learn.*c\.jsonl:1: the chat template"):
        imported(files, [{"path": "c.jsonl"}], policy=policy)


def test_a_template_that_rows_are_not_checked_by_is_refused_by_the_plan(tmp_path):
    (tmp_path / "c.jsonl").write_text(json.dumps(chat("q", "a")) + "\n")
    config = TASK.config.parse({"sources": [{"path": "c.jsonl"}]}, where="import_chats")
    model = Reference(ArtifactKind.CHECKPOINT, "import_model", "policy")
    read = {"policy": model, "files.c": Reference.to_file(tmp_path / "c.jsonl")}
    chats = Stage("import_chats", TASK, config, read)
    traces = {"traces": chats["traces"]}
    for template, refused in (("own", False), ("turns", True)):
        learner = Stage("sft", SFT, SFT.config.parse({"template": template}, where="sft"), traces)
        dag = Dag({"import_chats": chats, "sft": learner})
        told = pytest.raises(UserError, match=r"^sft\.template: .*; set import_model\.template")
        with told if refused else nullcontext():
            TASK.refuse(chats, dag)
