"""Access to the dashboard: Host and Origin checks, a key if the gateway requires one (the main keys, the user's local
key, named keys with dashboard access), a session cookie for 12 hours, and a CSRF token for changes.

The cookie is signed with the key, so that it survives a restart and ends with the key; it opens the dashboard's API
only. A caller that sends the key in a header needs no CSRF token: a foreign page cannot send it.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..server.access import OWN_KEY, Access, Admitted, admit, sent_keys
from ..server.exchange import HttpRequest
from ..usage.key_file import KeyRegistry, NamedKey, digest_of
from .routes import PAGE_PREFIX

LASTS_S: Final = 12 * 3600
COOKIE: Final = "caretway_page"
CSRF_HEADER: Final = "x-caretway-csrf"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SIGN_IN: Final = "Sign in with the value of CARETWAY_API_KEY, or with a key from `caretway key new --page`."
MAX_SIGNED_OUT: Final = 1000
_MAX_TOKEN: Final = 200
_ELSEWHERE: Final = ("cross-site", "same-site")
_OPEN: Final = "open"
"""Stands for the cookie of a visitor when no key is required."""


class Visitor(Struct, frozen=True):
    caller: str = ""
    """The name of the key, as in `Admitted`."""
    token: str = ""
    """The cookie's token; empty if the key itself was sent, or no key is required."""
    by_header: bool = False


class DashboardAccess:
    def __init__(self, access: Access, keys: KeyRegistry | None = None, clock: Callable[[], float] = time.time) -> None:
        self._access = replace(access, origins=frozenset())  # pages that may use models may not read this
        self._keys = keys
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._signed_out: dict[str, None] = {}
        self.changes = 0
        """Grows with each sign-out."""

    @property
    def key_required(self) -> bool:
        return bool(self._access.keys) or self._named() is not None

    def may_change(self, caller: str) -> bool:
        """True if this visitor may change settings. A key with its own limits may not: it could lift them."""
        named = None if self._keys is None else self._keys.named(caller)
        return named is None or not (named.models or named.budgets or named.workspace)

    def admit(self, request: HttpRequest, *, keyless: bool) -> Admitted:
        """Admit a request to the dashboard or its API, or raise GatewayError."""
        admitted = admit(self._access, request.scheme, request.headers, keyless=True)
        if request.headers.get("sec-fetch-site") in _ELSEWHERE:  # also in a frame or window that another page opens
            raise GatewayError(
                ErrorKind.FORBIDDEN,
                "Other web pages may not open the dashboard's API.",
                hint="Type the gateway's address into the browser.",
                code="origin_not_allowed",
            )
        if keyless:
            return admitted
        visitor = self.visitor(request.headers)
        if request.method not in SAFE and not visitor.by_header:
            sent = request.headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(sent.encode(), self.csrf(visitor).encode()):
                raise GatewayError(
                    ErrorKind.FORBIDDEN,
                    f"A change needs the dashboard's token in `{CSRF_HEADER}`.",
                    hint="GET /caretway/v1/session has it; it changes when the gateway is started again.",
                    code="csrf_wrong",
                )
        return replace(admitted, caller=visitor.caller)

    def visitor(self, headers: Mapping[str, str]) -> Visitor:
        """The visitor of a request. Raises GatewayError without access to the dashboard."""
        if not self.key_required:
            return Visitor()
        if sent := sent_keys(headers):
            return Visitor(self._key_of(sent)[0], by_header=True)
        token = cookie_token(headers)
        if token and (caller := self._caller_of(token)):
            return Visitor(caller, token)
        raise GatewayError(
            ErrorKind.ACCESS_DENIED,
            "The dashboard needs the gateway's key." if not token else "You are signed out of the dashboard.",
            hint=SIGN_IN,
        )

    def admits(self, headers: Mapping[str, str]) -> bool:
        try:
            self.visitor(headers)
        except GatewayError:
            return False
        return True

    def csrf(self, visitor: Visitor) -> str:
        return hmac.new(self._secret, (visitor.token or _OPEN).encode(), hashlib.sha256).hexdigest()[:32]

    # ---- signing in and out

    def sign_in(self, key: str) -> Visitor:
        """Start a session with a key. Raises GatewayError."""
        if not self.key_required:
            return Visitor()
        try:
            caller, who, digest = self._key_of((key.strip(),))
        except GatewayError as wrong:
            if wrong.hint != OWN_KEY:
                raise
            raise GatewayError(wrong.kind, wrong.message, hint=SIGN_IN) from wrong  # no client is being set up here
        body = f"{who}.{int(self._clock()) + LASTS_S}.{secrets.token_urlsafe(12)}"
        return Visitor(caller, f"{body}.{_mac(digest, body)}")

    def sign_out(self, token: str) -> None:
        if token and self._caller_of(token):
            self._signed_out[token] = None
            self.changes += 1
            if len(self._signed_out) > MAX_SIGNED_OUT:
                del self._signed_out[next(iter(self._signed_out))]

    # ---- keys

    def _named(self) -> Mapping[bytes, NamedKey] | None:
        return self._keys.current() if self._keys is not None else None

    def _key_of(self, sent: tuple[str, ...]) -> tuple[str, str, bytes]:
        """(caller, name in cookies, digest) of a sent key with dashboard access. Raises GatewayError without one."""
        named, now, found = self._named() or {}, self._clock(), None
        for key in sent:
            digest = digest_of(key)
            for known in (*self._access.keys, *self._access.local):
                if hmac.compare_digest(known, digest):
                    return known.hex()[:12], known.hex()[:12], known
            found = named.get(digest) or found
        if found is None or found.expired(now):
            admit(self._access, "http", {"x-api-key": sent[0]}, named=named, now=now)  # raises the matching error
        if found is None or not found.page:
            raise _not_for_the_page(found.name if found is not None else "")
        return found.name, found.id, bytes.fromhex(found.digest)

    def _caller_of(self, token: str) -> str:
        """The caller of a cookie; empty if it is forged, expired, of another key, or signed out."""
        body, _, mac = token.rpartition(".")
        who, expires, *rest = body.split(".") if body.count(".") == 2 else ("", "", "")
        if not rest or not expires.isascii() or not expires.isdigit() or token in self._signed_out:
            return ""
        if int(expires) <= self._clock():
            return ""
        for caller, digest in self._keys_called(who):
            if hmac.compare_digest(_mac(digest, body).encode(), mac.encode()):
                return caller
        return ""

    def _keys_called(self, who: str) -> list[tuple[str, bytes]]:
        own = [(who, key) for key in (*self._access.keys, *self._access.local) if key.hex()[:12] == who]
        named = [
            (key.name, digest)
            for digest, key in (self._named() or {}).items()
            if key.id == who and key.page and not key.expired(self._clock())
        ]
        return own + named


