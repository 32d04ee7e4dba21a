"""How soon 100,000 rollouts are there, and how smoothly they scroll: python -m benchmarks.ui

It makes the rollouts, serves them as `posttrain ui` does, looks at them in headless Chromium, and
writes figures.json and the tables of README.md. Times are of the browser's own clock.
"""

import argparse
import json
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from posttrain.data.schemas import ROLLOUTS
from posttrain.data.tables import write_table
from posttrain.provenance.ledger import ArtifactRecord, Run, StageRun, open_ledger
from posttrain.stage.hashing import StatCache, digest_path

HERE = Path(__file__).parent
FIGURES, PAGE = HERE / "figures.json", HERE / "README.md"
MARKS = "<!-- figures -->\n", "<!-- end of figures -->"
ROWS, GROUP, PER_STEP = 100_000, 8, 512
SHORTEST, LONGEST = 50, 350
PROMPT = 40
VOCABULARY = 32_000
WARM = 7
WORDS = ("the", "of", "and", "so", "we", "then", "sum", "is", "equal", "to", "add", "step", "next")

FIRST_ROWS = """
new MutationObserver((_, observer) => {
  const cell = document.querySelector('.grid-row .number');
  if (!cell || !cell.textContent) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.firstRows = performance.now(); }));
}).observe(document, { childList: true, subtree: true, characterData: true });
"""
SCROLL = """
const [pixels, frames, done] = arguments, view = document.querySelector('.grid-view');
const times = [], shares = [];
view.scrollTop = 0;
function frame(now) {
  times.push(now);
  view.scrollTop += pixels;
  const rows = [...document.querySelectorAll('.grid-row:not([hidden])')];
  shares.push(rows.filter((row) => !row.firstChild.textContent).length / rows.length);
  if (times.length <= frames) requestAnimationFrame(frame);
  else settle(now);
}
function settle(stopped) {
  const rows = [...document.querySelectorAll('.grid-row:not([hidden])')];
  const empty = rows.some((row) => !row.firstChild.textContent);
  if (empty) return requestAnimationFrame(() => settle(stopped));
  const gaps = times.slice(1).map((time, index) => time - times[index]);
  done([gaps, shares, performance.now() - stopped]);
}
requestAnimationFrame(frame);
"""
ASKED = """
const [name, value, done] = arguments, input = document.querySelector(`input[name=${name}]`);
const count = document.getElementById('count'), before = count.textContent;
const began = performance.now();
new MutationObserver((_, observer) => {
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
}).observe(count, { childList: true, characterData: true, subtree: true });
input.value = value;
input.dispatchEvent(new Event('input', { bubbles: true }));
"""


def make(root: Path, rows: int) -> str:
    """Write a project with one run that made so many rollouts; give the digest of their table."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(SHORTEST, LONGEST + 1, rows)
    texts = [" ".join(draw.choice(WORDS, length)) for length in lengths]
    rewards = draw.integers(0, 2, rows).astype(float)
    numbers = np.arange(rows)
    groups = numbers // GROUP
    frame = pl.DataFrame(
        {
            "id": [f"{number:016x}" for number in numbers],
            "parents": [[f"{group:016x}"] for group in groups],
            "problem_id": [f"{group:016x}" for group in groups],
            "source": np.array(["gsm8k", "chain_sum", "leg_counting"])[groups % 3],
            "step": numbers // PER_STEP + 1,
            "group": groups % (PER_STEP // GROUP),
            "episode": [str(number) for number in numbers],
            "segment": np.zeros(rows, int),
            "role": ["policy"] * rows,
            "peers": [""] * rows,
            "origin": ["policy"] * rows,
            "token_ids": [draw.integers(0, VOCABULARY, PROMPT + length) for length in lengths],
            "spans": [
                [
                    {"begin": 0, "end": PROMPT, "turn": 0, "drawn": False},
                    {"begin": PROMPT, "end": PROMPT + length, "turn": 0, "drawn": True},
                ]
                for length in lengths
            ],
            "logprobs": [-draw.exponential(0.4, length) for length in lengths],
            "versions": [[0]] * rows,
            "end": np.where(lengths == LONGEST, "tokens", "over"),
            "text": texts,
            "turns": [[]] * rows,
            "shared": np.zeros(rows, int),
            "facts": [[]] * rows,
            "components": [[{"name": "correct", "value": reward}] for reward in rewards],
            "reward": rewards,
            "solved": rewards == 1.0,
            "token_rewards": [[]] * rows,
            "advantages": [
                np.full(length, reward - 0.5)
                for length, reward in zip(lengths, rewards, strict=True)
            ],
            "entropies": [[]] * rows,
            "trained": [True] * rows,
        },
        schema=ROLLOUTS,
        strict=False,
    )
    (root / ".dvc").mkdir()
    path = root / "data" / "rl" / "rollouts.parquet"
    path.parent.mkdir(parents=True)
    write_table(frame, path, ROLLOUTS)
    # As after a run, which knows the bytes that it wrote.
    cache = StatCache.load(root / ".posttrain" / "digests.json")
    found = digest_path(path, cache=cache)
    cache.save()
    place = "data/rl/rollouts.parquet"
    record = ArtifactRecord("rollouts", "rollouts", place, found.sha256, found.size, rows, "rl")
    with open_ledger(root / ".posttrain" / "ledger.db") as ledger:
        run = Run("made", "made", 1000.0, "made for a benchmark", 1001.0, "succeeded")
        ledger.append_run(run, process="elsewhere 1 x")
        ledger.record(StageRun("made-rl", "made", "rl", "tasks.rl", "0" * 64, "succeeded", 1000.0,
                               1001.0, outputs=(record,)))  # fmt: skip
    return found.sha256


@contextmanager
def served(root: Path):
    """The app, in a process of its own."""
    command = [sys.executable, "-m", "posttrain", "ui", "--port", "0"]
    process = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
    try:
        yield re.search(r"http://\S+?(?=;)", process.stderr.readline())[0]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def browser():
    """A new Chromium that has seen nothing."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for switch in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1400,900",
                   "disable-background-networking"):  # fmt: skip
        options.add_argument(f"--{switch}")
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(120)
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": FIRST_ROWS})
    try:
        yield driver
    finally:
        driver.quit()


