"""A small project whose runs, rows and numbers are known by hand, and a browser that looks at it.

raw.jsonl -> synthesize -> problems, rejected
                problems -> rl -> rollouts, policy -> evaluate -> report

Run `first` did all; run `second`, with another learning rate, did rl and evaluate again; run
`third` is at it. Nothing was trained: the tables are written here.
"""

import hashlib
import json
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest
from starlette.testclient import TestClient

from posttrain.cli.page.app import create_app
from posttrain.cli.page.project import Project
from posttrain.data.schemas import DROPPED, PROBLEMS, ROLLOUTS, VERDICTS, Problem, problems_table
from posttrain.data.tables import write_table
from posttrain.learning.rewards.port_tables import subject_of
from posttrain.operations.services.loopback import bound
from posttrain.pipeline.execution.display import PROGRESS_FILE
from posttrain.provenance.ledger import ArtifactRecord, Ledger, Run, StageRun, open_ledger
from posttrain.provenance.ledger.processes import this_process
from posttrain.stage.hashing import digest_path

VOCABULARY = ["<bos>", *"0123456789+*=", "step", "so"]
ASKED = ("2 + 3 =", "4 * 2 =", "9 + 9 =")
NUMBER_OF = {token: number for number, token in enumerate(VOCABULARY)}


@dataclass
class Made:
    """The project's folder, a record of every artifact by name, and its ledger."""

    root: Path
    ledger: Ledger
    records: dict[str, ArtifactRecord]

    @property
    def project(self):
        return Project(self.root, str(self.root / ".posttrain" / "ledger.db"))

    def artifact(self, name, kind, path, *, producer=None):
        """Record what lies at a path now, and keep a file's bytes where DVC does."""
        file = self.root / path
        found = digest_path(file)
        rows = pl.read_parquet(file).height if path.endswith(".parquet") else None
        role = name.partition("#")[0]
        self.records[name] = ArtifactRecord(
            role, kind, path, found.sha256, found.size, rows, producer, self._cached(file)
        )

    def _cached(self, file):
        if file.is_dir():
            return None
        md5 = hashlib.md5(file.read_bytes()).hexdigest()
        kept = self.root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, kept)
        return md5

    def stage(self, run, stage, inputs=(), outputs=(), **fields):
        names = [self.records[name].digest for name in (*inputs, *outputs)]
        key = hashlib.sha256(json.dumps([stage, names]).encode()).hexdigest()
        record = StageRun(
            id=f"{run}-{stage}",
            run_id=run,
            stage=stage,
            task=f"tasks.{stage}",
            key=key,
            status="succeeded",
            started=1000.0,
            ended=1012.0,
            inputs=tuple(self.records[name] for name in inputs),
            outputs=tuple(self.records[name] for name in outputs),
        )
        self.ledger.record(replace(record, **fields))

    def address(self, name, rest=""):
        """Where the page of a table is."""
        return f"/table/{self.records[name].digest[:16]}{rest}"


def problems():
    made = [
        Problem("sum", ASKED[0], "5", 1, "exact", origin_file="raw.jsonl", origin_line=1),
        Problem("product", ASKED[1], "8", 2, "exact", origin_file="raw.jsonl", origin_line=2),
        Problem("sum", ASKED[2], "18", 3, "exact", origin_file="raw.jsonl", origin_line=3),
    ]
    return problems_table(made)


def rollout(problem, step, group, said, *, reward, number):
    """A rollout of one turn: what was asked is read, what was said is drawn."""
    asked = ["<bos>", *ASKED[problem].split()]
    ids = [NUMBER_OF[token] for token in (*asked, *said.split())]
    drawn = len(said.split())
    of = problems()["id"][problem]
    return {
        "id": f"rollout-{step}-{group}-{number}",
        "parents": [of],
        "problem_id": of,
        "source": problems()["source"][problem],
        "step": step,
        "group": group,
        "episode": f"{of}/{number}",
        "segment": 0,
        "role": "policy",
        "peers": "",
        "origin": "policy",
        "token_ids": ids,
        "spans": [
            {"begin": 0, "end": len(asked), "turn": 0, "drawn": False},
            {"begin": len(asked), "end": len(ids), "turn": 0, "drawn": True},
        ],
        "logprobs": [-0.5] * drawn,
        "versions": [step - 1],
        "end": "over",
        "text": said,
        "turns": [],
        "shared": 0,
        "facts": [],
        "components": [{"name": "correct", "value": reward}],
        "reward": reward,
        "solved": reward == 1.0,
        "token_rewards": [],
        "advantages": [reward - 0.5] * drawn,
        "entropies": [0.25] * drawn if group == 0 else [],
        "trained": group == 0,
    }


def rollouts(*, second):
    """Six rollouts; of the second run the last one is right, too."""
    return pl.DataFrame(
        [
            rollout(0, 1, 0, "5", reward=1.0, number=0),
            rollout(0, 1, 0, "6", reward=0.0, number=1),
            rollout(1, 1, 1, "so 8", reward=1.0, number=0),
            rollout(1, 1, 1, "7", reward=0.0, number=1),
            rollout(0, 2, 0, "step 5", reward=1.0, number=0),
            rollout(0, 2, 0, "5" if second else "3", reward=float(second), number=1),
        ],
        schema=ROLLOUTS,
    )


def evaluation(share, low, high):
    at_1 = {"k": 1, "value": share, "low": low, "high": high}
    return json.dumps({"num_problems": 40, "policies": [{"name": "rl", "pass_at": [at_1]}]})


