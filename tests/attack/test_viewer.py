"""Hostile logs give the viewer bad lines, never a 5xx, a dead index or a script."""

import json
import time

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shelf.view.app import make_app
from shelf.view.runs import find_runs
from tests.attack.odd import changed

PAGES = ("overview", "validation", "choices", "failures", "trajectories", "groups", "omega")
LOGS = ("seal_log/trajectories/1.jsonl", "seal_log/steps.jsonl", "seal_log/stages.jsonl", "validation_log/2.jsonl")


def wait_for(client: TestClient, done) -> None:
    deadline = time.monotonic() + 60
    while not done(client.get("/api/runs").json()["runs"]):
        assert time.monotonic() < deadline, "the index was not finished within 60 s"
        time.sleep(0.02)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_line_harms_a_page_or_another_run(played, run, data):
    for name in LOGS:
        path, whole = run / name, (played / name).read_text().rstrip("\n").split("\n")
        lines = [json.dumps(data.draw(changed(json.loads(line)))) for line in whole[:2]]
        path.write_text("\n".join(lines + whole[2:]) + "\n")
    app = make_app(find_runs([str(run), str(played)], run.parent))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        wait_for(client, lambda runs: all(each["index"]["ready"] for each in runs))
        total = client.get("/api/trajectories?run=whole").json()["total"]
        assert total == sum(path.read_bytes().count(b"\n") for path in played.glob("seal_log/trajectories/*"))
        for page in PAGES:
            answer = client.get(f"/api/{page}", params={"run": "damaged"})
            assert answer.status_code in (200, 400), (page, answer.text)
        for log in ("train", "validation"):
            rows = client.get("/api/trajectories", params={"run": "damaged", "log": log}).json()["rows"]
            for row in rows[:4] + rows[-4:]:
                answer = client.get("/api/trajectory", params={"run": "damaged", "key": row["key"]})
                assert answer.status_code == 200, answer.text


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    page=st.sampled_from([*PAGES, "trajectory", "group", "replay", "runs", "../pyproject.toml", "%2e%2e/x"]),
    asked=st.dictionaries(
        st.sampled_from(["key", "step", "offset", "limit", "order", "by", "turn", "text", "log", "source", "task"]),
        st.sampled_from(["", "-1", "9" * 30, "\x00", "train:1:99", "nan", "'", "%", "\ud7ff", "x" * 3000]),
    ),
)
def test_no_address_is_answered_with_a_5xx(played, page, asked):
    app = make_app(find_runs([str(played)], played.parent))
    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=True)
    assert client.get(f"/api/{page}", params={"run": "whole", **asked}).status_code in (200, 400, 404, 503)
