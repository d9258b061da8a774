"""A lock between processes, on an open file: taken or not, without waiting; what counts as taken by another process.
The end of the process, or of the handle, releases it.
"""

import errno
import fcntl


def try_lock(handle: int) -> bool:
    """False: another process has it. Raises OSError where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failure:
        if failure.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
