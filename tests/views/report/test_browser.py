"""The page in a real browser: charts are drawn under its own policy, and tell their values."""

import json
import re
import shutil
import subprocess

import pytest

from tests.views.report.test_page import page_of, words

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="chromium is not installed"),
]
# After the page's own scripts: wait for all charts, then point at what is named.
WATCH = """
const drawn = () => [...document.querySelectorAll(".plot")].every((each) => each.dataset.drawn);
const point = (mark) => {
  const box = mark.getBoundingClientRect();
  const at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true };
  for (const kind of ["pointerover", "pointermove", "mouseover", "mousemove"])
    mark.dispatchEvent(new PointerEvent(kind, at));
  return document.getElementById("vg-tooltip-element")?.textContent ?? "";
};
const wait = setInterval(() => {
  if (!drawn()) return;
  clearInterval(wait);
  const told = [".mark-symbol path", ".mark-rect path"].map((kind) =>
    [...document.querySelectorAll(`.plot ${kind}`)].map(point).find((text) => text) ?? "");
  document.title = JSON.stringify(told);
}, 50);
"""


def opened(folder, page, *, width, dark):
    """The page's elements once its charts are drawn."""
    file = folder / "page.html"
    # Vega holds the end of a page, too: it can write one.
    head, end, tail = page.rpartition("</body>")
    file.write_text(f"{head}<script>{WATCH}</script>{end}{tail}")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}", *scheme,
        f"--window-size={width},900", "--virtual-time-budget=20000", "--dump-dom", f"file://{file}",
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return shown.stdout


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (500, True)])
def test_every_chart_is_drawn_and_tells_what_is_under_the_pointer(workspace, tmp_path, width, dark):
    page = page_of(workspace, tmp_path)
    dom = opened(tmp_path, page, width=width, dark=dark)
    states = re.findall(r'class="plot[^>]*data-drawn="(\w+)"', dom)
    assert states == ["yes"] * page.count('class="plot"')
    assert 'data-ready="yes"' in dom
    assert len(re.findall(r'class="node \w', dom)) == len(workspace.stages)
    assert "40.0% [35.0, 45.0]" in words(dom)
    (title,) = re.findall(r"<title>(.*?)</title>", dom)[:1]
    point, strip = json.loads(title.replace("&quot;", '"'))
    assert "value" in point
    assert "40.0% [35.0, 45.0]" in point
    assert "undefined" not in point + strip
