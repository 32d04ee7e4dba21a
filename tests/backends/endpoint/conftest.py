"""A real HTTP server that speaks the protocol, counts what it is asked, and fails when told to."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from posttrain.backends.endpoint import client as client_module
from posttrain.backends.endpoint.config import Endpoint


class Handler(BaseHTTPRequestHandler):
    """One connection; `server_state` is the `Server` that it belongs to."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        state = self.server_state
        if state.refuses(self.headers):
            return self.send(401, state.complaint(self.headers))
        return self.send(200, {"data": state.models})

    def do_POST(self):
        state = self.server_state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with state.counted(body, self.headers) as fault:
            state.gathered.wait(30)
            time.sleep(state.delay)
            self.act(fault, body)

    def act(self, fault, body):
        state = self.server_state
        if state.refuses(self.headers):
            return self.send(401, state.complaint(self.headers))
        if fault == "dead":
            self.close_connection = True
            return self.connection.close()
        if fault == "slow":
            time.sleep(0.6)
        if fault == "garbage":
            return self.send(200, {"choices": []})
        if fault == "not json":
            return self.send(200, "<html>busy</html>")
        if isinstance(fault, tuple):
            return self.send(*fault)
        return self.send(200, state.answer(self.path, body))

    def send(self, status, content):
        text = content if isinstance(content, str) else json.dumps(content)
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())
        except OSError:
            pass


class Server:
    """`faults` are used up one a request; `reply` writes the text of a chat answer.

    Nothing is answered before `together` requests are there at once, however slow the machine.
    """

    def __init__(self):
        self.requests, self.headers, self.faults = [], [], []
        self.models = [{"id": "tiny", "max_model_len": 64}]
        self.key = None
        self.reply = lambda body: f"echo {body['messages'][-1]['content']}"
        self.complete = None
        self.delay, self.running, self.most_running = 0.0, 0, 0
        self.together, self.gathered = 1, threading.Event()
        self.lock = threading.Lock()
        handler = type("Bound", (Handler,), {"server_state": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def endpoint(self, **fields):
        return Endpoint(base_url=self.url, model="tiny", timeout_s=2.0, **fields)

    def answer(self, path, body):
        if path.endswith("/chat/completions"):
            return {"choices": [{"message": {"content": self.reply(body)}}]}
        return {"choices": [self.complete(body)]}

    @contextmanager
    def counted(self, body, headers):
        with self.lock:
            self.requests.append(body)
            self.headers.append(dict(headers))
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            if self.running >= self.together:
                self.gathered.set()
            fault = self.faults.pop(0) if self.faults else None
        try:
            yield fault
        finally:
            with self.lock:
                self.running -= 1

    def refuses(self, headers):
        return self.key is not None and headers.get("Authorization") != f"Bearer {self.key}"

    def complaint(self, headers):
        said = headers.get("Authorization", "none").removeprefix("Bearer ")
        return {"error": {"message": f"Incorrect API key provided: {said}", "code": "bad_key"}}

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """A request cache and clients of its own for every test, and waits of milliseconds."""
    monkeypatch.setenv("POSTTRAIN_REQUESTS", str(tmp_path / "requests.db"))
    monkeypatch.setattr("posttrain.backends.endpoint.client.FIRST_WAIT_S", 0.001)
    client_module._client.cache_clear()
    yield
    client_module._client.cache_clear()
