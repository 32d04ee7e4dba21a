"""The promise: a method of any kind enters as a plug-in of at most 40 lines, and nothing else.

Slow: a pipeline with a plug-in of every kind runs once, for all that look at it.
"""

import ast
import json
from pathlib import Path

import polars as pl
import pytest
from ruamel.yaml import YAML

from posttrain.data.templates import render_prompt
from posttrain.pipeline.slots import SLOTS

pytestmark = [pytest.mark.slow, pytest.mark.core]

FOLDER = Path(__file__).parent / "plugins"
# Stages of RL that play in the environment of a plug-in.
PLAYING = {"rl_play", "rl_company", "rl_forgetful"}
# All that score what a policy wrote.
SCORING = {
    "probe",
    "probe_told",
    "probe_again",
    "preference",
    "rl",
    "rl_told",
    "rl_stored",
    "rl_hinted",
    "rl_masked",
    "coevolve",
}
SCORING |= {*PLAYING, "coevolve", "evaluate"}
# Slot -> the first stages that run again when the plug-in's formula is edited.
STAGES = {
    "source": {"synthesize"},
    "format": {"import_chats"},
    "teacher": {"synthesize"},
    # The rows of problems name all three: what scores answers to them has their code in its key.
    "constraint": {"synthesize", *SCORING},
    "extractor": {"synthesize", *SCORING},
    "verifier": {"synthesize", *SCORING},
    "filter": {"curate"},
    "run_source": {"import_curves"},
    "ranking": {"select"},
    "pair_builder": {"preference"},
    "template": {"sft"},
    "row_loss": {"sft"},
    "optimizer": {"sft"},
    "alarm": {"rl"},
    "merge": {"merge"},
    "problem_sampler": {"rl"},
    "instructor": {"rl_told"},
    "environment": PLAYING,
    "player": {"rl_company"},
    "context_manager": {"rl_forgetful"},
    "branching": {"rl_play"},
    "guidance": {"probe_told"},
    "producer": {"rl"},
    "hint_law": {"rl_hinted"},
    "selection": {"rl"},
    "action_mask": {"rl_masked"},
    "addition": {"rl"},
    "foreign_loss": {"rl"},
    "replay": {"rl"},
    "reference": {"rl"},
    "rehearsal": {"rl"},
    "balance": {"rl"},
    "exchange": {"coevolve"},
    "engine": {"probe"},
    "component": {"rl"},
    "combine": {"rl"},
    "advantage": {"rl"},
    "turn_value": {"rl_stored"},
    "surrogate": {"rl"},
    "token_weight": {"rl"},
    "regularizer": {"rl"},
    "pair_oracle": {"rl"},
    "pair_loss": {"preference"},
    "pair_term": {"preference"},
    "search": {"probe_again"},
    "strategy": {"evaluate"},
    "variant": {"evaluate"},
    "diagnostic": {"diagnose"},
    "schedule": {"rl"},
}


def table(extended, name):
    return pl.read_parquet(extended.root / "data" / f"{name}.parquet")


def test_every_slot_is_used_by_a_stage():
    assert STAGES.keys() == SLOTS.keys()


def test_all_stages_ran(extended):
    assert {record.status for record in extended.records.values()} == {"succeeded"}
    assert {decision.action for decision in extended.plan().values()} == {"cached"}


def test_every_part_is_listed_with_its_origin(extended):
    rows = [line.split("\t") for line in extended.cli("parts", "--tsv").splitlines()]
    ours = {row[0]: row[4] for row in rows if row[4].startswith("plug-in")}
    assert ours == {slot: f"plug-in my_{slot}" for slot in SLOTS}


@pytest.mark.parametrize("slot", SLOTS)
def test_only_the_stages_that_use_a_part_run_again_when_it_is_edited(extended, slot):
    file = extended.root / f"my_{slot}.py"
    text = file.read_text()
    lines = text.splitlines()
    # An idle statement at the start of the part's first method.
    part = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    method = next(node for node in part.body if isinstance(node, ast.FunctionDef))
    lines.insert(method.body[-1].lineno - 1, " " * method.body[-1].col_offset + "edited = True")
    try:
        file.write_text("\n".join(lines) + "\n")
        plan = extended.plan()
    finally:
        file.write_text(text)
    again = {name: decision for name, decision in plan.items() if decision.action == "run"}
    assert again.keys() == STAGES[slot]
    for decision in again.values():
        assert decision.reasons[0].startswith(f"the code of my_{slot}:")


