"""What `/metrics` tells of the process itself, under Prometheus' own names (`process_*`): CPU, start, memory, file
descriptors; on macOS without memory, which only /proc tells cheaply.
"""

import os
import resource
import time
from typing import Final

from ..processes.memory import resident_bytes
from .families import Family, gauge_lines, number

_STARTED: Final = time.time()
_CPU: Final = Family("process_cpu_seconds_total", "Seconds of CPU time that the gateway has used, user and system.")
_START: Final = Family("process_start_time_seconds", "When the gateway started, in seconds since 1970.")
_MEMORY: Final = Family("process_resident_memory_bytes", "Bytes of memory that the gateway holds.")
_OPEN: Final = Family("process_open_fds", "Open file descriptors.")
_MOST: Final = Family("process_max_fds", "File descriptors that may be open.")


def process_lines() -> list[str]:
    lines = [*_CPU.head("counter"), f"{_CPU.name} {number(time.process_time())}"]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    gauges: list[tuple[Family, float]] = [(_START, _STARTED), (_OPEN, len(os.listdir("/dev/fd")))]
    if soft != resource.RLIM_INFINITY:
        gauges.append((_MOST, soft))
    if (held := resident_bytes()) is not None:
        gauges.append((_MEMORY, held))
    for family, value in gauges:
        lines += gauge_lines(family, {(): value})
    return lines