def write_tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(NUMBER_OF, unk_token="<bos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("ui") / "mine"
    (root / ".dvc").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for name, value in (("name", "Ada Reviewer"), ("email", "ada@example.org")):
        subprocess.run(["git", "-C", str(root), "config", f"user.{name}", value], check=True)
    for folder in ("synthesize", "rl", "evaluate", "judge"):
        (root / "data" / folder).mkdir(parents=True)
    raw = [{"prompt": asked, "answer": "?"} for asked in ASKED]
    (root / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in raw))
    with open_ledger(root / ".posttrain" / "ledger.db") as ledger:
        found = Made(root, ledger, {})
        first_run(found)
        second_run(found)
        third_run(found)
        yield found


def first_run(made):
    run = Run("first", "mine", 1000.0, "posttrain run", 1060.0, "succeeded", "c0ffee" * 6)
    made.ledger.append_run(run, process="elsewhere 1 x")
    made.artifact("raw", "source", "raw.jsonl")
    rows = problems()
    write_table(rows, made.root / "data/synthesize/problems.parquet", PROBLEMS)
    dropped = rows.head(2).with_columns(reason=pl.Series(["too_long", "exact_duplicate"]))
    write_table(dropped, made.root / "data/synthesize/rejected.parquet", DROPPED)
    write_table(rollouts(second=False), made.root / "data/rl/rollouts.parquet", ROLLOUTS)
    write_tokenizer(made.root / "data/rl/policy")
    (made.root / "data/evaluate/report.json").write_text(evaluation(0.5, 0.4, 0.6))
    verdict = {
        "id": "v1", "parents": [], "subject": subject_of(rows["id"][0], "5"),
        "component": "kindness", "criterion": "", "judge": "a judge", "draw": 0, "score": 0.75,
        "reason": "", "text": "it is kind",
    }  # fmt: skip
    verdicts = pl.DataFrame([verdict], schema=VERDICTS)
    write_table(verdicts, made.root / "data/judge/verdicts.parquet", VERDICTS)
    made.artifact("problems", "problems", "data/synthesize/problems.parquet", producer="synthesize")
    made.artifact("rejected", "dropped", "data/synthesize/rejected.parquet", producer="synthesize")
    made.artifact("rollouts", "rollouts", "data/rl/rollouts.parquet", producer="rl")
    made.artifact("policy", "checkpoint", "data/rl/policy", producer="rl")
    made.artifact("verdicts", "verdicts", "data/judge/verdicts.parquet", producer="judge")
    made.artifact("report", "report", "data/evaluate/report.json", producer="evaluate")
    made.stage("first", "synthesize", ["raw"], ["problems", "rejected"])
    made.stage(
        "first", "rl", ["problems"], ["rollouts", "policy"], components=components("0.001"),
        metrics={"rl/reward": 0.5},
    )  # fmt: skip
    made.stage("first", "judge", ["rollouts"], ["verdicts"])
    measured = {"evaluate/rl/pass_at_1": 0.5}
    made.stage("first", "evaluate", ["policy"], ["report"], metrics=measured)


def components(rate):
    return {
        "code": {"tasks.rl:run": "aa" if rate == "0.001" else "bb"},
        "params": {"learning_rate": rate},
        "packages": {"polars": "2.1.0"},
    }


def second_run(made):
    run = Run("second", "mine", 2000.0, "posttrain run --set rl.learning_rate=0.01", 2090.0,
              "succeeded", overrides={"rl.learning_rate": "0.01"})  # fmt: skip
    made.ledger.append_run(run, process="elsewhere 1 x")
    write_table(rollouts(second=True), made.root / "data/rl/rollouts.parquet", ROLLOUTS)
    (made.root / "data/evaluate/report.json").write_text(evaluation(0.7, 0.6, 0.8))
    made.artifact("rollouts#2", "rollouts", "data/rl/rollouts.parquet", producer="rl")
    made.artifact("report#2", "report", "data/evaluate/report.json", producer="evaluate")
    made.stage("second", "synthesize", ["raw"], ["problems", "rejected"], status="cached")
    made.stage(
        "second", "rl", ["problems"], ["rollouts#2", "policy"], components=components("0.01"),
        metrics={"rl/reward": 0.75}, log_path=".posttrain/runs/second/rl.log",
    )  # fmt: skip
    measured = {"evaluate/rl/pass_at_1": 0.7}
    made.stage("second", "evaluate", ["policy"], ["report#2"], metrics=measured)
    folder = made.root / ".posttrain/runs/second"
    folder.mkdir(parents=True)
    (folder / "rl.log").write_text("step 1 <script>alert(1)</script>\n")


def third_run(made):
    run = Run("third", "mine", 3000.0, "posttrain run --from rl")
    made.ledger.append_run(run, process=this_process())
    folder = made.root / ".posttrain/runs/third"
    folder.mkdir(parents=True)
    told = {"rl": {"began": 3001.0, "reason": "it never ran", "done": 30, "total": 120,
                   "unit": "step"}}  # fmt: skip
    (folder / PROGRESS_FILE).write_text(json.dumps(told))


@pytest.fixture(scope="session")
def client(made):
    return TestClient(create_app(made.project), base_url="http://127.0.0.1")


@pytest.fixture(scope="session")
def served(made):
    """The app on a port of its own."""
    import uvicorn

    with bound(0) as listening:
        config = uvicorn.Config(create_app(made.project), log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for switch in (
        "headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-background-networking",
        "window-size=1300,900", f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):  # fmt: skip
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs[1]))
    yield driver
    driver.quit()


def until(found, seconds=20.0):
    """Wait for what is looked for; an element that is not there yet, or no more, is waited for."""
    from selenium.common.exceptions import WebDriverException

    end = time.monotonic() + seconds
    while True:
        try:
            if last := found():
                return last
        except WebDriverException:
            if time.monotonic() > end:
                raise
        assert time.monotonic() < end
        time.sleep(0.05)
