"""Every page, as it is answered."""

import re

import pytest

from posttrain.operations.reviewing import reviews_of
from tests.cli.page.conftest import problems


def text_of(page):
    """What a person reads of a page, on one line."""
    page = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def read(client, address, status=200):
    answer = client.get(address)
    assert answer.status_code == status, answer.text
    return text_of(answer.text)


def test_runs_stand_newest_first_with_their_figures_and_intervals(client):
    told = read(client, "/")
    rows = [
        told.index(each)
        for each in ("running", "rl pass@1 70.0% [60.0, 80.0]", "rl pass@1 50.0% [40.0")
    ]
    assert rows == sorted(rows)
    assert "rl.learning_rate=0.01" in told
    assert "2 ran, 1 up to date" in told


def test_what_runs_now_is_told_with_how_far_it_is(client):
    assert "rl 30 of 120 30 of 120 steps" in read(client, "/live")
    assert "it never ran" in read(client, "/live")


def test_a_run_has_its_stages_what_they_made_and_measured(client):
    told = read(client, "/run/first")
    assert "problems 3 rows" in told
    assert "evaluate/rl/pass_at_1 0.5" in told
    assert "What changed since the run before" not in told
    assert "What changed since the run before" in read(client, "/run/second")


def test_a_log_is_text_and_no_markup(client):
    page = client.get("/run/second/log/rl").text
    assert "step 1 &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "There is no log" in read(client, "/run/first/log/rl")


def test_the_log_of_a_scheduled_run_is_found_in_its_worktree(client, made):
    folder = made.root / ".posttrain/worktrees/nightly/tree/.posttrain/runs/first"
    folder.mkdir(parents=True)
    (folder / "evaluate.log").write_text("all were graded")
    assert "all were graded" in read(client, "/run/first/log/evaluate")


def test_two_runs_differ_in_recipe_code_data_and_metrics(client):
    told = read(client, "/compare?run=second&run=first")
    assert "rl.learning_rate 0.001 0.01 rl" in told
    assert "tasks.rl:run aa bb rl" in told
    assert "rl/reward 0.5 0.75 +0.25" in told
    assert "evaluate/rl/pass_at_1 0.5 0.7 +0.2" in told
    assert "rl.rollouts 6 rows" in told
    assert "Packages, seeds, device and machine are equal." in told
    assert "two runs are compared, and 1 were marked" in read(client, "/compare?run=first", 404)


def test_a_metric_is_shown_over_all_runs(client):
    told = read(client, "/metrics?name=rl/reward")
    assert told.index("0.75") < told.index("0.5 ")
    # Its stage measured no interval, and its report has one.
    assert "mine evaluate 0.7 0.6 to 0.8" in read(client, "/metrics?name=evaluate/rl/pass_at_1")
    # What the last evaluated policy solves is shown where nothing is asked for.
    assert "<h1>evaluate/rl/pass_at_1</h1>" in client.get("/metrics").text


def test_rollouts_lead_to_the_newest_table(client, made):
    answer = client.get("/rollouts", follow_redirects=False)
    assert answer.headers["location"] == made.address("rollouts#2")


def test_the_list_of_rollouts_opens_with_its_first_rows(client, made):
    page = client.get(made.address("rollouts")).text
    assert '"total":6' in page
    # Number, step, group, source, reward, solved, correct, tokens, mean log-probability, advantage.
    assert '[0,1,0,"sum",1.0,true,1.0,1,-0.5,0.5,"5","over",true,' in page


ASKS = [
    ("", [0, 1, 2, 3, 4, 5]),
    ("?where=reward < 1 and step = 1", [1, 3]),
    ("?search=SO", [2]),
    ("?is=source:product", [2, 3]),
    ("?is=source:sum&is=solved:true", [0, 4]),
    ("?sort=step&descending=true", [4, 5, 0, 1, 2, 3]),
    ("?sort=advantage", [1, 3, 5, 0, 2, 4]),
    ("?start=2&count=3", [2, 3, 4]),
]


@pytest.mark.parametrize(("asked", "expected"), ASKS)
def test_rows_are_filtered_searched_and_sorted(client, made, asked, expected):
    answer = client.get(made.address("rollouts", f"/rows{asked}")).json()
    assert [row[0] for row in answer["rows"]] == expected


WRONG = [
    ("rewrad < 1", "has no column 'rewrad'; did you mean 'reward'?"),
    ("reward <", "is no SQL expression over data/rl/rollouts.parquet"),
    ("text + 1 > 2", "the expression does not fit data/rl/rollouts.parquet"),
]


@pytest.mark.parametrize(("where", "said"), WRONG)
def test_a_wrong_expression_is_said_in_a_sentence(client, made, where, said):
    answer = client.get(made.address("rollouts", "/rows"), params={"where": where}).json()
    assert said in answer["problem"]
    page = client.get(made.address("rollouts"), params={"where": where})
    assert page.status_code == 200
    assert "rows" in page.text


