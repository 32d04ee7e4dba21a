"""`posttrain serve` as a person starts, asks and ends it."""

import re
import signal
import subprocess
import sys

import httpx
import pytest

from posttrain.operations.serving import start
from posttrain.operations.serving.find import FoundPolicy, find_policy
from posttrain.stage.errors import UserError
from tests.tiny_qwen import save_tiny_qwen


def test_names_that_mean_nothing_are_refused_in_a_sentence(toy, monkeypatch):
    monkeypatch.chdir(toy.root)
    (toy.root / ".posttrain").mkdir(exist_ok=True)
    for called, said in (
        ("no/such", "no/such: there is no such folder"),
        (".posttrain", ".posttrain: there is no config.json; name the folder of a model"),
        ("first.result", "is not there yet; make it"),
        ("frist.result", "there is no stage 'frist'; did you mean 'first'?"),
        ("policy@v1.0.0", "there is no release policy@v1.0.0"),
    ):
        with pytest.raises(UserError, match=re.escape(said)):
            find_policy(called, ".", toy.root, None)
    with pytest.raises(UserError, match="no project here that has such a release"):
        find_policy("policy", ".", None, None)


def test_an_artifact_that_is_no_policy_is_refused(toy, posttrain, monkeypatch):
    assert posttrain("run", "--local").code == 0
    said = posttrain("serve", "first.result")
    assert said.code == 2
    assert re.search(r"error: first\.result is \w+ and not a policy; name one", said.err)


def test_vllm_that_is_not_here_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(start.shutil, "which", lambda _name: None)
    with pytest.raises(UserError, match="vLLM is not installed here; uv pip install"):
        start.serve_by_vllm(FoundPolicy("tiny", tmp_path), 8000, say=print)


@pytest.mark.slow
def test_it_says_where_it_is_and_how_to_ask_and_ends_by_ctrl_c_in_the_midst_of_an_answer(tmp_path):
    save_tiny_qwen(tmp_path / "tiny", ["2 + 3 = 5"] * 20, max_length=100_000)
    command = [sys.executable, "-m", "posttrain", "serve", "tiny", "--engine", "torch"]
    started = subprocess.Popen(
        [*command, "--port", "0"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        said = [started.stderr.readline() for _ in range(3)]
        assert said[0] == "loading tiny ...\n"
        assert "tiny answers at http://127.0.0.1:" in said[1]
        # What it says works as it stands.
        line = said[2].strip().replace("curl ", "curl -sS ")
        asked = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
        assert '"object":"chat.completion"' in asked.stdout
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/v1", said[1])
        body = {"model": "tiny", "prompt": [5], "max_tokens": 90_000, "stream": True}
        body |= {"stop": ["never said \x00"], "temperature": 0}
        with httpx.stream("POST", f"{address}/completions", json=body, timeout=60) as answer:
            next(answer.iter_lines())
            started.send_signal(signal.SIGINT)
            rest = started.communicate(timeout=60)[1]
    finally:
        started.kill()
    assert started.returncode == 0
    assert "Traceback" not in rest
