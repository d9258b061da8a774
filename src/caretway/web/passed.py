"""A request as another gateway gets it: its path and query, its headers, who asks; and the check, there, that its body
is the one that was sent.
"""

import hashlib

from ..core.errors import ErrorKind, GatewayError
from ..core.passing import Asker, PassedRequest
from ..dialects.headers import OWNER
from ..tasks import aside
from .exchange import HttpRequest
from .shape import is_large


def passed_request(http: HttpRequest, body: bytes, request_id: str) -> PassedRequest:
    asker = Asker(http.caller.key, http.headers.get("user-agent", ""), http.headers.get(OWNER, ""))
    return PassedRequest(http.method, http.target, http.headers, body, asker, request_id)


async def check_passed_body(http: HttpRequest) -> None:
    """Raises GatewayError."""
    assert http.visit is not None
    digest = await aside(_digest, http.body) if is_large(http.body) else _digest(http.body)
    if digest != http.visit.digest:
        raise GatewayError(ErrorKind.ACCESS_DENIED, "The request was passed on with another body than was signed.")


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
