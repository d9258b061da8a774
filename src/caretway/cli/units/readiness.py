"""Tells the service manager that the gateway serves, and that it stops (sd_notify): a datagram to the socket that
NOTIFY_SOCKET names. Without that variable nothing happens.
"""

import logging
import socket

log = logging.getLogger(__name__)


def notify(address: str, *lines: str) -> None:
    """Notify the service manager. `address`: a path, or a name in the abstract namespace that begins with @."""
    if not address:
        return
    place = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)) as link:
            link.sendto("\n".join(lines).encode(), place)
    except OSError as failure:
        log.warning("the service manager cannot be notified (NOTIFY_SOCKET is %s): %s", address, failure)
