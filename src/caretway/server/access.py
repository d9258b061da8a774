"""Who may use the gateway. Pure: no socket, no route, no dialect.

Three checks, in this order. Host: an unknown name is a web page that had its own name resolved to this machine (DNS
rebinding). Origin (Sec-Fetch-Site if there is none): a browser sends requests for web pages, which are untrusted unless
configured. Key: compared in constant time, as `Authorization: Bearer`, `x-api-key` or `x-caretway-key`. Without a key
the gateway listens only on loopback.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError
from ..usage.key_file import NamedKey, digest_of
from .exchange import Header

# ---- Rate limits of one gateway key: a token bucket for requests a minute, a count of concurrent responses, and the
# `retry-after` of a 429; the Protocol of a limit that gateways share. The gateway's total limits are in `application`.
# Times are arguments. Callers are named by `access.Admitted.caller`; a caller without a key has no name and is not
# counted here. Names come from configured keys, so the table is small.


class CallerLimits(Struct, frozen=True):
    concurrent: int
    per_minute: int
    """Also the size of the bucket: a whole minute's requests may come at once."""


class _Account(Struct):
    tokens: float
    at: float
    running: int = 0
    """Requests in progress."""


class SharedAdmission(Protocol):
    """Limits over several gateways. If they cannot be known, the request is admitted."""

    async def enter(self, caller: str, *, turn: bool) -> tuple[str, float, bytes]:
        """Returns (`early`, `many` or empty; seconds to wait; the lease to give back)."""
        ...

    def leave(self, caller: str, lease: bytes) -> None: ...