def test_a_comment_in_every_plug_in_runs_nothing_again(extended):
    texts = {file: file.read_text() for file in extended.root.glob("my_*.py")}
    assert len(texts) == len(SLOTS)
    for file, text in texts.items():
        file.write_text(text + "# the same\n")
    unchanged = extended.plan()
    for file, text in texts.items():
        file.write_text(text)
    assert {decision.action for decision in unchanged.values()} == {"cached"}


@pytest.mark.parametrize("slot", SLOTS)
def test_the_record_of_a_stage_names_its_parts(extended, slot):
    users = {
        name
        for name, record in extended.records.items()
        if any(symbol.startswith(f"my_{slot}:") for symbol in record.components["code"])
    }
    assert users == STAGES[slot]


def test_source_teacher_verifier_and_filter_did_their_work(extended):
    problems = table(extended, "curate/problems")
    assert set(problems["source"]) == {"letters", "brief"}
    # What scores them stands beside the problems, and not in them.
    assert set(problems["verifier"]) == {""}
    assert set(problems["metadata"]) == {"{}"}
    said = json.loads((extended.root / "data" / "synthesize" / "verifiers.json").read_text())
    assert said["letters"] == {"kind": "parity", "answer": {"kind": "untrimmed"}, "odd": False}
    assert said["brief"]["constraints"] == [{"kind": "short", "longest": 12}]
    problems = problems.filter(source="letters")
    assert all(int(answer) % 10 for answer in problems["answer"])
    corpus = table(extended, "synthesize/corpus")
    assert set(corpus["generator"]) == {"counting"}
    brief = corpus.filter(source="brief")
    assert brief["verified"].to_list() == [len(text) <= 12 for text in brief["text"]]
    corpus = corpus.filter(source="letters")
    assert corpus["verified"].to_list() == [len(text) % 2 == 0 for text in corpus["text"]]


def test_the_format_read_the_file_and_was_found_by_its_columns(extended):
    rows = [*table(extended, "import_chats/traces").to_dicts()]
    rows += table(extended, "import_chats/heldout").to_dicts()
    assert {row["prompt"]: (row["text"], row["parents"]) for row in rows} == {
        "It does not start": ("Hello! Did you plug it in?", ["tickets.jsonl:2"]),
        "It does not end": ("Hello! Pull the plug.", ["tickets.jsonl:3"]),
    }
    read = extended.root / "data" / "import_chats" / "report.json"
    assert json.loads(read.read_text())["read_as"] == {"tickets": "ticket: subject, replies"}


def test_the_template_of_fine_tuning_wrote_the_prompts_of_every_later_stage(extended):
    """The base never saw it, and is evaluated by its own beside those that did."""
    from posttrain.learning.models.load import load_policy

    base = load_policy(extended.root / "data" / "pretrain" / "policy").tokenizer
    assert render_prompt(base, "3 + 4 =") == "3 + 4 =\n"
    report = json.loads((extended.root / "data" / "evaluate" / "report.json").read_text())
    assert [policy["name"] for policy in report["policies"]] == ["base", "sft", "rl"]
    for stage in ("sft", "preference", "rl"):
        tokenizer = load_policy(extended.root / "data" / stage / "policy").tokenizer
        assert render_prompt(tokenizer, "3 + 4 =") == "<bos>? 3 + 4 =\n"
    for row in table(extended, "rl/rollouts").to_dicts():
        assert tokenizer.decode(row["token_ids"]).startswith("<bos>? ")


def test_the_search_did_its_work(extended):
    rates = table(extended, "probe_again/solve_rates")
    samples = table(extended, "probe_again/samples")
    assert len(samples) == rates["attempts"].sum()
    for row in rates.to_dicts():
        assert row["attempts"] == 3 or row["solved"] == 1


def test_the_run_source_gave_the_runs_of_which_the_curve_is_drawn(extended):
    curve = table(extended, "import_curves/curve").filter(metric="loss")
    # The middle half of 1, 2, 3 and 4 times the step.
    assert dict(curve.select("step", "value").iter_rows()) == {1: 2.5, 2: 5.0}


def test_the_ranking_chose_what_was_solved_last(extended):
    (_, first), (_, second) = table(extended, "select/problems").select("source", "id").iter_rows()
    report = json.loads((extended.root / "data" / "select" / "report.json").read_text())
    assert [each["id"] for each in report["chosen"]] == [first, second]
    assert [each["score"] for each in report["chosen"]] == sorted(
        (each["accuracies"][-1] for each in report["chosen"]), reverse=True
    )


