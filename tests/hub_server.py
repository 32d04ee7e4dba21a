"""A stand-in for the Hugging Face hub, as the real one cannot be here: its HTTP API, in memory.

It speaks what huggingface_hub asks for when it makes repositories, uploads (through LFS too),
commits, tags, lists and downloads, and it refuses cards as the hub does where that is documented:
the license must be one of the hub's list, and `other` must have a name and a link.
"""

import base64
import hashlib
import json
import os
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import yaml

from posttrain.publishing.hub.licenses import HUB_LICENSES

_LARGE = (".safetensors", ".parquet", ".tar", ".gguf")


@dataclass
class Repository:
    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, files, message):
        self.messages.append(message)
        name = hashlib.sha1(f"{len(self.messages)}{message}".encode()).hexdigest()
        self.commits[name] = files
        return name

    @property
    def head(self):
        return list(self.commits)[-1]

    def at(self, revision):
        revision = self.tags.get(revision, revision)
        return self.head if revision == "main" else revision

    @property
    def files(self):
        return self.commits[self.head]


@dataclass
class Hub:
    """Repositories by kind and name; what was sent to LFS; user agents that were seen."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    agents: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    endpoint: str = ""

    def model(self, name):
        return self.repositories[f"models/{name}"]

    def dataset(self, name):
        return self.repositories[f"datasets/{name}"]


def complaint_about_card(text):
    """What the hub's documents say that it refuses."""
    head = yaml.safe_load(text.removeprefix("---\n").partition("\n---\n")[0]) or {}
    license = head.get("license")
    if license is not None and license not in HUB_LICENSES:
        return f"license must be one of [...], not {license}"
    if license == "other" and not {"license_name", "license_link"} <= head.keys():
        return "license_name and license_link are required"
    return None