class Admission:
    def __init__(self, limits: CallerLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def ask(self, caller: str) -> None:
        """Count one more request of this caller; takes no place yet. Raises GatewayError if the request comes too early
        or no place is free."""
        if not caller:
            return
        account = self._refill(caller)
        if account.tokens < 1:
            raise self.too_early((1 - account.tokens) * 60 / self._limits.per_minute)
        self._check_place(account)
        account.tokens -= 1

    def enter(self, caller: str) -> None:
        """Take a place for a complete request until `leave`. Raises GatewayError if none is free."""
        if caller:
            account = self._refill(caller)
            self._check_place(account)
            account.running += 1

    def _check_place(self, account: _Account) -> None:
        if account.running >= self._limits.concurrent:
            raise self.too_many()

    def too_early(self, wait: float) -> GatewayError:
        return GatewayError(
            ErrorKind.RATE_LIMITED,
            f"This key may make {self._limits.per_minute} requests a minute.",
            hint="Wait, or raise `max_requests_per_minute`.",
            code="too_many_requests",
            retry_after=wait,
        )

    def too_many(self) -> GatewayError:
        return GatewayError(
            ErrorKind.RATE_LIMITED,
            f"{self._limits.concurrent} requests of this key are being answered already.",
            hint="Wait for one to end, or raise `max_concurrent_per_key`.",
            code="too_many_concurrent_requests",
            retry_after=1.0,
        )

    def leave(self, caller: str) -> None:
        if caller:
            self._accounts[caller].running -= 1

    def _refill(self, caller: str) -> _Account:
        now, full = self._clock(), float(self._limits.per_minute)
        account = self._accounts.setdefault(caller, _Account(full, now))
        account.tokens = min(full, account.tokens + max(0.0, now - account.at) * full / 60)
        account.at = now
        return account


KEY_PREFIX: Final = "cw-"
ANY: Final = "*"
SEND_KEY: Final = "Give the client your Cursor API key as its API key (`x-api-key: KEY`, or `Authorization: Bearer`)."
"""The hint if every client must send its own Cursor API key."""
OWN_KEY: Final = (
    "Give the client the gateway's key as its API key: the value of CARETWAY_API_KEY, or one from `caretway key new`. "
    "It is not your Cursor key. It is sent as `x-api-key: KEY`, or with `Authorization: Bearer`."
)
"""The hint if the gateway requires a key. Logs hide all words after the last one, so nothing follows the hint."""

_KEY_HEADERS: Final = ("x-caretway-key", "x-api-key")
_PREFLIGHT_AGE_S: Final = b"600"
_METHODS: Final = b"GET, HEAD, POST, DELETE"


class Access(Struct, frozen=True):
    """The configured rules about callers."""

    hosts: frozenset[str] = frozenset()
    """Allowed names besides localhost and IP addresses, in lower case; `*` allows every name."""
    origins: frozenset[str] = frozenset()
    """Allowed origins of web pages, as browsers write them; `*` allows every page."""
    keys: tuple[bytes, ...] = ()
    """SHA-256 of each unnamed key. If it is empty and there are no named keys, no key is required."""
    local: tuple[bytes, ...] = ()
    """SHA-256 of a key that is accepted only where a key is required."""


class Admitted(Struct, frozen=True):
    """An admitted request."""

    caller: str = ""
    """Identifies the key without revealing it: the key's name, or a part of its digest. Empty if no key is required,
    and for the local key, which differs on each gateway."""
    headers: tuple[Header, ...] = ()
    """CORS headers of the response. Without them a browser hides the response from the web page."""
    owner: str = ""
    """Owner of stored responses: as `caller`, but the local key is identified by its digest, and a named key by its id.
    A later key with the same name is another owner; a renamed key stays the same."""


_ANYBODY: Final = Admitted()
Named = Mapping[bytes, NamedKey]
"""Named keys by their digests."""


def access_for(
    host: str,
    keys: Iterable[str],
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    *,
    named: bool = False,
    local_key: str = "",
) -> Access:
    """The rules of a gateway that listens on `host`. Raises GatewayError if strangers could use it. `named`: there are
    named keys too."""
    known = tuple(dict.fromkeys(digest_of(key) for key in keys))
    if not known and not named and reachable_from_outside(host):
        raise GatewayError(
            ErrorKind.ACCESS_DENIED,
            f"{host} can be reached from other machines, and no key is set: anybody could spend your subscription.",
            hint="Make one for each client with `caretway key new --name NAME`, or name a file of keys with "
            "--api-key-file FILE, or set CARETWAY_API_KEY; or listen on 127.0.0.1.",
        )
    names = frozenset(name.lower().rstrip(".") for name in (*hosts, host) if name)
    local = (digest_of(local_key),) if local_key else ()
    return Access(names, frozenset(origin.lower().rstrip("/") for origin in origins), known, local)


def admit(
    access: Access,
    scheme: str,
    headers: Mapping[str, str],
    *,
    keyless: bool = False,
    named: Named | None = None,
    now: float = 0.0,
) -> Admitted:
    """Admit the request or raise GatewayError. Header names are in lower case. `keyless`: the path needs no key.
    `named`: None if there never was a named key; `now` is for their expiry."""
    host = headers.get("host")
    if host is not None and not host_allowed(host, access.hosts):
        raise GatewayError(
            ErrorKind.FORBIDDEN,
            "This gateway is not known by the name in the Host header.",
            hint="Use localhost or an IP address, or add the name to `allowed_hosts`.",
            code="host_not_allowed",
        )
    answer = _cors(access, scheme, headers)
    if keyless or (not access.keys and named is None):
        return Admitted("", answer) if answer else _ANYBODY
    caller, owner = _caller(access, named or {}, headers, now)
    return Admitted(caller, answer, owner)


def preflight(access: Access, scheme: str, headers: Mapping[str, str]) -> tuple[Header, ...] | None:
    """The response to a CORS preflight; None if this OPTIONS is not a preflight. Raises GatewayError."""
    if "origin" not in headers or "access-control-request-method" not in headers:
        return None
    admitted = admit(access, scheme, headers, keyless=True)  # browsers send no key here
    wanted = headers.get("access-control-request-headers", "*")
    answer = [
        *admitted.headers,
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", wanted.encode("latin-1")),
        (b"access-control-max-age", _PREFLIGHT_AGE_S),
    ]
    if headers.get("access-control-request-private-network") == "true":
        answer.append((b"access-control-allow-private-network", b"true"))
    return tuple(answer)


# ---- Host


def host_allowed(host: str, names: frozenset[str]) -> bool:
    """True for addresses and known names: a name can be rebound to another machine, an address cannot."""
    if len(host) > _REMEMBERED_CHARS:
        return _allowed(host, names)
    return _allowed_before(host, names)


def _allowed(host: str, names: frozenset[str]) -> bool:
    name = host_name(host)
    if name is None:
        return False
    return ANY in names or name in names or name == "localhost" or name.endswith(".localhost") or _address(name)


_allowed_before: Final = lru_cache(maxsize=64)(_allowed)
"""Nearly all requests carry the same few names. Invented names fall out of the cache."""
_REMEMBERED_CHARS: Final = 128


def host_name(host: str) -> str | None:
    """The name or address in a Host header, in lower case; None if it is malformed."""
    if not host or any(c in host for c in " \t/@\\?#,"):
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    return parts.hostname.rstrip(".") if parts.hostname else None


def _address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def reachable_from_outside(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() != "localhost"


# ---- Origin


def _cors(access: Access, scheme: str, headers: Mapping[str, str]) -> tuple[Header, ...]:
    origin = headers.get("origin")
    if origin is None:
        # Pages can fetch images and scripts without an Origin; then browsers send Sec-Fetch-Site.
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            raise _foreign_page()
        return ()
    if origin.lower() == f"{scheme}://{headers.get('host', '')}".lower():
        return ()  # the gateway's own page
    if ANY not in access.origins and origin.lower().rstrip("/") not in access.origins:
        raise _foreign_page()
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"*"),
        (b"vary", b"origin"),
    )