def first_rows(driver, address: str) -> float:
    """Milliseconds from the click on a link to the first rows on the screen."""
    driver.get(address)
    while (found := driver.execute_script("return window.firstRows")) is None:
        time.sleep(0.02)
    return found


def measure(rows: int) -> dict:
    """All figures."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        digest = make(root, rows)
        size = (root / "data/rl/rollouts.parquet").stat().st_size
        with served(root) as address, browser() as driver:
            page = f"{address}/table/{digest[:16]}"
            figures = {"new": first_rows(driver, page)}
            figures["again"] = [first_rows(driver, page) for _ in range(WARM)]
            time.sleep(1.0)
            scrolls = {}
            for name, pixels in (("slowly", 12), ("fast", 300), ("across all", rows * 30 / 240)):
                gaps, empty, rest = driver.execute_async_script(SCROLL, pixels, 240)
                scrolls[name] = {"gaps": gaps, "empty": statistics.fmean(empty), "rest": rest}
            figures["scrolls"] = scrolls
            asked = {}
            for name, value in (("search", "then sum"), ("search", "nothing holds this"),
                                ("where", "reward < 1 and step > 100")):  # fmt: skip
                driver.get(page)
                asked[f"{name}: {value}"] = driver.execute_async_script(ASKED, name, value)
            figures["asked"] = asked
    load = Path("/proc/loadavg").read_text().split()[0]
    return {
        "rows": rows,
        "megabytes": size / 1e6,
        "machine": f"{_processor()}, {len(_cores())} cores, load {load} while it was measured",
        "python": platform.python_version(),
        **figures,
    }


def _processor() -> str:
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return names[0] if names else platform.machine()


def _cores() -> set:
    import os

    return os.sched_getaffinity(0)


def tables(figures: dict) -> str:
    """The part of the page that is made of the figures."""
    again = sorted(figures["again"])
    lines = [
        f"{figures['rows']:,} rollouts, {figures['megabytes']:.0f} MB of parquet;"
        f" {figures['machine']}; Python {figures['python']}.",
        "",
        "| first rows on the screen | ms |",
        "|---|---|",
        f"| the app and the browser just started, the table never read | {figures['new']:.0f} |",
        f"| again, median of {len(again)} | {statistics.median(again):.0f}"
        f" ({again[0]:.0f} to {again[-1]:.0f}) |",
        "",
        "| scrolling, 240 frames | pixels a frame | frame, median | 95% | longest"
        " | rows still empty | all there after the stop |",
        "|---|---|---|---|---|---|---|",
    ]
    pixels = {"slowly": 12, "fast": 300, "across all": figures["rows"] * 30 / 240}
    for name, found in figures["scrolls"].items():
        gaps = sorted(found["gaps"])
        lines.append(
            f"| {name} | {pixels[name]:,.0f} | {statistics.median(gaps):.1f} ms"
            f" | {gaps[int(len(gaps) * 0.95)]:.1f} ms | {gaps[-1]:.1f} ms | {found['empty']:.0%}"
            f" | {found['rest']:.0f} ms |"
        )
    lines += ["", "| asked, from the last key to the rows | ms |", "|---|---|"]
    lines += [f"| `{asked}` | {ms:.0f} |" for asked, ms in figures["asked"].items()]
    return "\n".join(lines) + "\n"


def write(figures: dict) -> None:
    """Write the figures and the page that is made of them."""
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    before, rest = PAGE.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    PAGE.write_text(f"{before}{MARKS[0]}{tables(figures)}{MARKS[1]}{after}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--keep", action="store_true", help="print, and write nothing")
    given = parser.parse_args()
    found = measure(given.rows)
    print(tables(found))
    if not given.keep:
        write(found)
