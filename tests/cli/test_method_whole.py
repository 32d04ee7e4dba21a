"""A claim of a project's own method, from its file to a verdict that stands while code moves."""

import json
import os
import shutil
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


def posttrain(root, *arguments, code=0, source=ROOT):
    """What a command of the product in `source` printed; it ended with 0, or the code named."""
    done = subprocess.run(
        [sys.executable, "-m", "posttrain", *arguments],
        cwd=root,
        env={
            **os.environ,
            "PYTHONPATH": str(source),
            "POSTTRAIN_TRACKING": "off",
            "COLUMNS": "200",
        },
        stdout=subprocess.PIPE,
        # Stages are told there, in between.
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def claim_of(root):
    """What the project's list says of the method's claim, in the line of its system."""
    heading, *lines = posttrain(root, "method", "list", "--tsv").splitlines()
    rows = [dict(zip(heading.split("\t"), line.split("\t"), strict=True)) for line in lines]
    (row,) = (row for row in rows if row["system"] == SYSTEM)
    assert "methods/pg/mine.yaml" in row["file"]
    (claim,) = (each for each in row["claims"].split("; ") if each.startswith("mine."))
    return claim


# Real stages of two arms and two seeds, and a check: half a minute, more beside others.
@pytest.mark.slow
def test_a_claim_is_run_kept_shown_and_stale_and_rechecked(project):
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
    # What is said of arms that came to the same stands behind it, as they may in runs this short.
    assert "kept in methods/verdicts.jsonl" in told
    # Of two seeds an interval is wide; by 0.9 it may be decided or not, and the word says which.
    (line,) = (project / "methods" / "verdicts.jsonl").read_text().splitlines()
    kept = json.loads(line)
    assert told[-1].startswith(f"{kept['verdict']}: pass_at_1 ")
    assert told[-1].startswith(kept["sentence"])
    assert told[-1].endswith(" min")
    assert (kept["method"], kept["claim"], kept["seeds"]) == ("mine", "no_worse", 2)
    assert kept["verdict"] in ("confirmed", "undecided")
    assert [each["metric"] for each in kept["decisions"]] == ["pass_at_1"]
    assert {*kept["made"]} == {"completions.seed_1", "curves.mine_1", "curves.plain_1"}
    assert {"rl_mine_1", "rl_plain_2", "evaluate_1", "verdict"} <= {*kept["keys"]}
    shown = " ".join(posttrain(project, "method", "show", "mine").split())
    assert kept["sentence"] in shown

    # The second run restores all of it, and keeps no second line.
    again = posttrain(project, "method", "run", "mine").splitlines()
    assert [line for line in again if "running" in line] == []
    assert "kept already, and the same" in again
    assert again[-1].rpartition(",")[0] == told[-1].rpartition(",")[0]
    assert (project / "methods" / "verdicts.jsonl").read_text() == line + "\n"

    # What its check found is shown beside the verdict.
    posttrain(project, "method", "check", "mine")
    assert claim_of(project) == f"mine.no_worse {kept['verdict']}"
    assert "switches: passed" in " ".join(posttrain(project, "method", "show", "mine").split())

    # Code moved and the first seed makes the same: the verdict is kept for today's code.
    file = project / "methods" / "verdicts.jsonl"
    file.write_text(json.dumps(kept | {"keys": {**kept["keys"], "rl_mine_2": "0"}}) + "\n")
    assert claim_of(project) == f"mine.no_worse stale ({kept['verdict']})"
    # As in a clean clone: nothing of what the first seed stands on is there.
    shutil.rmtree(project / ".posttrain")
    posttrain(project, "method", "recheck", "mine")
    stands = json.loads(file.read_text().splitlines()[-1])
    assert stands == kept | {"rechecked": kept["commit"]}
    assert claim_of(project) == f"mine.no_worse {kept['verdict']}"
    # It makes something else: it stays stale, and the command says what.
    made = {**kept["made"], "curves.mine_1": "0"}
    file.write_text(json.dumps(kept | {"keys": {}, "made": made}) + "\n")
    told = posttrain(project, "method", "recheck", "mine", code=1)
    assert "mine.no_worse is stale: its first seed makes another curves.mine_1" in told
    # So do figures that come of the same rows: what reads them may have moved, too.
    (decision,) = kept["decisions"]
    other = decision | {"theirs": [decision["theirs"][0] + 0.5, *decision["theirs"][1:]]}
    file.write_text(json.dumps(kept | {"keys": {}, "decisions": [other]}) + "\n")
    told = posttrain(project, "method", "recheck", "mine", code=1)
    assert "its first seed makes another pass_at_1 of plain; run it" in told
    file.write_text(line + "\n")

    # An arm's key moves: what is known of it is stale, and the system not whole any more.
    write(project, "pg/mine", METHOD.replace("minibatches: 1", "minibatches: 2"))
    assert claim_of(project) == f"mine.no_worse stale ({kept['verdict']})"
    assert "stale, it was" in posttrain(project, "method", "show", "mine")


# Fifteen arms of eight updates and their base: a minute and a half on two idle cores.
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(
    "avx2" not in Path("/proc/cpuinfo").read_text(), reason="needs a processor with AVX2"
)
def test_from_a_clean_clone_a_claim_comes_to_the_verdict_that_ships(tmp_path):
    """With all of its seeds: of a trial nothing is kept, and nothing would be compared."""
    method, claim = "inpo", "beaten_less_than_online_dpo"
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)

    def artifact():
        lines = (clone / "posttrain" / "methods" / "verdicts.jsonl").read_text().splitlines()
        kept = [each for each in map(json.loads, lines) if each["method"] == method]
        return [each["artifact"] for each in kept if each["claim"] == claim][-1]

    before = artifact()
    told = posttrain(clone, "method", "run", method, "--claim", claim, source=clone).splitlines()
    assert len([line for line in told if line.startswith("seed ")]) == 5
    # The line has the keys of today's code: where that moved since, it is kept anew.
    same = ("kept already, and the same", "the very same artifact as the verdict that was kept")
    assert len([line for line in told if line in same]) == 1, told
    assert artifact() == before
