"""Trajectories as traces that OpenTelemetry's own definition reads."""

import base64
import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status, TracesData
from typer.testing import CliRunner

from seal.cli.trace import app
from seal.records.trajectory import TrajectoryRecord
from seal.records.validation import read_log
from seal.trace.export import traces
from seal.trace.otlp import traces_data
from seal.trace.spans import spans
from tests.support.loopback import Loopback
from tests.support.played_run import write_run

SMALL = (
    "data.train_batch_size=1",
    "actor_rollout_ref.actor.ppo_mini_batch_size=1",
    "actor_rollout_ref.rollout.n=6",
    "seal.data.train={split: train, categories: [base], limit: 2, task_file: null, mixture: []}",
    "seal.data.val=[{split: train, limit: 1}]",
    "actor_rollout_ref.rollout.val_kwargs={n: 1, temperature: 0.0, do_sample: false}",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "traced", *SMALL, steps=2, validations=(0,), lost=0.2)


@pytest.fixture(scope="module")
def logged(run):
    files = [run / "seal_log" / "trajectories" / f"{step}.jsonl" for step in (1, 2)]
    return [record for path in [*files, run / "validation_log" / "0.jsonl"] for record in read_log(path).without_bad()]


def parsed(data, message):
    """As protobuf reads it: OTLP writes ids in hexadecimal, where protobuf's own JSON has base64."""
    data = json.loads(json.dumps(data))
    for span in data["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in {"traceId", "spanId", "parentSpanId"} & set(span):
            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return ParseDict(data, message)


def attributes(span):
    kinds = ("string_value", "bool_value", "int_value", "double_value")
    values = {}
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        values[each.key] = (
            getattr(each.value, kind) if kind in kinds else [v.string_value for v in each.value.array_value.values]
        )
    return values


def test_every_trajectory_is_one_trace_of_the_official_definition(run, logged):
    found = [parsed(data, TracesData()) for data in traces(run)]
    assert len(found) == len(logged) == 16
    every = [data.resource_spans[0].scope_spans[0].spans for data in found]
    assert len({span.trace_id for each in every for span in each}) == 16
    assert all(len(span.trace_id) == 16 and len(span.span_id) == 8 for each in every for span in each)
    ids = [span.span_id for each in every for span in each]
    assert len(ids) == len(set(ids))
    for each in every:
        root, *others = each
        known = {span.span_id for span in each}
        assert not root.parent_span_id and all(span.parent_span_id in known for span in others)
        assert all(root.start_time_unix_nano <= span.start_time_unix_nano for span in others)
        assert all(span.end_time_unix_nano <= root.end_time_unix_nano for span in others)


def test_a_trace_holds_the_dialogue_the_calls_and_the_judgement(run, logged):
    for data, record in zip(traces(run), logged, strict=True):
        root, *others = parsed(data, TracesData()).resource_spans[0].scope_spans[0].spans
        shown = attributes(root)
        assert (shown["seal.task"], shown["seal.reward"]) == (record.task_id, record.score)
        assert shown["seal.labels"] == list(record.labels)
        assert shown.get("seal.w") == record.w and shown.get("seal.advantage") == record.advantage
        by_kind = {kind: [] for kind in ("CHAIN", "LLM", "TOOL")}
        for span in others:
            by_kind[attributes(span)["openinference.span.kind"]].append(span)
        said = [message["content"] for message in record.messages if message["role"] == "assistant"]
        assert [attributes(span)["llm.output_messages.0.message.content"] for span in by_kind["LLM"]] == said
        if record.infra is None:
            assert [attributes(span).get("seal.label") for span in by_kind["CHAIN"]] == list(record.labels)
            calls = [call for turn in record.evidence for action in turn["actions"] for call in action["calls"]]
            assert [span.name for span in by_kind["TOOL"]] == [call["name"] for call in calls]
            assert [span.status.code == Status.STATUS_CODE_ERROR for span in by_kind["TOOL"]] == [
                call["error"] is not None for call in calls
            ]
        else:
            assert root.status.code == Status.STATUS_CODE_ERROR and root.status.message == record.infra_message


def test_trajectories_of_earlier_versions_have_traces_too(logged):
    """They have no times of their messages and no token counts."""
    old = replace(logged[0], times=(), began=0.0, prompt_tokens=0, spans=())
    empty = TrajectoryRecord("multi_turn_base_0", "base", "base", "train", 0, 0.0, infra="engine", step=1)
    for record in (old, empty):
        parsed(traces_data(spans(record, "run"), "run"), TracesData())


def test_the_command_writes_lines_and_sends_requests(run, tmp_path):
    received = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            parsed(body, ExportTraceServiceRequest())
            received.append((self.path, self.headers["Content-Type"], self.headers["X-Key"], body))
            self.send_response(200 if len(received) < 17 else 401)
            self.end_headers()
            self.wfile.write(b"{}" if len(received) < 17 else b"no such key")

        def log_message(self, *_):
            pass

    out, runner = tmp_path / "t.jsonl", CliRunner()
    assert runner.invoke(app, [str(run), "--out", str(out)]).exit_code == 0
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n")[:-1]]
    server = Loopback(Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        done = runner.invoke(app, [str(run), "--otlp", url, "--header", "X-Key=secret"])
        assert done.exit_code == 0, done.output
        assert [body for *_, body in received] == lines
        assert {each[:3] for each in received} == {("/v1/traces", "application/json", "secret")}
        refused = runner.invoke(app, [str(run), "--otlp", url, "--steps", "1"])
        assert refused.exit_code == 2 and "401: no such key" in refused.stderr
    finally:
        server.shutdown()
        server.server_close()
    gone = runner.invoke(app, [str(run), "--otlp", url])
    assert gone.exit_code == 2 and "does not answer" in gone.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "Name a file with --out"),
        (("--otlp", "localhost"), "is not the address"),
        (("--otlp", "http://127.0.0.1:1", "--header", "x"), "--header x has no value"),
        (("--out", "t.jsonl", "--steps", "9"), "holds no trajectories of step 9"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_sentence(run, arguments, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [str(run), *arguments])
    assert done.exit_code == 2 and word in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
