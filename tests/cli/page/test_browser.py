"""The app in headless Chromium: by clicks, by keys, on a phone, in the dark."""

import io
import json
import re

import pytest

from posttrain.pipeline.execution.display import PROGRESS_FILE
from tests.cli.page.conftest import until

# A browser is started, and pages are waited for.
pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser, served):
    """Opens an address of the app, in a window of a size, light or dark."""

    def opened(address, *, width=1300, height=900, dark=False):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
        browser.get(served + address)
        return browser

    yield opened
    said = [entry["message"] for entry in browser.get_log("browser")]
    assert said == []


def all_of(browser, css):
    return browser.find_elements("css selector", css)


def one(browser, css):
    return browser.find_element("css selector", css)


def texts(browser):
    """The texts of the rows in sight, in order."""
    rows = browser.execute_script(
        "return [...document.querySelectorAll('.grid-row:not([hidden])')].map("
        "row => [Number(row.id.slice(4)), [...row.children].map(cell => cell.textContent)])"
    )
    return [cells[9] for _, cells in sorted(rows)]


def press(browser, *keys):
    from selenium.webdriver import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def test_rows_are_searched_chosen_sorted_and_opened(page, made):
    from selenium.webdriver.common.keys import Keys

    browser = page(made.address("rollouts"))
    assert until(lambda: texts(browser) == ["5", "6", "so 8", "7", "step 5", "3"])
    one(browser, "input[name=search]").send_keys("so")
    assert until(lambda: texts(browser) == ["so 8"])
    assert one(browser, "#count").text == "1 of 6 rows"
    assert browser.current_url.endswith("?search=so")
    one(browser, "input[name=search]").send_keys(Keys.BACKSPACE * 2)
    until(lambda: one(browser, "select[name=is] option[value='source:product']")).click()
    assert until(lambda: texts(browser) == ["so 8", "7"])
    one(browser, "[data-sort=reward]").click()
    assert until(lambda: texts(browser) == ["7", "so 8"])
    heading = one(browser, "[role=columnheader]:has([data-sort=reward])")
    assert heading.get_attribute("aria-sort") == "ascending"
    one(browser, "input[name=where]").send_keys("rewrad > 1")
    assert until(lambda: "did you mean 'reward'?" in one(browser, "#said").text)
    # What is asked stands in the address: opened again, it is the same.
    browser.get(re.sub(r"&where=[^&]*", "", browser.current_url))
    assert until(lambda: texts(browser) == ["7", "so 8"])
    browser.execute_script("document.querySelector('.grid-view').focus()")
    press(browser, Keys.ARROW_DOWN, Keys.ENTER)
    assert until(lambda: "/row/2?" in browser.current_url)
    # What is asked goes along: the row before is the one that stood above, and not row 1.
    press(browser, "p")
    assert until(lambda: "/row/3?" in browser.current_url)
    assert all_of(browser, "a[rel=prev]") == []


def test_a_token_tells_under_the_pointer_what_is_known_of_it(page, made):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser = page(made.address("rollouts", "/row/2"))
    tokens = all_of(browser, ".token")
    assert [token.text for token in tokens][-2:] == ["so", "8"]
    ActionChains(browser).move_to_element(tokens[-1]).perform()
    told = until(lambda: one(browser, "#tip").text)
    for part in (
        "log-probability -0.5000 (60.7%)",
        "advantage 0.500",
        "bears no loss",
        "reward of the answer 1",
        "correct 1",
    ):
        assert part in told
    # By keys alone: the first press goes to the first token that was drawn.
    ActionChains(browser).move_to_element(one(browser, "h1")).perform()
    browser.execute_script("document.querySelector('#tokens').focus()")
    press(browser, Keys.ARROW_LEFT)
    assert until(lambda: '"so"' in one(browser, "#tip").text)
    press(browser, Keys.ARROW_LEFT)
    assert until(lambda: "read, not drawn" in one(browser, "#tip").text)
    for measure, colored in (("advantage", [False, True]), ("mask", [False, False])):
        one(browser, f"[data-measure={measure}]").click()
        found = [bool(each.get_attribute("style")) for each in (tokens[0], tokens[-1])]
        assert found == colored, measure
    assert not one(browser, "[data-measure=entropy]").is_displayed()


def test_entropies_are_told_and_colored_where_they_are_kept(page, made):
    from selenium.webdriver import ActionChains

    browser = page(made.address("rollouts", "/row/0"))
    tokens = all_of(browser, ".token")
    ActionChains(browser).move_to_element(tokens[-1]).perform()
    assert "entropy 0.2500 nats" in until(lambda: one(browser, "#tip").text)
    one(browser, "[data-measure=entropy]").click()
    found = [bool(each.get_attribute("style")) for each in (tokens[0], tokens[-1])]
    assert found == [False, True]


def test_two_marked_runs_are_compared(page):
    browser = page("/")
    for run in ("first", "second"):
        one(browser, f"input[value={run}]").click()
    one(browser, ".compare-two button").click()
    assert until(lambda: "/compare?" in browser.current_url)
    assert "rl.learning_rate" in one(browser, "main").text


def test_a_run_that_runs_shows_how_far_it_is_and_then_its_end(page, made):
    browser = page("/run/third")
    assert until(lambda: "30 of 120 steps" in one(browser, "[data-again]").text)
    file = made.root / ".posttrain/runs/third" / PROGRESS_FILE
    before = file.read_text()
    told = json.loads(before)
    told["rl"]["done"] = 90
    file.write_text(json.dumps(told))
    assert until(lambda: "90 of 120 steps" in one(browser, "[data-again]").text)
    file.write_text(before)


def test_a_row_is_reviewed_by_keys_and_the_next_one_follows(page, made):
    browser = page(made.address("verdicts", "/row/0"))
    one(browser, "input[name=reason]").send_keys("it is not kind")
    browser.execute_script("document.activeElement.blur()")
    press(browser, "r")
    # It was the last row, which now says so.
    assert until(lambda: "rejected by Ada Reviewer" in one(browser, "main").text)
    assert "it is not kind" in one(browser, "main").text


def test_tab_reaches_the_sections_the_question_and_the_rows(page, made):
    from selenium.webdriver.common.keys import Keys

    browser = page(made.address("rollouts"))
    until(lambda: texts(browser))
    reached = []
    for _ in range(40):
        press(browser, Keys.TAB)
        reached.append(
            browser.execute_script(
                "const e = document.activeElement;"
                "return e.getAttribute('role') || e.name || e.textContent.trim()"
            )
        )
    for wanted in ("Skip to the content", "Runs", "Claims", "search", "where", "grid", "reward"):
        assert wanted in reached, reached


def addresses(made):
    rollouts, other = (made.records[name].digest[:16] for name in ("rollouts", "rollouts#2"))
    return [
        "/",
        "/run/second",
        "/compare?run=first&run=second",
        "/metrics?name=rl/reward",
        made.address("rollouts"),
        made.address("rollouts", "/row/0"),
        made.address("rollouts", "/row/0/origin"),
        made.address("rollouts", "/columns"),
        "/data",
        f"/data/diff?before={rollouts}&after={other}",
        "/lineage?node=rl@second",
        "/releases",
        "/schedules",
        "/reviews",
    ]


@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_a_phone_in_light_and_dark(page, made, dark):
    from PIL import Image

    for address in addresses(made):
        browser = page(address, width=390, height=844, dark=dark)
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 390, address
        picture = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("L")
        # Paper in the corner, and ink on it.
        paper, (darkest, lightest) = picture.getpixel((3, 840)), picture.getextrema()
        assert (paper < 60) == dark, address
        assert lightest - darkest > 150, address
