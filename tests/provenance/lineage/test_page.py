"""The HTML page, read as text and opened in a real browser."""

import json
import os
import re
import shutil
import subprocess
import time

import pytest

from posttrain.provenance.lineage import queries
from posttrain.provenance.lineage.graph import Edge, Graph, Node
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.render import FORMATS, View

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")


@pytest.fixture
def page(project):
    node = find_node(project.ledger, "v1", root=project.root, cwd=project.root)
    graph = queries.up(project.ledger, node)
    return FORMATS["html"](View(graph, "up", project.ledger, project.root))


def data(page):
    return json.loads(re.search(r"const DATA = (.*);</script>", page)[1])


def opened(folder, page, *, fragment="", script="", arguments=()):
    """The page's elements after its scripts, and `script` after them, have run."""
    file = folder / "page.html"
    file.write_text(page.replace("</body>", f"<script>{script}</script></body>"))
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}",
        "--window-size=1500,900",
        "--virtual-time-budget=10000", *arguments, f"file://{file}{fragment}",
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return shown.stdout


def test_the_page_needs_nothing_from_outside(page):
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", page)
    assert "@import" not in page
    assert not re.findall(r"url\(\s*['\"]?(?!#)", page)
    assert not re.findall(r"\b(?:fetch|XMLHttpRequest|WebSocket|importScripts)\s*\(", page)


def test_the_page_holds_facts_rows_and_logs(page, project):
    nodes = {node["name"]: node for node in data(page)["nodes"]}
    kept = nodes["data/curate/kept.parquet"]["preview"]["table"]
    assert kept["columns"] == ["id", "parents", "generator", "score"]
    assert kept["rows"][0] == ["c1", '["p1"]', "small", "1.0"]
    assert nodes["rl"]["preview"]["text"].startswith("step 1\nstep 2 <script>")
    assert nodes["data/evaluate/report.json"]["preview"]["text"] == '{"accuracy": 0.5}'
    assert nodes["data/sft/policy"]["preview"]["files"] == [["model.safetensors", 21]]
    assert nodes["curate"]["metrics"] == {"kept": 3.0}
    # A log line must not end the script that carries it.
    assert "<script>alert" not in page


def test_bytes_that_changed_are_not_shown_as_the_artifact(project):
    (project.root / "data/evaluate/report.json").write_text('{"accuracy": 0.9}')
    node = find_node(project.ledger, "v1", root=project.root, cwd=project.root)
    graph = queries.up(project.ledger, node)
    text = FORMATS["html"](View(graph, "up", project.ledger, project.root))
    assert '"accuracy\\": 0.9' not in text


@needs_browser
def test_a_browser_draws_every_node_and_edge(tmp_path, page):
    dom = opened(tmp_path, page, arguments=["--dump-dom"])
    assert 'data-ready="yes"' in dom
    assert len(re.findall(r'class="node ', dom)) == len(data(page)["nodes"]) == 15
    assert len(re.findall(r'<path class="edge', dom)) == len(data(page)["edges"])
    places = re.findall(r'class="node [^"]*" transform="translate\(([-\d.]+),([-\d.]+)\)"', dom)
    assert len(set(places)) == 15, "two nodes lie on each other"


@needs_browser
def test_a_click_shows_facts_and_lights_ancestors_and_descendants(tmp_path, page):
    script = """
      const index = DATA.nodes.findIndex((node) => node.name === "sft");
      const drawn = [...document.querySelectorAll(".node")];
      drawn[index].dispatchEvent(new MouseEvent("click", {bubbles: true}));
      const lit = DATA.nodes.filter((_, i) => drawn[i].classList.contains("on"));
      document.title = JSON.stringify(lit.map((node) => node.name).sort());
    """
    dom = opened(tmp_path, page, script=script, arguments=["--dump-dom"])
    lit = json.loads(re.search(r"<title>(.*?)</title>", dom)[1].replace("&quot;", '"'))
    # Everything but the stage runs' other outputs leads to or from sft here, problems included.
    assert "data/curate/kept.parquet" in lit
    assert "v1" in lit
    assert "data/base" in lit
    panel = re.search(r'<aside id="panel">(.*?)</aside>', dom, re.S)[1]
    assert "tasks.sft" in panel
    assert "<td>1.5</td>" in panel


