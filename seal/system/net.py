"""Network addresses: which of them only this machine reaches, and a free port."""

import ipaddress
import socket
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`, a host name or an IP address without a port."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def http_url(host: str, port: int) -> str:
    """The address of a server; an IPv6 host gets its brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_address(url: str) -> bool:
    """Return whether a text is an HTTP address of a host, with a valid port if it names one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, or of half a bracket
        return False


def is_free(url: str) -> bool:
    """Return whether nothing accepts connections at an HTTP address."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or LOOPBACK, parts.port or 80), timeout=1).close()
    except OSError:
        return True
    return False


def free_port() -> int:
    """Return a TCP port of the loopback interface that nothing listens on, and that no other caller gets for a minute.

    A connection that was closed here waits there: a server, which sets SO_REUSEADDR, can bind the port, and the kernel
    chooses it for no one else.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            listener.accept()[0].close()
        return listener.getsockname()[1]
