"""Uploads: the hub is a server on loopback, everything before it is real."""

import json
from http.server import BaseHTTPRequestHandler

import pytest
from huggingface_hub import constants, hf_api

from seal.cli.main import execute, load
from shelf.handover.hub import push, require_push
from tests.support.loopback import Loopback


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does when a repository is made, looked at, and filled."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, body))
        if (odd := self.server.odd) and odd[0] in self.path:
            return self._answer(odd[1])
        if self.server.status != 200:
            return self._answer({"error": "no"}, self.server.status)
        if self.path == "/api/repos/create":
            if self.server.private is None:
                self.server.private = json.loads(body).get("visibility") == "private"
            return self._answer({"url": f"{self.server.url}/a/b"})
        if self.path.startswith("/api/models/a/b/preupload"):
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self._answer({"files": files})
        return self._answer({"commitUrl": f"{self.server.url}/a/b/commit/1", "commitOid": "1", "hookOutput": ""})

    def do_GET(self):
        if "/tree/" in self.path:
            kept = [{"type": "file", "path": path, "size": 1, "oid": "1"} for path in self.server.files]
            return self._answer(kept, self.server.status)
        found = {"id": "a/b", "private": self.server.private, "sha": "1", "siblings": []}
        return self._answer(found, self.server.status)

    def _answer(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        del arguments


@pytest.fixture
def hub(monkeypatch):
    with Loopback(Hub) as server:
        server.asked, server.private, server.status, server.odd = [], None, 200, None
        server.files = [".gitattributes", "README.md", "adapter_config.json"]
        for module in (constants, hf_api):
            monkeypatch.setattr(module, "ENDPOINT", server.url, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        yield server


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "README.md").write_text("# a\n")
    (tmp_path / "interface.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("public", [False, True])
def test_a_folder_is_uploaded_private_unless_asked(hub, folder, public):
    assert push(folder, "a/b", public=public) == f"{hub.url}/a/b"
    created = json.loads(hub.asked[0][1])
    assert hub.asked[0][0] == "/api/repos/create"
    assert created["visibility"] == ("public" if public else "private")
    commit = hub.asked[-1][1].decode()
    assert "README.md" in commit and "interface.json" in commit
    deleted = [line["value"]["path"] for line in map(json.loads, commit.splitlines()) if line["key"] == "deletedFile"]
    assert deleted == ["adapter_config.json"], "what an earlier version had and this one has not"


@pytest.mark.parametrize("public", [False, True])
def test_a_model_that_is_there_with_another_visibility_gets_nothing(hub, folder, public):
    hub.private = public
    with pytest.raises(ValueError, match=f"is there already and {'private' if public else 'public'}"):
        push(folder, "a/b", public=public)
    assert [path for path, _ in hub.asked] == ["/api/repos/create"]


def test_a_refusal_and_a_hub_that_is_away_are_one_sentence(hub, folder, monkeypatch):
    hub.status = 403
    with pytest.raises(ValueError, match=r"The hub refused a/b \(403\)"):
        push(folder, "a/b", public=False)
    for module in (constants, hf_api):
        monkeypatch.setattr(module, "ENDPOINT", "http://127.0.0.1:9", raising=False)
    with pytest.raises(ValueError, match="does not answer"):
        push(folder, "a/b", public=False)


@pytest.mark.parametrize("odd", [{}, [], None, "yes"])
@pytest.mark.parametrize("place", ["create", "preupload", "commit"])
def test_an_answer_that_is_no_hub_s_is_one_sentence(hub, folder, place, odd):
    hub.odd = place, odd
    with pytest.raises(ValueError, match=r"does not answer as a hub does|improperly formatted"):
        push(folder, "a/b", public=False)


def test_without_a_token_nothing_is_exported(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("shelf.handover.hub.get_token", lambda: None)
    out = tmp_path / "out"
    arguments = [str(run), "--out", str(out), "--push", "a/b"]
    assert execute(load("export"), arguments, "seal export") == 2
    err = capsys.readouterr().err
    assert "--push needs a token" in err and err.count("\n") == 1 and not out.exists()
    with pytest.raises(ValueError, match="is not a name on the hub"):
        require_push("a/b/c d")