def _foreign_page() -> GatewayError:
    return GatewayError(
        ErrorKind.FORBIDDEN,
        "Web pages may not use this gateway.",
        hint="If you trust this page, add its origin to `allowed_origins`.",
        code="origin_not_allowed",
    )


# ---- key


def new_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(32)


def sent_keys(headers: Mapping[str, str]) -> tuple[str, ...]:
    """All keys that a request carries: the SDKs of both APIs have their own header, and some send both."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    found = [headers[name].strip() for name in _KEY_HEADERS if name in headers]
    if scheme.lower() == "bearer":
        found.append(bearer.strip())
    return tuple(key for key in found if key)


def is_key(access: Access, key: str, named: Named | None = None) -> bool:
    """True for a key of this gateway."""
    digest = digest_of(key)
    return bool(_match((*access.keys, *access.local), digest)) or digest in (named or {})


def _caller(access: Access, named: Named, headers: Mapping[str, str], now: float) -> tuple[str, str]:
    """Returns the caller's name and the owner of its responses."""
    sent = sent_keys(headers)
    old: NamedKey | None = None
    for key in sent:
        digest = digest_of(key)
        if match := _match((*access.keys, *access.local), digest):
            return "" if match in access.local else match.hex()[:12], match.hex()[:12]
        if (found := named.get(digest)) is not None:
            if not found.expired(now):
                return found.name, found.id
            old = found
    if old is not None:
        raise GatewayError(
            ErrorKind.ACCESS_DENIED,
            f"The key {old.name} has expired.",
            hint=f"The administrator makes another one: caretway key revoke {old.name}, then caretway key new "
            f"--name {old.name}.",
            code="key_expired",
        )
    raise GatewayError(
        ErrorKind.ACCESS_DENIED,
        "The gateway's key is wrong." if sent else "This gateway requires a key.",
        hint=OWN_KEY,
    )


def _match(known: tuple[bytes, ...], digest: bytes) -> bytes:
    """The matching digest, or nothing. Compares with all digests in constant time, so that timing reveals neither a
    prefix of a key nor which key it is. Named keys, possibly hundreds, are looked up by digest: a key whose digest is
    close to another digest cannot be made."""
    match = b""
    for candidate in known:
        if hmac.compare_digest(digest, candidate):
            match = candidate
    return match