def test_a_rollout_is_shown_by_tokens_with_its_problem_and_its_verdicts(client, made):
    page = client.get(made.address("rollouts", "/row/0")).text
    assert '<span class="token">5</span>' in page
    # Number, log-probability, advantage, reward of the token, whether it bears loss, entropy.
    assert "[[[0,null,null,null,false,null]," in page
    assert "[[6,-0.5,0.5,null,true,0.25]]" in page
    told = text_of(page)
    assert "kindness 0.75 a judge it is kind" in told
    assert "2 + 3 = answer 5 source sum difficulty 1" in told
    assert "2 rollouts of the same problem at this step" in told
    assert "No judge said anything of it." in read(client, made.address("rollouts", "/row/3"))


def test_a_rollout_that_was_not_trained_on_bears_no_loss(client, made):
    assert "1 token · bears no loss" in read(client, made.address("rollouts", "/row/3"))


def test_the_history_of_a_problem_goes_by_its_steps(client, made):
    told = read(client, made.address("rollouts", f"/problem/{problems()['id'][0]}"))
    # Step, rollouts, mean reward, solved, mean tokens.
    assert "1 2 0.5 50% 1 2 2 0.5 50% 1.5" in told


def test_a_row_leads_to_the_line_of_the_file_that_it_came_from(client, made):
    told = read(client, made.address("rollouts", "/row/0/origin"))
    assert "data/synthesize/problems.parquet 1 row, made by synthesize" in told
    assert "raw.jsonl:1 {&#34;prompt&#34;: &#34;2 + 3 =&#34;" in told


def test_a_row_that_is_not_there_is_said_so(client, made):
    assert "has no row 6" in read(client, made.address("rollouts", "/row/6"), 404)
    assert "has no row -1" in read(client, made.address("rollouts", "/row/-1"), 404)
    assert "no stage of this ledger made an artifact" in read(
        client, "/table/0000000000000000", 404
    )


def test_rows_beside_a_row_are_those_that_were_asked_for(client, made):
    page = client.get(made.address("rollouts", "/row/2?search=5&where=reward > 2")).text
    assert 'rel="prev"' not in page
    asked = "?is=source%3Asum&sort=reward&descending=true"
    page = client.get(made.address("rollouts", f"/row/4{asked}")).text
    # By reward, the greatest first: 0, 4, 1, 5.
    for way, row in (("prev", 0), ("next", 1)):
        address = made.address("rollouts", f"/row/{row}{asked.replace('&', '&amp;')}")
        assert f'<a rel="{way}" href="{address}">' in page


def test_data_has_every_table_and_why_rows_were_dropped(client):
    told = read(client, "/data")
    assert "data/rl/rollouts.parquet rollouts rl 6" in told
    assert "2 versions" in told
    assert "exact duplicate 1 too long 1" in told


def test_columns_are_counted_by_value_or_by_bin(client, made):
    told = read(client, made.address("rollouts", "/columns"))
    assert "source value sum 4 product 2 2 values" in told
    assert "reward least 0, median 0.5, mean 0.5, greatest 1" in told
    page = client.get(made.address("rollouts", "/columns")).text
    # 24 bins between 0 and 1: three rewards are in the first, and three in the last.
    assert '{"bin":"from 0","series":"reward","count":3.0}' in page
    assert '{"bin":"from 0.958","series":"reward","count":3.0}' in page


def test_two_versions_of_a_table_differ_by_row(client, made):
    before, after = (made.records[name].digest[:16] for name in ("rollouts", "rollouts#2"))
    told = read(client, f"/data/diff?before={before}&after={after}")
    assert "same 5 added 0 removed 0 changed 1" in told
    assert "rollout-2-0-1 token_ids" in told
    assert "reward 0.0 1.0" in told
    # A version whose place in the workspace another one has taken is read from DVC's cache.
    assert "6 rows" in read(client, f"/table/{before}")


def test_lineage_is_the_page_that_there_is(client):
    shown = client.get("/lineage?node=rl@second&direction=down").text
    assert 'src="/lineage/graph?node=rl%40second&amp;direction=down"' in shown
    page = client.get("/lineage/graph?node=rl@second").text
    assert "const DATA" in page
    assert "the ledger knows no node" in read(client, "/lineage?node=nobody", 404)


def test_releases_and_schedules_say_where_there_are_none_and_make_nothing(client, made):
    assert "Nothing is released." in read(client, "/releases")
    assert "No schedule is applied" in read(client, "/schedules")
    assert not (made.root / ".posttrain/schedules.db").exists()


def test_an_address_that_is_none_and_a_value_that_is_none_are_said_so(client, made):
    assert "there is no page /nothing" in read(client, "/nothing", 404)
    assert "start: " in read(client, made.address("rollouts", "/rows?start=-1"), 422)


def test_pages_load_nothing_from_elsewhere(client, made):
    for address in ("/", made.address("rollouts"), made.address("rollouts", "/row/0"), "/data"):
        answer = client.get(address)
        assert not re.findall(r'(?:src|href)="(?:https?:)?//', answer.text)
        assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_another_site_can_neither_read_nor_write(client, made):
    # A name that another site lets point to this machine is none of the app's.
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    address = made.address("rejected", "/row/0/review")
    for origin in ({}, {"origin": "http://evil.example"}, {"origin": "null"}):
        answer = client.post(address, data={"verdict": "accept"}, headers=origin)
        assert answer.status_code == 403
    assert not reviews_of(made.root, made.records["rejected"].path).exists()
