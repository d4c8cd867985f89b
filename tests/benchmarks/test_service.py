"""The benchmark of the service, on a few runs."""

from benchmarks.service.__main__ import in_process, reference_runs


def test_the_ceiling_is_measured_with_requests_that_succeed(caplog):
    assert in_process(reference_runs("compact")[:3], "compact") > 0
    assert not caplog.records