@pytest.mark.slow
@needs_browser
def test_search_counts_and_lights_hits_and_links_open_a_node(tmp_path, page):
    script = """
      const box = document.getElementById("search");
      box.value = "CHECKPOINT data/";
      box.dispatchEvent(new Event("input"));
    """
    dom = opened(tmp_path, page, script=script, arguments=["--dump-dom"])
    assert re.search(r'<span id="count"[^>]*>3 of 15</span>', dom)
    dom = opened(tmp_path, page, fragment="#rl@first", arguments=["--dump-dom"])
    panel = re.search(r'<aside id="panel">(.*?)</aside>', dom, re.S)[1]
    assert "step 2 &lt;script&gt;alert(1)&lt;/script&gt;" in panel
    # Parameters have long names: in a table of their own they leave the facts their room.
    dom = opened(tmp_path, page, fragment="#curate@first", arguments=["--dump-dom"])
    panel = re.search(r'<aside id="panel">(.*?)</aside>', dom, re.S)[1]
    facts, _, parameters = panel.partition("<h3>parameters</h3>")
    assert "<th>key</th>" in facts
    assert parameters.startswith("<table><tr><th>threshold</th><td>0.5</td></tr></table>")


@needs_browser
def test_a_link_to_a_node_far_below_brings_it_into_view(tmp_path, project):
    facts = {"digest": "ab" * 32, "bytes": 1, "rows": 1, "md5": None}
    nodes = {"a": Node("a", "artifact", "problems", "a", facts)}
    for index in range(60):
        nodes[f"n{index}"] = Node(f"n{index}", "artifact", "completions", f"n{index}", facts)
    edges = tuple(Edge("a", name, "role") for name in nodes if name != "a")
    page = FORMATS["html"](View(Graph("a", nodes, edges), "down", project.ledger, project.root))
    script = """
      const seen = groups[DATA.nodes.length - 1].getBoundingClientRect();
      document.body.dataset.seen = seen.top >= 0 && seen.bottom <= innerHeight;
    """
    shown = opened(tmp_path, page, fragment="#n59", script=script, arguments=["--dump-dom"])
    assert 'data-seen="true"' in shown


@pytest.mark.slow
@needs_browser
def test_five_hundred_nodes_are_drawn_in_seconds(tmp_path, project):
    page = FORMATS["html"](View(_large_graph(), "down", project.ledger, project.root))
    started = time.monotonic()
    shot = tmp_path / "shot.png"
    opened(tmp_path, page, arguments=[f"--screenshot={shot}"])
    took = time.monotonic() - started
    assert shot.stat().st_size > 20_000
    dom = opened(tmp_path, page, arguments=["--dump-dom"])
    assert 'data-ready="yes"' in dom
    assert len(re.findall(r'class="node ', dom)) == 500
    # About a second on an idle machine; the slack is for a busy one.
    assert took < 30 * max(1.0, os.getloadavg()[0] / 4)


def _large_graph():
    """A hundred chains of five nodes from one source."""
    facts = {"digest": "ab" * 32, "bytes": 1, "rows": 1, "md5": None, "producer": None}
    run = {"run": "r", "seconds": 1.0, "log": ""}
    nodes = {"n0": Node("n0", "artifact", "problems", "data/n0", facts)}
    edges = []
    for number in range(1, 500):
        before = f"n{number - 1}" if number % 5 else "n0"
        name = f"n{number}"
        nodes[name] = (
            Node(name, "stage", "t", name, run)
            if nodes[before].kind == "artifact"
            else Node(name, "artifact", "completions", f"data/{name}", facts)
        )
        edges.append(Edge(before, name, "port"))
    return Graph("n0", nodes, tuple(edges))