def test_the_merge_took_the_larger_of_each_weight(extended):
    from posttrain.learning.models.load import load_policy

    made, sft, rl = (
        dict(load_policy(extended.root / "data" / name / "policy").model.named_parameters())
        for name in ("merge", "sft", "rl")
    )
    assert all((made[n] == sft[n].max(rl[n])).all() for n in made)
    assert any((made[n] != sft[n]).any() and (made[n] != rl[n]).any() for n in made)


def test_the_pair_builder_did_its_work(extended):
    pairs = table(extended, "preference/pairs")
    assert len(pairs) > 2
    assert all(len(row["chosen"]) < len(row["rejected"]) for row in pairs.to_dicts())


def test_a_kind_of_artifact_is_checked_kept_and_in_the_lineage(extended):
    files = list((FOLDER / "my_artifact_kind").glob("*.py"))
    assert sum(len(file.read_text().splitlines()) for file in files) <= 40
    problems = table(extended, "curate/problems")
    assert table(extended, "lengths/lengths")["length"].max() == max(map(len, problems["prompt"]))
    (made,) = extended.records["lengths"].outputs
    assert (made.type, made.rows) == ("lengths", len(problems))
    file = extended.root / "my_artifact_kind" / "stage.py"
    text = file.read_text()
    file.write_text(text.replace("len_chars", "len_bytes"))
    plan = extended.plan()
    file.write_text(text)
    assert {name for name, each in plan.items() if each.action != "cached"} == {"lengths"}
    assert "curate" in extended.cli("lineage", "up", "data/lengths/lengths.parquet")


def test_component_and_combination_made_the_reward(extended):
    for row in table(extended, "rl/rollouts").filter(source="letters").to_dicts():
        scores = {each["name"]: each["value"] for each in row["components"]}
        assert scores.keys() == {"correct", "brief", "liked"}
        length = len(row["text"])
        assert scores["correct"] == float(length % 2 == 0)
        assert scores["brief"] in (None, pytest.approx(max(0.0, 1 - length / 12)))
        total = scores["correct"] + (scores["brief"] or 0.0) + (scores["liked"] or 0.0)
        assert row["reward"] == pytest.approx(total if scores["correct"] else total / 2)
        assert row["solved"] == bool(scores["correct"])


def test_the_producer_made_the_prompts(extended):
    rows = table(extended, "rl/rollouts").to_dicts()
    # What was read ends with the tokens of "= ", which no prompt of the problems ends with.
    read = [[s for s in row["spans"] if not s["drawn"]][-1]["end"] for row in rows]
    ends = {tuple(row["token_ids"][end - 1 : end]) for row, end in zip(rows, read, strict=True)}
    assert len(ends) == 1


def test_the_selection_says_what_is_learned_from(extended):
    groups = table(extended, "rl/rollouts").partition_by("step", "group")
    for whole in groups:
        # The reference answer joined every group, and is learned from beside the chosen two.
        group = whole.filter(origin="policy")
        assert len(whole) == len(group) + 1
        assert group["trained"].sum() == 2
        paid = group.filter("trained")["reward"].sort()
        assert paid.to_list() == [group["reward"].min(), group["reward"].max()]


def test_the_hint_law_gave_the_second_part_of_a_group_less(extended):
    solved = dict(table(extended, "curate/traces").select("id", "text").iter_rows())
    rows = table(extended, "rl_hinted/rollouts").to_dicts()
    given = [{each["name"]: each["value"] for each in row["facts"]} for row in rows]
    behind = [(row, each) for row, each in zip(rows, given, strict=True) if each["hint"]]
    assert behind
    for row, _ in behind:
        *_, trace = row["parents"]
        assert row["text"][0] == solved[trace][0]
    shares = {}
    for row, each in zip(rows, given, strict=True):
        shares.setdefault(row["group"], {})[each["hint_round"]] = each["hint"]
    assert all(each[1.0] <= each[0.0] for each in shares.values())
    assert any(each[1.0] < each[0.0] for each in shares.values())


def test_the_instructor_stood_before_every_problem(extended):
    from posttrain.learning.models.load import load_policy

    tokenizer = load_policy(extended.root / "data" / "sft" / "policy").tokenizer
    for row in table(extended, "rl_told/rollouts").to_dicts():
        # Something fails in every step of so small a policy: then it is said once more.
        told = "<bos>? " + " ".join(["Go."] * row["step"]) + "\n"
        assert tokenizer.decode(row["token_ids"]).startswith(told)