def cookie_name(headers: Mapping[str, str]) -> str:
    """The cookie's name with the port: browsers share cookies between all ports of a host, and several gateways may run
    on one host."""
    _, _, port = headers.get("host", "").rpartition(":")
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def cookie_token(headers: Mapping[str, str]) -> str:
    from http.cookies import CookieError, SimpleCookie  # only for the page

    try:
        found = SimpleCookie(headers.get("cookie", "")).get(cookie_name(headers))
    except CookieError:
        return ""
    return found.value if found is not None and len(found.value) <= _MAX_TOKEN else ""


def set_cookie(headers: Mapping[str, str], scheme: str, token: str) -> bytes:
    """The value of the Set-Cookie header; an empty token deletes the cookie."""
    secure = "; Secure" if scheme == "https" else ""
    lasts = LASTS_S if token else 0
    name = cookie_name(headers)
    return f"{name}={token}; Path={PAGE_PREFIX}; Max-Age={lasts}; HttpOnly; SameSite=Strict{secure}".encode()


def _mac(digest: bytes, body: str) -> str:
    return hmac.new(hashlib.sha256(b"caretway page\0" + digest).digest(), body.encode(), hashlib.sha256).hexdigest()


def _not_for_the_page(name: str) -> GatewayError:
    return GatewayError(
        ErrorKind.FORBIDDEN,
        f"The key {name} has no access to the dashboard.",
        hint="The dashboard shows what all keys do. Make a key for it: caretway key new --name NAME --page",
        code="page_not_allowed",
    )
