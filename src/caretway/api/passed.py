"""What a request takes along to another gateway (path and query, headers, caller), the check there that its body is
unchanged, and which gateway made a response, read from the response's id."""

import hashlib
import re
from typing import Final

from ..core.errors import ErrorKind, GatewayError
from ..core.passing import Asker, Held, PassedRequest
from ..dialects.headers import OWNER
from ..processes.tasks import aside
from ..server.exchange import HttpRequest
from ..server.shape import is_large

_RESPONSE_ID: Final = re.compile(r"resp_([0-9a-f]{4})[0-9a-f]{28}")


def passed_request(http: HttpRequest, body: bytes, request_id: str) -> PassedRequest:
    asker = Asker(http.caller.key, http.headers.get("user-agent", ""), http.headers.get(OWNER, ""))
    return PassedRequest(http.method, http.target, http.headers, body, asker, request_id)


def made_by(response_id: str) -> Held | None:
    """The gateway that made this response, read from the id; None if the id names no gateway. While Redis is away, only
    that gateway has the response."""
    found = _RESPONSE_ID.fullmatch(response_id)
    return Held(found[1], response_id) if found is not None else None


async def check_passed_body(http: HttpRequest) -> None:
    """Raise GatewayError if the body is not the signed body."""
    assert http.visit is not None
    digest = await aside(_digest, http.body) if is_large(http.body) else _digest(http.body)
    if digest != http.visit.digest:
        raise GatewayError(ErrorKind.ACCESS_DENIED, "The request was passed on with another body than was signed.")


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
