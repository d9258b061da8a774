"""Sends an error as an HTTP answer: the dialect's status and body, `retry-after`, and `x-should-retry`, which tells
official SDKs whether to repeat the request.
"""

from collections.abc import Sequence

from ..core.errors import SOON, GatewayError
from ..dialects import Dialect
from ..server.exchange import Header, ResponseWriter


def send_error(response: ResponseWriter, dialect: Dialect, error: GatewayError, headers: Sequence[Header]) -> int:
    """The status that was sent."""
    status, body = dialect.error(error)
    answer = [*headers]
    # Only where repeating helps: Codex waits as long as it is told, also two weeks for a quota, without a word.
    if error.may_repeat and error.retry_after is not None:
        answer.append((b"retry-after", str(max(1, round(error.retry_after))).encode()))
    elif error.may_repeat and error.kind in SOON:
        answer.append((b"retry-after", b"1"))
    # The official SDKs repeat 409 and 5xx by themselves; here they are told whether it helps.
    answer.append((b"x-should-retry", b"true" if error.may_repeat else b"false"))
    response.send(status, body, answer)
    return status
