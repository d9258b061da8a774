"""File descriptors: raises the soft limit of open files (`ulimit -n`, RLIMIT_NOFILE) at the start, and takes no more
connections than there are descriptors for.

Beyond the limit, accepting fails silently (uvloop closes such a connection at once). So the soft limit
is raised towards the hard one at the start, and a gateway takes no more connections than there are descriptors for.
"""

import logging
import resource
from typing import Final

log = logging.getLogger(__name__)

RESERVED: Final = 256
"""For everything else: connections to Cursor, programs, files."""
_LEAST: Final = 16


def fitting(wanted: int, soft: int | None) -> int:
    """Connections that fit under a soft limit; None: there is none."""
    return wanted if soft is None else min(wanted, max(_LEAST, soft - RESERVED))


def soft_limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_soft_limit(connections: int) -> None:
    """As far as these connections need it and the hard limit lets it. The limit is the whole process's."""
    soft = soft_limit()
    if soft is None or soft >= connections + RESERVED:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED if hard == resource.RLIM_INFINITY else min(hard, connections + RESERVED)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    except (OSError, ValueError) as refused:
        log.warning("the limit of open files stays at %d: %s", soft, refused)


def connections_that_fit(wanted: int) -> int:
    """What of `max_connections` this process can keep; says so when that is less."""
    soft = soft_limit()
    fit = fitting(wanted, soft)
    if fit < wanted:
        log.warning(
            "only %d of %d connections (`max_connections`) fit under the limit of %s open files; raise `ulimit -n`",
            fit,
            wanted,
            soft,
        )
    return fit
