"""What is wrong with a model or an endpoint: one sentence, exit code 2, no output.

What all can be wrong with a model, `tests/tasks/test_import_model.py` asks the stage itself.
"""

import http.server
import json
import socket
import threading

import pytest

from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.tokenizer import train_tokenizer

FLOW = """
from tasks.evaluate import TASK as EVALUATE
from tasks.import_model import TASK as IMPORT
from tasks.sft import TASK as SFT
from tasks.synthesize import TASK as SYNTHESIZE
def declare(build):
    raw = build.stage("synthesize", SYNTHESIZE)
    base = build.stage("base", IMPORT)
    sft = build.stage("sft", SFT, policy=base["policy"], traces=raw["traces"])
    build.stage("evaluate", EVALUATE, problems=raw["heldout"], policies={"sft": sft["policy"]})
"""
RECIPE = """
synthesize:
  heldout_fraction: 0.5
  sources:
  - {kind: jsonl, name: own, path: own.jsonl, verifier: exact}
base: {path: model}
sft: {steps: 1}
evaluate: {num_samples: 1, pass_at: [1], max_tokens: 2}
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(toy, real_tasks):
    """A project that tunes and evaluates the model of this folder, which is fine so far."""
    rows = [
        {"prompt": f"1 + {n} =", "answer": f"{n + 1}", "solution": f"#### {n + 1}"}
        for n in range(9)
    ]
    (toy.root / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tokenizer = train_tokenizer(["1 + 2 = 3"] * 4, vocab_size=262)
    model = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0)
    save_policy(model, tokenizer, toy.root / "model")
    real_tasks(FLOW, RECIPE)
    return toy.root / "model"


def pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("damage", "arguments", "sentence"),
    [
        pytest.param(
            pickle,
            [],
            "FOLDER: the weights are pickled (pytorch_model.bin); save the model with sa",
            marks=pytest.mark.slow,
        ),
        (None, ["base.path=modle"], "base: source 'model' is at ROOT/modle, and nothing"),
        (
            None,
            ["sft.learner.attention=flash"],
            "sft.learner.attention: input should be 'sdpa', 'eager', 'flash_attention_2' or"
            " 'by_document', got ",
        ),
        (
            None,
            ["base.revision=main"],
            "base: revision belongs to a name on the hub; remove it, or path",
        ),
    ],
)
def test_a_model_that_cannot_be_used(folder, toy, posttrain, contents, damage, arguments, sentence):
    if damage:
        damage(folder)
    assert posttrain("compile").code == 0
    before = contents()
    refused = posttrain("run", "--local", *(f"--set={argument}" for argument in arguments))
    expected = sentence.replace("FOLDER", str(folder)).replace("ROOT", str(toy.root))
    assert refused.sentence.startswith(expected)
    assert refused.code == 2
    made = {path.split("/")[1] for path in contents().keys() - before.keys() if "data/" in path}
    # Another stage may have ended well beside it; of the one that did not there is nothing.
    assert made <= ({"synthesize"} if damage else {"synthesize", "base"})


@pytest.mark.slow
def test_too_little_memory(folder, toy, contents):
    """As if all but a kilobyte were in use: only its own process can be told so."""
    toy.write(
        "elsewhere/sitecustomize.py",
        "import psutil\nreal = psutil.virtual_memory\n"
        "psutil.virtual_memory = lambda: real()._replace(available=1000)\n",
    )
    refused = toy.cli(
        "run", "--local", "--only", "base",
        env={"PYTHONPATH": str(toy.root / "elsewhere"), "POSTTRAIN_TRACKING": "off"},
    )  # fmt: skip
    assert refused.returncode == 2
    (sentence,) = (line for line in refused.stderr.splitlines() if line.startswith("error: "))
    assert sentence.startswith(
        f"error: {folder}: its weights take 28.3 kB (6,800 parameters), but 1 kB are fr"
    )
    assert sentence.endswith("; take a smaller model, or a machine with more memory")
    assert not [path for path in contents() if path.startswith("data/")]


def test_a_dead_or_a_slow_endpoint(folder, posttrain, contents):
    def refusal(port):
        url = f"http://127.0.0.1:{port}/v1"
        endpoint = {"base_url": url, "model": "m", "retries": 0, "timeout_s": 0.3}
        teacher = json.dumps({"endpoint": endpoint, "template": "{prompt}"})
        (folder.parent / "own.jsonl").write_text(
            "".join(json.dumps({"prompt": f"{n} =", "answer": f"{n}"}) + "\n" for n in range(9))
        )
        refused = posttrain(
            "run", "--local", "--only", "synthesize", f"--set=synthesize.teacher={teacher}"
        )
        assert refused.code == 2
        assert not [path for path in contents() if path.startswith("data/")]
        return url, refused.sentence

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url, dead = refusal(silent.getsockname()[1])
        assert url in dead, dead
        silent.listen(64)
        url, slow = refusal(silent.getsockname()[1])
        assert url in slow
        assert dead != slow, slow


class Hub(http.server.BaseHTTPRequestHandler):
    """Has the model org/tiny, and not the commit that is asked for; no other model."""

    def do_GET(self):
        code = "RevisionNotFound" if "org/tiny" in self.path else "RepoNotFound"
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@pytest.mark.slow
def test_a_model_that_the_hub_has_not_and_no_network(folder, toy):
    def refusal(endpoint, name):
        settings = (f"base.name={name}", "base.path=null", f"base.revision={COMMIT}")
        sets = [word for setting in settings for word in ("--set", setting)]
        done = toy.cli(
            "run", "--local", "--only", "base", *sets,
            env={"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "POSTTRAIN_TRACKING": "off"},
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert not (toy.root / "data/base").exists()
        (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
        return line

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    assert f"model 'org/tiny' at {COMMIT}: the hub knows the model but not this commit" in refusal(
        endpoint, "org/tiny"
    )
    assert f"model 'org2/x' at {COMMIT}: the hub has no such model, or" in refusal(
        endpoint, "org2/x"
    )
    server.shutdown()
    server.server_close()
    offline = refusal(endpoint, "org/tiny")
    assert f"model 'org/tiny' at {COMMIT}: {endpoint} does not answer" in offline
    assert offline.endswith("download the model elsewhere and give its folder as path")