def test_the_branching_began_episodes_inside_others(extended):
    rows = table(extended, "rl_play/rollouts").to_dicts()
    branches = [row for row in rows if row["shared"]]
    assert branches
    ids = {(row["step"], row["group"], row["episode"].rpartition("/")[2]) for row in rows}
    for row in branches:
        of = row["episode"].partition("<")[2].partition("@")[0]
        assert (row["step"], row["group"], of) in ids
    sizes = table(extended, "rl_play/rollouts").group_by("step", "group").len()["len"]
    assert set(sizes) == {8}


def test_the_exchange_passed_everything_on(extended):
    rows = table(extended, "coevolve/rollouts").filter("trained")
    authors = set(rows.select("role", "origin").unique().iter_rows())
    assert authors == {
        ("policy_1", "policy_3"),
        ("policy_2", "policy_1"),
        ("policy_3", "policy_2"),
    }


def test_the_mask_kept_out_what_it_forbids(extended):
    rows = table(extended, "rl_masked/rollouts")
    assert not [text for text in rows["text"] if "7" in text]
    assert [text for text in table(extended, "rl_told/rollouts")["text"] if "7" in text]


def test_what_failed_was_tried_again_behind_what_was_told(extended):
    samples = table(extended, "probe_told/samples")
    second = samples.filter(pl.col("generator").str.ends_with("+guidance"))
    first = samples.filter(~pl.col("generator").str.ends_with("+guidance"))
    assert len(second) == (~first["verified"]).sum() > 0
    # What was told is in no row: the samples are of the plain problems.
    assert set(second["problem_id"]) <= set(first["problem_id"])
    assert set(samples["context"]) == {""}


def test_the_environment_answered_and_its_words_bear_no_loss(extended):
    from posttrain.learning.models.load import load_policy

    tokenizer = load_policy(extended.root / "data" / "sft" / "policy").tokenizer
    rows = table(extended, "rl_play/rollouts").to_dicts()
    assert any(len(row["versions"]) == 2 for row in rows)
    for row in rows:
        read = [span for span in row["spans"] if not span["drawn"]]
        for span in read[1:]:
            assert "Again:" in tokenizer.decode(row["token_ids"][span["begin"] : span["end"]])
        assert ("#### " in row["text"].split("\n")[0]) <= (len(row["versions"]) == 1)


def test_lineage_leads_through_the_parts(extended):
    shown = extended.cli("lineage", "up", "data/rl/policy")
    assert "synthesize" in shown
    assert "verifier:parity" in shown
    assert "verifier:extractor.untrimmed" in shown


def test_what_was_learned_replays_bit_for_bit(extended):
    assert "equal: the stored rollouts alone lead to the same weights" in extended.cli(
        "replay", "rl@latest"
    )


# A part whose state comes back from the checkpoint: killed at the third step, it goes on there.
KILLED = """
    def load_state_dict(self, state):
        self.resumed = True
"""


def test_a_killed_stage_goes_on_with_the_state_of_its_parts(extended):
    policy = extended.root / "data" / "rl" / "policy" / "model.safetensors"
    whole = policy.read_bytes()
    file = extended.root / "my_problem_sampler.py"
    text = file.read_text()
    marked = text.replace(
        "    def load_state_dict(self, state):\n",
        KILLED.lstrip("\n"),
    ).replace(
        "        left = [",
        "        import os\n"
        "        if step == 2 and not hasattr(self, 'resumed'):\n"
        "            os.kill(os.getpid(), 9)\n"
        "        left = [",
    )
    assert marked.count("resumed") == 2
    file.write_text(marked)
    try:
        records = extended.run()
    finally:
        file.write_text(text)
    assert records["rl"].attempt == 2
    assert policy.read_bytes() == whole


def test_another_verifier_runs_again_what_scores_and_no_training_before_it(extended):
    """Problems, traces and ids stay as they are where the new verifier says the same of them."""
    file, before = extended.root / "recipe.yaml", (extended.root / "recipe.yaml").read_text()
    problems = table(extended, "curate/problems")
    values = YAML(typ="safe").load(before)
    # The same constraint twice: another verifier, with the same verdicts.
    (brief,) = [each for each in values["synthesize"]["sources"] if each["name"] == "brief"]
    brief["verifier"]["constraints"].append({"kind": "short", "longest": 12})
    try:
        with file.open("w") as stream:
            YAML().dump(values, stream)
        plan = extended.plan()
        assert plan["synthesize"].action == "run"
        records = extended.run()
        again = {name for name, record in records.items() if record.status == "succeeded"}
        assert again == {"synthesize", *SCORING}
        assert table(extended, "curate/problems").equals(problems)
    finally:
        file.write_text(before)
        extended.run()
