"""A claim of a project's own method, from its file to a verdict that makes its system whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.methods.systems import published_systems

ROOT = Path(__file__).parents[2]
SYSTEM = "Lite PPO (Tricks or Traps)"
COLUMNS = "{{prompt: q, answer: a, solution: a}}"
SOURCE = f"{{{{kind: jsonl, name: {{0}}, path: {{1}}/{{0}}.jsonl, columns: {COLUMNS}}}}}"
ARENA = """
name: coins
says: A coin whose side the prompt names.
sections:
  run: {{threads: 1, retries: 0}}
  synthesize: {{num_heldout: 16, sources: [{sources}]}}
  curate: {{problem_filters: {{near_duplicates: null, contamination: {{ngram: null}}}}}}
  pretrain: {{steps: 140, hidden: 32, layers: 1, vocab_size: 280, batch_tokens: 1024}}
  sft: {{steps: 2, batch_tokens: 1024}}
  probe: {{num_problems: 60, num_samples: 2, max_tokens: 16}}
  rl: {{steps: 2, problems_per_step: 8, max_tokens: 16}}
  evaluate: {{num_samples: 2, pass_at: [1], max_tokens: 16}}
"""
METHOD = f"""
name: mine
title: Mine
source: {{paper: a note}}
family: pg
system: {SYSTEM}
says: Nothing is taken off the reward.
sets: {{rl: {{algorithm: {{preset: dr_grpo}}, updates: {{minibatches: 1}}}}}}
claims:
- name: no_worse
  says: It is not worse, by far.
  arena: coins
  against: {{plain: {{method: reinforce}}}}
  matched: rollouts
  decide: [{{metric: pass_at_1, is: not_worse, margin: 0.9}}]
  seeds: 2
  minutes: 1
"""


@pytest.fixture
def project(tmp_path):
    """A repository with one method, one arena and two files of problems."""
    for side, answer in (("up", "1"), ("down", "2")):
        rows = [{"q": f"{side} {n} =", "a": f"{side}\n#### {answer}"} for n in range(150)]
        (tmp_path / f"{side}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = ", ".join(SOURCE.format(side, tmp_path) for side in ("up", "down"))
    write(tmp_path, "arenas/coins", ARENA.format(sources=sources))
    write(tmp_path, "pg/mine", METHOD)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".gitignore").write_text(".posttrain/\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a method"]):
        author = ["-c", "user.name=me", "-c", "user.email=me@here"]
        subprocess.run(["git", *author, *arguments], cwd=tmp_path, check=True)
    return tmp_path


def write(root, place, text):
    file = root / "methods" / f"{place}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def posttrain(root, *arguments):
    """What a command printed; it ended with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "posttrain", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT), "POSTTRAIN_TRACKING": "off", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        # Stages are told there, in between.
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def state(root):
    """State, claims and what is missing of the system in the project's list."""
    heading, *lines = posttrain(root, "method", "list", "--tsv").splitlines()
    rows = [dict(zip(heading.split("\t"), line.split("\t"), strict=True)) for line in lines]
    (row,) = (row for row in rows if row["system"] == SYSTEM)
    assert "methods/pg/mine.yaml" in row["file"]
    (claim,) = (each for each in row["claims"].split("; ") if each.startswith("mine."))
    return row["state"], claim, row["missing"]


# Real stages of two arms and two seeds, and a check: half a minute, more beside others.
@pytest.mark.slow
def test_a_claim_is_run_kept_shown_and_stale_and_makes_its_system_whole(project):
    assert SYSTEM in [each.name for each in published_systems()]
    told = posttrain(project, "method", "run", "mine").splitlines()
    assert told[:2] == [
        "mine.no_worse: It is not worse, by far.",
        "arena coins; arms mine, plain; 2 seeds, matched by rollouts",
    ]
    # Arms are told as they end, each before what needs it.
    ended = [line.partition(":")[0] for line in told if ": ran in" in line]
    assert ended.index("rl_mine_1") < ended.index("evaluate_1") < ended.index("verdict")
    for seed in (1, 2):
        (line,) = (line for line in told if line.startswith(f"seed {seed}: "))
        assert [part.split()[0] for part in line.partition(": ")[2].split("; ")] == [
            "mine", "plain", "sft",
        ]  # fmt: skip
    assert told[-2] == "kept in methods/verdicts.jsonl"
    # Of two seeds an interval is wide; by 0.9 it may be decided or not, and the word says which.
    (line,) = (project / "methods" / "verdicts.jsonl").read_text().splitlines()
    kept = json.loads(line)
    assert told[-1].startswith(f"{kept['verdict']}: pass_at_1 ")
    assert told[-1].startswith(kept["sentence"])
    assert told[-1].endswith(" min")
    assert (kept["method"], kept["claim"], kept["seeds"]) == ("mine", "no_worse", 2)
    assert kept["verdict"] in ("confirmed", "undecided")
    assert {"rl_mine_1", "rl_plain_2", "evaluate_1", "verdict"} <= {*kept["keys"]}
    shown = " ".join(posttrain(project, "method", "show", "mine").split())
    assert kept["sentence"] in shown

    # The second run restores all of it, and keeps no second line.
    again = posttrain(project, "method", "run", "mine").splitlines()
    assert [line for line in again if "running" in line] == []
    assert "kept already, and the same" in again
    assert again[-1].rpartition(",")[0] == told[-1].rpartition(",")[0]
    assert (project / "methods" / "verdicts.jsonl").read_text() == line + "\n"

    # Decided but unchecked is not whole; with a check it is.
    decided = kept["verdict"] == "confirmed"
    assert state(project)[:2] == ("p", f"mine.no_worse {kept['verdict']}")
    posttrain(project, "method", "check", "mine")
    assert state(project)[0] == ("y" if decided else "p")

    # An arm's key moves: what is known of it is stale, and the system not whole any more.
    write(project, "pg/mine", METHOD.replace("minibatches: 1", "minibatches: 2"))
    assert state(project)[:2] == ("p", f"mine.no_worse stale ({kept['verdict']})")
    assert "stale, it was" in posttrain(project, "method", "show", "mine")
