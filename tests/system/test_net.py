import socket

import pytest

from seal.system.net import LOOPBACK, free_port, is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_an_address_of_this_machine_only(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "::", "node7", "127.0.0.1.example.org", "127.example.org", ""])
def test_an_address_that_others_may_reach(host):
    assert not is_loopback(host)


def test_a_free_port_is_kept_for_the_server_that_was_told_it():
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError):
        other.bind((LOOPBACK, port))  # as a look for any free port would
    socket.create_server((LOOPBACK, port)).close()
