"""Synthesis: what is made, how problems are parted, and what is refused."""

import json
import operator
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from posttrain.data.schemas import SCHEMAS, Problem, row_id
from posttrain.data.source_verifiers import read_scored_problems, read_verifiers
from posttrain.data.sources.table import falls_in_heldout
from posttrain.data.tables import check_table
from posttrain.data.teachers.programs import PROGRAMS
from posttrain.learning.rewards.references import refuse_unread_answers
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.curate import TASK as CURATE
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.pretrain import TASK as PRETRAIN
from tasks.sft import TASK as SFT
from tasks.synthesize import TASK
from tasks.synthesize.config import SynthesizeConfig
from tasks.synthesize.stage import run

GSM8K = Path(__file__).parents[3] / "shared/data/gsm8k/test.jsonl"
OPERATIONS = {"+": operator.add, "-": operator.sub}
STEP = re.compile(r"(-?\d+) ([-+]) (-?\d+) = (-?\d+)")


def erring(rate):
    """Programs that err at this rate."""
    return {"kind": "programs", "error_rate": rate}


def sums(*levels, **options):
    """A source of sums of single digits, one level of difficulty for each count of terms."""
    return {
        "kind": "reasoning_gym",
        "name": "chain_sum",
        "levels": levels,
        "graded": ["min_terms", "max_terms"],
        "options": {"min_digits": 1, "max_digits": 1, **options},
    }


def file_source(path, **fields):
    return {"kind": "jsonl", "name": "own", "path": str(path), **fields}


