"""`seal verify` on a run with a changed log: refused in a sentence, or verified without an error."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shelf.lab.verify import run_logs, verify
from shelf.statistics.launches import read_launches
from tests.attack.odd import changed

LOGS = (
    *(f"seal_log/{name}.jsonl" for name in ("launches", "omega", "profile", "steps")),
    *("seal_log/trajectories/1.jsonl", "seal_log/trajectories/2.jsonl", "validation_log/0.jsonl"),
)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_odd_value_is_more_than_a_refusal(run, url, data):
    path = run / data.draw(st.sampled_from(LOGS))
    whole = path.read_bytes()
    lines = [json.loads(line) for line in whole.decode().split("\n") if line]
    number = data.draw(st.integers(0, len(lines) - 1))
    lines[number] = data.draw(changed(lines[number]))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        logs = run_logs(run)
        verify(run, logs, read_launches(logs[0].run), url)
    except ValueError as refusal:
        assert str(refusal)
    finally:
        path.write_bytes(whole)