def git_name(body):
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def entry(path, body):
    found = {"type": "file", "path": path, "size": len(body), "oid": git_name(body)}
    if path.endswith(_LARGE):
        found["lfs"] = {
            "oid": hashlib.sha256(body).hexdigest(),
            "size": len(body),
            "pointerSize": 130,
        }
    return found


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._note()
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._file(found[1], found[2], found[3], found[4])
        if path == "/api/whoami-v2":
            return self._json({"type": "user", "name": "me", "orgs": []})
        found = re.fullmatch(r"/api/((?:models|datasets)/[^/]+/[^/]+)(?:/([^/]+)(?:/(.+))?)?", path)
        repository = self.hub.repositories.get(found[1]) if found else None
        if repository is None:
            return self._json({"error": "not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        if found[2] == "refs":
            refs = [
                ("branches", "heads", {"main": repository.head}),
                ("tags", "tags", repository.tags),
            ]
            named = {
                name: [
                    {"name": ref, "ref": f"refs/{place}/{ref}", "targetCommit": commit}
                    for ref, commit in each.items()
                ]
                for name, place, each in refs
            }
            return self._json({**named, "converts": []})
        commit = repository.at(found[3] or "main")
        files = repository.commits[commit]
        if found[2] == "tree":
            return self._json([entry(name, body) for name, body in files.items()])
        siblings = [{"rfilename": name} for name in files]
        return self._json({"id": found[1].partition("/")[2], "sha": commit, "siblings": siblings})

    do_HEAD = do_GET

    def do_PUT(self):
        self._note()
        body = self._body()
        oid = self.path.rpartition("/")[2]
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.large[oid] = body
        self._json({})

    def do_POST(self):
        self._note()
        body, path = self._body(), self.path.partition("?")[0]
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            said = complaint_about_card(json.loads(body)["content"])
            answer = {"errors": [{"message": said}] if said else [], "warnings": []}
            return self._json(answer, 400 if said else 200)
        if path.endswith("/info/lfs/objects/batch"):
            return self._batch(json.loads(body))
        _, _, kind, owner, name, verb, revision = path.split("/")
        repository = self.hub.repositories[f"{kind}/{owner}/{name}"]
        if verb == "preupload":
            return self._preupload(repository, json.loads(body)["files"])
        if verb == "paths-info":
            paths = set(parse_qs(body.decode())["paths"])
            files = repository.commits[repository.at(revision)]
            return self._json([entry(each, files[each]) for each in paths & files.keys()])
        if verb == "tag":
            tag = json.loads(body)["tag"]
            if tag in repository.tags:
                return self._json({"error": "Tag exists"}, 409)
            repository.tags[tag] = repository.at(revision)
            return self._json({})
        assert verb == "commit"
        place = f"{'datasets/' * (kind == 'datasets')}{owner}/{name}"
        return self._commit(repository, body, f"{self.hub.endpoint}/{place}")

    def _create(self, asked):
        owner = asked.get("organization") or "me"
        key = f"{asked.get('type', 'model')}s/{owner}/{asked['name']}"
        answer = {"url": f"{self.hub.endpoint}/{owner}/{asked['name']}"}
        if key in self.hub.repositories:
            return self._json({**answer, "error": "You already created this repo"}, 409)
        private = asked.get("visibility") == "private" or asked.get("private") is True
        self.hub.repositories[key] = Repository(private)
        self.hub.repositories[key].commit({".gitattributes": b""}, "initial commit")
        return self._json(answer)

    def _preupload(self, repository, files):
        modes = [
            {
                "path": each["path"],
                "uploadMode": "lfs" if each["path"].endswith(_LARGE) else "regular",
                "shouldIgnore": False,
                "oid": git_name(repository.files[each["path"]])
                if each["path"] in repository.files
                else None,
            }
            for each in files
        ]
        return self._json({"files": modes})

    def _batch(self, asked):
        objects = [
            {**each, "actions": {"upload": {"href": f"{self.hub.endpoint}/lfs/{each['oid']}"}}}
            for each in asked["objects"]
        ]
        return self._json({"transfer": "basic", "objects": objects})

    def _commit(self, repository, body, page):
        files, summary = dict(repository.files), ""
        for line in body.splitlines():
            each = json.loads(line)
            said = each["value"]
            if each["key"] == "header":
                summary = said["summary"]
            elif each["key"] == "file":
                files[said["path"]] = base64.b64decode(said["content"])
            elif each["key"] == "lfsFile":
                files[said["path"]] = self.hub.large[said["oid"]]
            else:
                assert each["key"] == "deletedFile"
                del files[said["path"]]
        commit = repository.commit(files, summary)
        url = f"{page}/commit/{commit}"
        return self._json({"success": True, "commitOid": commit, "commitUrl": url})

    def _file(self, kind, name, revision, path):
        repository = self.hub.repositories.get(f"{kind or 'models/'}{name}")
        commit = repository.at(revision) if repository else ""
        body = repository.commits.get(commit, {}).get(path) if repository else None
        if body is None:
            code = "EntryNotFound" if repository else "RepoNotFound"
            return self._answer(b"", 404, {"X-Error-Code": code})
        known = entry(path, body)
        etag = known.get("lfs", known)["oid"]
        return self._answer(body, 200, {"ETag": f'"{etag}"', "X-Repo-Commit": commit})

    def _note(self):
        self.hub.agents.add(self.headers.get("User-Agent", ""))
        self.hub.tokens.add(self.headers.get("Authorization", ""))

    def _body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _json(self, value, status=200, headers=None):
        self._answer(json.dumps(value).encode(), status, headers)

    def _answer(self, body, status, headers=None):
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def environment(hub):
    """The environment of a command that asks this hub, with a token, and tells no tracker."""
    return {
        **os.environ,
        "HF_ENDPOINT": hub.endpoint,
        "HF_TOKEN": "hf_of_a_test",
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "POSTTRAIN_TRACKING": "off",
    }


def started():
    """Start one; the hub and its server, which the caller shuts down."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return hub, server