@pytest.fixture
def synthesize(tmp_path):
    """Run the stage; return its metrics and its tables, checked as the executor checks them."""

    def made(seed=0, folder="out", **values):
        config = TASK.config.parse(
            {"num_problems": 20, "num_heldout": 6, **values}, where="synthesize"
        )
        inputs = {f"files.{name}": Path(path) for name, path in config.local_files().items()}
        ports = TASK.outputs.items()
        outputs = {name: tmp_path / folder / f"{name}{p.type.suffix}" for name, p in ports}
        (tmp_path / folder).mkdir(exist_ok=True)
        metrics = run(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch", seed=seed))
        tables = {name: outputs[name] for name, port in ports if port.type.shape == "table"}
        for name, path in tables.items():
            check_table(path, SCHEMAS[TASK.outputs[name].type])
        return metrics, {name: pl.read_parquet(path) for name, path in tables.items()}

    return made


@pytest.fixture
def refusal(synthesize, tmp_path):
    """The sentence with which the stage refuses; nothing is written then."""

    def sentence(**values):
        with pytest.raises(UserError) as caught:
            synthesize(**values)
        assert not list(tmp_path.glob("out/*"))
        return str(caught.value)

    return sentence


@pytest.fixture
def rows(tmp_path):
    """Write rows to a JSONL file."""

    def write(*rows, name="own.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def test_the_error_rate_is_the_share_of_wrong_steps(synthesize):
    _, tables = synthesize(
        sources=[sums(6)], num_problems=200, solutions_per_problem=1, teacher=erring(0.2)
    )
    steps = STEP.findall("\n".join(tables["corpus"]["text"]))
    wrong = sum(OPERATIONS[o](int(a), int(b)) != int(c) for a, o, b, c in steps)
    assert len(steps) == 1000
    # Five standard deviations of a share of 0.2 in 1000: 0.063.
    assert wrong / len(steps) == pytest.approx(0.2, abs=0.063)


def test_every_default_generator_is_solved_and_scored_right_by_the_librarys_own_scorer(synthesize):
    metrics, tables = synthesize(teacher=erring(0.0), num_problems=12)
    assert len(set(tables["problems"]["source"])) == 4
    assert metrics["synthesize/verified_fraction"] == 1.0
    assert tables["rejected"].is_empty()
    assert len(tables["traces"]) == 4 * 12 * 3


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_program_is_right_by_the_librarys_own_scorer(synthesize, name):
    plain = {"kind": "reasoning_gym", "name": name}
    metrics, tables = synthesize(
        sources=[plain], teacher=erring(0.0), num_problems=20, num_heldout=2
    )
    assert metrics["synthesize/verified_fraction"] == 1.0
    assert set(tables["problems"]["difficulty"]) == {1}


def test_a_generator_that_nothing_solves_gives_problems_for_rl_alone(synthesize):
    alone = [{"kind": "reasoning_gym", "name": "spell_backward"}]
    metrics, tables = synthesize(sources=alone, num_problems=8, num_heldout=2)
    assert len(tables["problems"]) == 8
    assert tables["corpus"].is_empty()
    assert metrics["synthesize/verified_fraction"] == 0.0


@pytest.mark.parametrize(
    ("name", "solved"),
    [("spell_backward", lambda row: f"#### {row['prompt'].split(': ')[-1][::-1]}"),
     ("sudoku", lambda row: None), ("gsm_symbolic", lambda row: None)],
)  # fmt: skip
def test_bare_answers_and_own_solutions_are_accepted(synthesize, name, solved):
    teacher = {"kind": "programs", "without_program": "answer"}
    source = [{"kind": "reasoning_gym", "name": name}]
    metrics, tables = synthesize(sources=source, teacher=teacher, num_problems=6, num_heldout=1)
    assert metrics["synthesize/verified_fraction"] == 1.0
    texts = tables["traces"]["text"].to_list()
    assert len(texts) == 6
    if name == "sudoku":
        # All nine lines are the answer, not the marker's own alone.
        assert all(text.startswith("#### ") and text.count("\n") == 8 for text in texts)
    if name == "gsm_symbolic":
        assert all("\n#### " in text for text in texts)


def flow_of(tmp_path, sources, *, learners=("pretrain", "curate", "sft"), **values):
    """A DAG of synthesize and stages that are fed by it, as shipped flows feed them."""
    dag = Dag()
    files = {each["name"]: each["path"] for each in sources if "path" in each}
    inputs = {f"files.{name}": Reference.to_file(tmp_path / path) for name, path in files.items()}
    raw = dag.add(Stage("synthesize", TASK, SynthesizeConfig(sources=sources, **values), inputs))
    traces, wired = raw["traces"], {}
    if "curate" in learners:
        wired = {"problems": raw["problems"], "heldout": raw["heldout"], "traces": traces}
        traces = dag.add(Stage("curate", CURATE, CURATE.config(), wired))["traces"]
    if "pretrain" in learners:
        dag.add(Stage("pretrain", PRETRAIN, PRETRAIN.config(), {"corpus": raw["corpus"]}))
    if "sft" in learners:
        policy = Reference(ArtifactKind.CHECKPOINT, "import_model", "policy")
        dag.add(Stage("import_model", IMPORT_MODEL, IMPORT_MODEL.config(path="m"), {}))
        dag.add(Stage("sft", SFT, SFT.config(), {"policy": policy, "traces": traces}))
    return raw, dag


ALONE = [{"kind": "reasoning_gym", "name": "letter_counting"}]
QUIZ = [{"kind": "jsonl", "name": "quiz", "path": "quiz.jsonl"}]


@pytest.mark.parametrize(
    ("learners", "who"),
    [
        (("pretrain", "curate", "sft"), "pretrain and sft"),
        (("curate", "sft"), "sft"),
        (("pretrain",), "pretrain"),
    ],
)
def test_the_plan_refuses_to_train_on_solutions_that_nobody_writes(tmp_path, learners, who):
    said = (
        f"^synthesize: no source comes with solutions, so {who} would have nothing to learn from;"
        r" set synthesize.teacher to \{kind: programs, without_program: answer\}, or train by RL"
    )
    with pytest.raises(UserError, match=said):
        TASK.refuse(*flow_of(tmp_path, ALONE, learners=learners))


def test_a_file_without_a_solution_is_refused_and_one_solution_is_enough(tmp_path):
    lines = [json.dumps({"prompt": f"{i} + 1 =", "answer": str(i + 1)}) for i in range(5)]
    (tmp_path / "quiz.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="so pretrain and sft .* map a column to solution"):
        TASK.refuse(*flow_of(tmp_path, QUIZ))
    with pytest.raises(UserError, match="map a column to solution .*, or set synthesize.teacher"):
        TASK.refuse(*flow_of(tmp_path, [*QUIZ, *ALONE]))
    solved = {"prompt": "7 + 1 =", "answer": "8", "solution": "8\n#### 8"}
    (tmp_path / "quiz.jsonl").write_text("\n".join([*lines, json.dumps(solved)]) + "\n")
    TASK.refuse(*flow_of(tmp_path, QUIZ))


@pytest.mark.parametrize(
    "kept",
    [
        # RL alone, a generator that a program solves, bare answers.
        {"sources": ALONE, "learners": ("curate",)},
        {"sources": [*ALONE, {"kind": "reasoning_gym", "name": "chain_sum"}]},
        {"sources": ALONE, "teacher": {"kind": "programs", "without_program": "answer"}},
    ],
)
def test_what_may_have_solutions_is_not_refused(tmp_path, kept):
    TASK.refuse(*flow_of(tmp_path, kept.pop("sources"), **kept))


def test_a_model_as_the_teacher_may_solve_a_file(tmp_path):
    (tmp_path / "quiz.jsonl").write_text('{"prompt": "1 + 1 =", "answer": "2"}\n')
    server = {"kind": "server", "endpoint": {"base_url": "http://localhost:1/v1", "model": "m"}}
    TASK.refuse(*flow_of(tmp_path, QUIZ, teacher=server))


def test_the_plan_says_what_learns_nothing():
    sources = [{"kind": "reasoning_gym", "name": name} for name in ("letter_counting", "chain_sum")]
    (told,) = SynthesizeConfig(sources=sources).remarks()
    assert told.startswith("no program solves 'letter_counting', so no SFT")


def test_a_wrong_solution_is_kept_apart_with_its_reason(synthesize):
    _, tables = synthesize(sources=[sums(2, 3)], teacher=erring(0.5))
    corpus, traces, rejected = tables["corpus"], tables["traces"], tables["rejected"]
    assert set(traces["reason"]) == {"correct"}
    assert set(rejected["reason"]) == {"wrong_answer"}
    assert traces["verified"].all()
    assert not rejected["verified"].any()
    together = pl.concat([traces, rejected.select(traces.columns)])
    assert together.sort("id", "text").equals(corpus.sort("id", "text"))
    expressions = {p["id"]: json.loads(p["metadata"]) for p in tables["problems"].to_dicts()}
    for trace in traces.to_dicts():
        total = expressions[trace["problem_id"]]["expression"]
        answer = sum(int(term) for term in total.replace("- ", "-").replace("+ ", "").split())
        assert trace["text"].endswith(f"#### {answer}")


def test_solutions_name_the_problems_that_they_solve(synthesize):
    _, tables = synthesize(sources=[sums(2, 3)], solutions_per_problem=2)
    problems, corpus = tables["problems"], tables["corpus"]
    joined = corpus.join(problems, left_on="problem_id", right_on="id", suffix="_of_problem")
    assert len(joined) == len(corpus) == 2 * len(problems)
    for column in ("prompt", "source", "difficulty", "verifier"):
        assert joined[column].equals(joined[f"{column}_of_problem"].alias(column))
    assert corpus["parents"].to_list() == [[problem] for problem in corpus["problem_id"]]
    first = problems.row(0, named=True)
    # No row names its verifier; ids are those of when rows named this one.
    identity = [first[name] for name in ("source", "prompt", "answer")]
    assert first["id"] == row_id(*identity, "reasoning_gym")


def test_levels_share_the_problems_evenly_and_set_the_difficulty(synthesize):
    _, tables = synthesize(sources=[sums(2, 4, 5, 6)], num_problems=10, num_heldout=7)
    terms = [len(re.findall(r"\d", prompt)) for prompt in tables["problems"]["prompt"]]
    assert Counter(zip(tables["problems"]["difficulty"], terms, strict=True)) == {
        (1, 2): 2, (2, 4): 3, (3, 5): 2, (4, 6): 3,
    }  # fmt: skip
    assert Counter(tables["heldout"]["difficulty"]) == {1: 1, 2: 2, 3: 2, 4: 2}


def test_no_prompt_is_twice_in_a_generator_or_in_both_parts(synthesize):
    # Two digits and a sign make 200 prompts; the rest of the 300 that are asked for are not there.
    _, tables = synthesize(sources=[sums(2)], num_problems=300, num_heldout=20)
    prompts = [*tables["problems"]["prompt"], *tables["heldout"]["prompt"]]
    assert len(set(prompts)) == len(prompts)
    assert len(tables["heldout"]) == 20
    assert 150 < len(tables["problems"]) <= 180


def test_equal_seeds_make_equal_bytes_and_other_seeds_other_problems(synthesize, tmp_path):
    synthesize(seed=3, folder="one")
    synthesize(seed=3, folder="two")
    for name, port in TASK.outputs.items():
        file = f"{name}{port.type.suffix}"
        one, two = (tmp_path / folder / file for folder in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
    _, ours = synthesize(seed=3, sources=[sums(6)])
    _, theirs = synthesize(seed=4, sources=[sums(6)])
    assert not set(ours["problems"]["id"]) & set(theirs["problems"]["id"])


def test_solutions_of_a_problem_do_not_depend_on_how_many_others_there_are(synthesize):
    _, few = synthesize(sources=[sums(6)], num_problems=10, num_heldout=5)
    _, more = synthesize(sources=[sums(6)], num_problems=15, num_heldout=5)
    texts = more["corpus"].group_by("problem_id", maintain_order=True).agg("text")
    wanted = few["corpus"].group_by("problem_id", maintain_order=True).agg("text")
    assert texts.head(10).equals(wanted)


def test_rows_of_a_file_are_parted_by_their_prompt(synthesize, rows):
    file = rows(
        *({"prompt": f"1 + {n} =", "answer": str(n + 1), "solution": f"so\n#### {n + n % 2}"}
          for n in range(200)),
        # The same prompt again, with another answer: it goes to the side of the first.
        *({"prompt": f"1 + {n} =", "answer": str(-n), "difficulty": 2} for n in range(200)),
    )  # fmt: skip
    metrics, tables = synthesize(sources=[file_source(file)], heldout_fraction=0.25)
    heldout = {f"1 + {n} =" for n in range(200) if falls_in_heldout(f"1 + {n} =", 0.25)}
    assert 25 < len(heldout) < 75
    assert set(tables["heldout"]["prompt"]) == heldout
    assert not set(tables["problems"]["prompt"]) & heldout
    assert len(tables["problems"]) + len(tables["heldout"]) == 400
    # A solution belongs to training only, and n + n % 2 is n + 1 for the odd half.
    assert not set(tables["corpus"]["prompt"]) & heldout
    assert set(tables["traces"]["prompt"]) == {
        f"1 + {n} =" for n in range(1, 200, 2) if f"1 + {n} =" not in heldout
    }
    assert set(tables["corpus"]["generator"]) == {"file:own"}
    assert metrics["synthesize/num_problems"] == 400 - 2 * len(heldout)


def test_a_problem_keeps_the_file_and_the_line_that_it_stood_in(synthesize, rows):
    solved = [{"prompt": f"q{n}", "answer": str(n), "solution": f"#### {n}"} for n in range(30)]
    file = rows(*solved)
    _, tables = synthesize(sources=[sums(2), file_source(file)], heldout_fraction=0.5)
    for name in ("problems", "heldout"):
        own = tables[name].filter(source="own")
        assert own["origin_line"].to_list() == [int(answer) + 1 for answer in own["answer"]]
        assert set(own["origin_file"]) == {str(file)}
        made = tables[name].filter(source="chain_sum").select("origin_file", "origin_line")
        assert set(made.rows()) == {("", 0)}


def test_files_that_come_parted_stay_as_they_are(synthesize, rows):
    """A prompt that both have is held out, and not trained on."""
    train = rows(*({"prompt": f"q{n}", "answer": "1", "solution": "#### 1"} for n in range(9)))
    train = train.rename(train.with_name("train.jsonl"))
    test = rows(*({"prompt": f"q{n}", "answer": "1", "solution": "#### 1"} for n in range(8, 12)))
    sources = [
        file_source(train, name="own_train", use="train"),
        file_source(test, name="own_test", use="heldout"),
    ]
    _, tables = synthesize(sources=sources, heldout_fraction=0.9)
    prompts = {name: set(tables[name]["prompt"]) for name in ("problems", "heldout", "corpus")}
    assert prompts["problems"] == prompts["corpus"] == {f"q{n}" for n in range(8)}
    assert prompts["heldout"] == {"q8", "q9", "q10", "q11"}


def test_a_larger_held_out_share_keeps_what_a_smaller_one_held_out():
    prompts = [f"prompt {number}" for number in range(500)]
    held = {share: {p for p in prompts if falls_in_heldout(p, share)} for share in (0.1, 0.5, 0.9)}
    assert held[0.1] < held[0.5] < held[0.9]
    # Four standard deviations of a share of one half in 500: 0.09.
    assert len(held[0.5]) / 500 == pytest.approx(0.5, abs=0.09)


def test_a_prompt_that_a_generator_held_out_is_held_out_in_a_file_too(synthesize, rows):
    _, alone = synthesize(sources=[sums(2)], num_problems=10)
    known = [*alone["problems"].to_dicts(), *alone["heldout"].to_dicts()]
    file = rows(*({"prompt": p["prompt"], "answer": p["answer"]} for p in known))
    for order in (slice(None), slice(None, None, -1)):
        sources = [sums(2), file_source(file)][order]
        _, both = synthesize(sources=sources, num_problems=10, heldout_fraction=0.5)
        assert not set(both["problems"]["prompt"]) & set(both["heldout"]["prompt"])
        assert set(both["heldout"]["source"]) == {"chain_sum", "own"}


def test_an_answer_that_is_a_worked_solution_is_reduced_to_its_last_line(synthesize, rows):
    file = rows(
        *({"prompt": f"q{n}", "answer": f"think\n#### 1,00{n}"} for n in range(9)),
    )
    columns = {"solution": "answer"}
    _, tables = synthesize(sources=[file_source(file, columns=columns)], heldout_fraction=0.5)
    assert set(tables["problems"]["answer"]) <= {f"1,00{n}" for n in range(9)}
    assert tables["corpus"]["verified"].all()


@pytest.mark.skipif(not GSM8K.exists(), reason="the GSM8K files are not beside the checkout")
def test_gsm8k_passes_through_synthesize_and_curate(synthesize, tmp_path):
    columns = {"prompt": "question", "answer": "answer", "solution": "answer"}
    source = file_source(GSM8K, columns=columns, verifier="numeric")
    metrics, tables = synthesize(sources=[source], heldout_fraction=0.1)
    assert metrics["synthesize/num_problems"] + metrics["synthesize/num_heldout"] == 1319
    assert 80 < metrics["synthesize/num_heldout"] < 190
    assert metrics["synthesize/verified_fraction"] == 1.0
    janet = (
        tables["problems"]
        .vstack(tables["heldout"])
        .filter(pl.col("prompt").str.starts_with("Janet’s ducks lay 16 eggs per day."))
    )
    assert janet["answer"].to_list() == ["18"]

    from tasks.curate import TASK as CURATE
    from tasks.curate.stage import run as curate

    inputs = {name: tmp_path / f"out/{name}.parquet" for name in ("problems", "heldout", "traces")}
    outputs = {n: tmp_path / f"c_{n}{port.type.suffix}" for n, port in CURATE.outputs.items()}
    kept = curate(CURATE.config(), inputs, outputs, StageContext.quiet(tmp_path / "scratch"))
    assert kept["curate/num_problems"] > 0.95 * metrics["synthesize/num_problems"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            {**sums(2), "name": "chain_sums"},
            "synthesize.sources.0: reasoning-gym has no generator 'chain_sums'; "
            "did you mean 'chain_sum'?",
        ),
        (sums(2, min_digit=1), "synthesize.sources.0: options of 'chain_sum': "),
        (sums(2, min_digits=0), "synthesize.sources.0: options of 'chain_sum': min_digits must be"),
        (sums(-1), "synthesize.sources.0: options of 'chain_sum': min_terms must be positive"),
        (
            sums(2, size=5),
            "synthesize.sources.0: options of 'chain_sum': the stage sets its size; leave it out",
        ),
        ({**sums(2), "graded": ["terms"]}, "synthesize.sources.0: options of 'chain_sum': "),
        (
            {**sums(2), "levels": []},
            "synthesize.sources.0: 'chain_sum' needs both levels an",
        ),
        ({**sums(2), "level": [2]}, "synthesize.sources.0.level: unknown key; did you mean 'leve"),
        (
            {"name": "chain_sum"},
            "synthesize.sources.0: write the kind of source, such as '",
        ),
        (
            {"kind": "jsonll", "name": "own", "path": "own.csv"},
            "synthesize.sources.0: there is no source 'jsonll'; did you mean 'jsonl'?",
        ),
        (
            {"kind": "jsonl", "name": "own", "path": "x", "colums": {}},
            "synthesize.sources.0.colums: unknown key; did you mean 'columns'?",
        ),
        (
            {"kind": "parquet", "name": "own"},
            "synthesize.sources.0.path: a value is required here",
        ),
        (
            {"kind": "huggingface", "name": "openai/gsm8k"},
            "synthesize.sources.0: pin the data set with revision: <commit>, or give a local path",
        ),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(refusal, source, sentence):
    assert refusal(sources=[source]).startswith(sentence)


def test_two_sources_of_one_name_are_refused(refusal):
    assert refusal(sources=[sums(2), sums(3)]) == (
        "synthesize: two sources are called 'chain_sum'; give each a name of its own"
    )


def test_what_is_told_has_name_and_verifier_of_the_source_within(synthesize, tmp_path):
    """The domains name a verifier once for all their problems, and none in a row."""
    told = {"kind": "told", "of": {"kind": "science"}, "before": ["Briefly: ", ""]}
    tables = synthesize(sources=[told])[1]
    assert len(tables["traces"])
    verifiers = tmp_path / "out/verifiers.json"
    assert read_verifiers(verifiers)["science"]["kind"] == "exact"
    for name in ("problems", "heldout"):
        assert set(tables[name]["verifier"]) == {""}
        scored = read_scored_problems(tmp_path / f"out/{name}.parquet", verifiers)
        assert set(scored["source"]) == {"science"}
        assert {json.loads(each)["kind"] for each in scored["scored_by"]} == {"exact"}


def test_what_is_told_beside_itself_is_refused(refusal):
    told = {"kind": "told", "of": sums(2), "before": ["Briefly: "]}
    assert refusal(sources=[sums(3), told]).startswith(
        "synthesize: two sources are called 'chain_sum'"
    )


def test_an_unknown_verifier_is_refused_with_the_nearest(refusal, rows):
    file = rows({"prompt": "1 + 1 =", "answer": "2"})
    assert refusal(sources=[file_source(file, verifier="numerc")]) == (
        "synthesize.sources.0.verifier: there is no verifier 'numerc'; did you mean 'numeric'?"
        " If a plug-in offers 'numerc', name its module under `plugins`"
    )


def test_an_answer_that_its_verifier_cannot_check_is_refused(refusal, rows):
    file = rows(*({"prompt": f"q{n}", "answer": "red", "solution": "#### 1"} for n in range(20)))
    assert f"{file}:1: the verifier 'numeric' cannot read the answer 'red'" in refusal(
        sources=[file_source(file)]
    )


def test_tables_that_would_be_empty_are_refused_with_what_to_change(refusal, rows):
    solved = [{"prompt": f"q{n}", "answer": "1", "solution": "#### 1"} for n in range(20)]
    few = [file_source(rows(*solved))]
    assert "no problem held out; change synthesize.heldout_fraction" in refusal(
        sources=few, heldout_fraction=1e-9
    )
    assert "no problem to train on; change synthesize.heldout_fraction" in refusal(
        sources=few, heldout_fraction=0.999999
    )
    # A single step that is always wrong never ends at the right answer.
    assert "no solution was verified" in refusal(sources=[sums(2)], teacher=erring(1.0))


def test_solutions_that_are_bare_answers_are_told_from_wrong_ones(refusal, synthesize, rows):
    """Of files, where nobody's error rate is to blame."""

    def source(solution, **fields):
        solved = ({"prompt": f"q{n}", "answer": "1", "solution": solution} for n in range(20))
        return [file_source(rows(*solved), **fields)]

    bare = refusal(sources=source("1"))
    assert re.fullmatch(
        r"synthesize: none of the \d+ solutions that the sources bring states an answer where the"
        r" verifier 'numeric' looks for it, on a line that starts with '####'"
        r" \(\S+own\.jsonl:\d+ is '1'\);"
        r" write solutions that end so, let the verifier look elsewhere, as in verifier: \{kind:"
        r" numeric, answer: last_line\}, or leave `solution` out of the source's columns where"
        r" nothing learns from solutions, as in distillation and RL",
        bare,
    )
    wrong = refusal(sources=source("#### 2"))
    assert "is right by the verifier 'numeric': wrong_answer (" in wrong
    assert "is '#### 2', and the answer is '1'); correct solutions, answers or verifier," in wrong
    # Each of the remedies.
    looks = {"kind": "numeric", "answer": "last_line"}
    assert synthesize(sources=source("1", verifier=looks))[0]["synthesize/verified_fraction"] == 1
    assert synthesize(sources=source(""))[0]["synthesize/num_solutions"] == 0


def test_a_level_without_prompts_left_is_refused(refusal):
    assert refusal(sources=[sums(1)], num_heldout=50, num_problems=5) == (
        "source 'chain_sum' has no train problem left; raise its levels or lower the counts"
    )


def test_a_source_puts_its_context_around_the_prompts_and_a_row_its_own_turns(synthesize, rows):
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    path = rows(
        *(
            {
                "prompt": f"{index} + 1 =",
                "answer": str(index + 1),
                "solution": f"#### {index + 1}",
                "past": turns if index else [],
                "heft": 0.5 * index,
            }
            for index in range(20)
        )
    )
    columns = {"turns": "past", "weight": "heft"}
    source = file_source(path, columns=columns, context={"system": "Be brief.", "after": "####"})
    _, tables = synthesize(sources=[source])
    contexts = dict(tables["problems"].select("prompt", "context").rows())
    told = {"after": "####", "system": "Be brief."}
    for prompt, context in contexts.items():
        own = {} if prompt == "0 + 1 =" else {"turns": turns}
        assert json.loads(context) == told | own
    # A solution is of the problem as it is told, and its weight is the row's.
    corpus = tables["corpus"]
    assert set(corpus["problem_id"]) <= set(tables["problems"]["id"])
    assert corpus["context"].to_list() == [contexts[prompt] for prompt in corpus["prompt"]]
    assert corpus["weight"].to_list() == [
        0.5 * int(prompt.split()[0]) for prompt in corpus["prompt"]
    ]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"past": "[{"}, "the turns ('past') is no JSON: '[{'"),
        (
            {"past": [{"role": "boss", "content": "x"}]},
            "turns.0.role: input should be 'user', 'assistant' or 'tool', got 'boss'",
        ),
        ({"heft": -1}, "weight must be a number from 0, got '-1'"),
        ({"heft": "much"}, "weight must be a number from 0, got 'much'"),
    ],
)
def test_a_row_whose_context_or_weight_makes_no_sense_is_refused(refusal, rows, row, sentence):
    path = rows({"prompt": "1 + 1 =", "answer": "2", "past": [], "heft": 1} | row)
    source = file_source(path, columns={"turns": "past", "weight": "heft"})
    found = refusal(sources=[source])
    assert sentence in found
    assert f"{path}:1" in found


