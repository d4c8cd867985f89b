import pytest

from seal.system.net import is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_an_address_of_this_machine_only(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "::", "node7", "127.0.0.1.example.org", "127.example.org", ""])
def test_an_address_that_others_may_reach(host):
    assert not is_loopback(host)
