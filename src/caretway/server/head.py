"""Request heads that two readers could understand differently (request smuggling): doubled Host, keys or
Transfer-Encoding, encodings other than chunked, a missing or different Host, HTTP versions, CONNECT. Also how a head's
size is counted. Pure.

llhttp refuses doubled or malformed Content-Length, Content-Length beside Transfer-Encoding, bad chunk sizes, folded
headers, bare line feeds and control characters by itself. Here is what it lets pass and a proxy in front of us could
read differently than we do: two readers of one head are what request smuggling lives on.
"""

import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

from .exchange import Header

VERSIONS: Final = ("1.0", "1.1")
_ONCE: Final = (b"host", b"origin", b"authorization", b"x-api-key", b"x-caretway-key", b"transfer-encoding")
"""Two of these, and two readers may each believe another one. Names in lower case."""
_KEPT: Final = (b"close", b"keep-alive")
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def head_size(target: bytes, headers: Sequence[Header]) -> int:
    """Bytes, as a head is counted: what stands on its lines, and four for each header's colon, space and end."""
    return len(target) + 4 * len(headers) + sum(map(len, chain.from_iterable(headers)))


def head_problem(version: str, method: bytes, target: bytes, headers: Sequence[Header]) -> str | None:
    """Why this head is refused, as a sentence; None when it is fine. Header names are in lower case."""
    if version not in VERSIONS:
        return "Only HTTP/1.0 and HTTP/1.1 are spoken here."
    if method == b"CONNECT":
        return "This is not a proxy."
    values = dict(headers)
    if len(values) < len(headers) and (doubled := _doubled(headers)):
        return doubled
    if version == "1.1" and b"host" not in values:
        return "The Host header is missing."
    encoding = values.get(b"transfer-encoding")
    if encoding is not None and (version != "1.1" or encoding.strip().lower() != b"chunked"):
        return "The only Transfer-Encoding is chunked, in HTTP/1.1."
    if not target.startswith((b"/", b"*")):
        authority = target.partition(b"://")[2].partition(b"/")[0]
        if not authority or authority.lower() != values.get(b"host", b"").lower():
            return "The request line names another host than the Host header."
    return None


def _doubled(headers: Sequence[Header]) -> str | None:
    counts = Counter(name for name, _ in headers if name in _ONCE)
    for name, count in counts.items():
        if count > 1:
            return f"The header {name.decode()} is there {count} times."
    return None


def http_date(now: float) -> bytes:
    """Unix seconds as RFC 9110 writes them, whatever the locale is."""
    at = time.gmtime(now)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    clock = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
    return f"{day}, {at.tm_mday:02} {month} {at.tm_year} {clock} GMT".encode()


def without_upgrade(method: bytes, target: bytes, version: str, headers: Sequence[Header]) -> bytes:
    """The same head for a server that stays with HTTP/1.1, as it may: `Connection` asks for no change any more.
    `Upgrade` stays, which asks for nothing without it, so that a route can say what it thinks of that protocol."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    for name, value in headers:
        if name == b"connection":
            kept = [word for word in value.lower().replace(b" ", b"").split(b",") if word in _KEPT]
            value = b", ".join(kept)
        if value:
            lines.append(name + b": " + value)
    return b"\r\n".join([*lines, b"", b""])