# A verifier, an answer that it reads, and one that it cannot.
UNREAD = {
    "numeric": ("numeric", "1,000 eggs", "a dozen"),
    "choice": ("choice", "(B) Paris", "Paris"),
    "box": ("box", "[0, 0, 2, 2]", "[2, 0, 0, 2]"),
    "tool_call": ("tool_call", '{"name": "f", "arguments": {}}', "f()"),
}


@pytest.mark.parametrize(("verifier", "read", "unread"), UNREAD.values(), ids=UNREAD)
def test_answers_that_the_verifier_cannot_read_are_named_by_their_lines(
    synthesize, tmp_path, verifier, read, unread
):
    path = tmp_path / "own.jsonl"
    answers = [read, unread, read, unread]
    rows = [{"prompt": f"q{n}", "answer": answer} for n, answer in enumerate(answers)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError) as caught:
        synthesize(sources=[file_source(path, verifier=verifier, use="heldout")])
    assert str(caught.value) == (
        f"{path}:2: the verifier '{verifier}' cannot read the answer {unread!r}, so nothing would"
        f" ever count as right (1 more row like it: {path}:4); correct the answers, or give the"
        " source another verifier, such as 'exact'"
    )


def test_what_needs_no_answer_and_what_runs_programs_is_not_looked_at():
    row = Problem("own", "q", "", 0, "", scored_by='{"kind": "format"}', origin_file="f.jsonl")
    pattern = '{"kind": "regex", "pattern": "x"}'
    tests = '{"kind": "python_tests", "tests": ["assert f(1) == 2"]}'
    for scored_by in (row.scored_by, pattern, tests):
        refuse_unread_answers([replace(row, scored_by=scored_by)])
    # What a generator made is right by the way it was made.
    refuse_unread_answers([replace(row, scored_by='{"kind": "numeric"}', origin_file="")])
    with pytest.raises(UserError, match="f.jsonl:0: the verifier 'numeric' cannot read the answer"):
        refuse_unread_answers([replace(row, scored_by='{"kind": "numeric"}')])


def test_a_source_of_which_no_problem_is_held_out_says_so(tmp_path):
    """By content: which side a prompt is on is not to hang on the rows beside it."""
    prompts = [
        f"What is {n} + 1?" for n in range(60) if not falls_in_heldout(f"What is {n} + 1?", 0.05)
    ]
    rows = [{"prompt": prompt, "answer": "1", "solution": "#### 1"} for prompt in prompts[:40]]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = TASK.config.parse(
        {
            "sources": [file_source("own.jsonl"), sums(2)],
            "num_problems": 4,
            "num_heldout": 2,
            "heldout_fraction": 0.05,
        },
        where="synthesize",
    )
    told = []
    outputs = {name: tmp_path / f"{name}{p.type.suffix}" for name, p in TASK.outputs.items()}
    context = replace(StageContext.quiet(tmp_path / "scratch"), emit=told.append)
    run(config, {"files.own": tmp_path / "own.jsonl"}, outputs, context)
    said = [each["line"] for each in told if "held out" in each.get("line", "")]
    assert said == [
        "own: none of its 40 problems is held out; by content, synthesize.heldout_fraction 0.05"
        " takes more or fewer of so few: raise it, or give more rows"
    ]
