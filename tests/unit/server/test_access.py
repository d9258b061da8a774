"""Who may come in: decided from headers alone."""

import itertools

import pytest

from caretway.config.secrets import check_key, read_keys
from caretway.core.errors import ErrorKind, GatewayError
from caretway.observe.redact import Redactor
from caretway.server.access import (
    OWN_KEY,
    SEND_KEY,
    Access,
    Admission,
    CallerLimits,
    access_for,
    admit,
    host_allowed,
    host_name,
    is_key,
    new_key,
    preflight,
    reachable_from_outside,
)
from caretway.usage.key_file import NamedKey, digest_of


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(admission: Admission, caller: str) -> GatewayError | None:
    try:
        admission.ask(caller)
        admission.enter(caller)
    except GatewayError as error:
        return error
    admission.leave(caller)
    return None


def test_a_bucket_fills_up_again() -> None:
    clock = Clock()
    admission = Admission(CallerLimits(concurrent=9, per_minute=30), clock)
    assert [refused(admission, "a") for _ in range(30)] == [None] * 30
    error = refused(admission, "a")
    assert error is not None
    assert (error.kind, error.code, error.retry_after) == (ErrorKind.RATE_LIMITED, "too_many_requests", 2.0)
    assert refused(admission, "b") is None
    clock.now += 2.0
    assert refused(admission, "a") is None
    assert refused(admission, "a") is not None
    clock.now += 3600
    assert [refused(admission, "a") is None for _ in range(31)] == [True] * 30 + [False]


def test_what_is_being_made_is_counted_and_given_back() -> None:
    admission = Admission(CallerLimits(concurrent=2, per_minute=1000), Clock())
    admission.ask("a")
    admission.enter("a")
    admission.ask("a")
    admission.enter("a")
    error = refused(admission, "a")
    assert error is not None
    assert error.code == "too_many_concurrent_requests"
    assert refused(admission, "b") is None
    admission.leave("a")
    assert refused(admission, "a") is None


def test_who_has_no_key_is_not_counted() -> None:
    admission = Admission(CallerLimits(concurrent=1, per_minute=1), Clock())
    assert not any(refused(admission, "") for _ in itertools.repeat(None, 50))


KEY, OTHER = "cw-0123456789abcdef", "cw-fedcba9876543210"
OPEN = access_for("127.0.0.1", ())
LOCKED = access_for("127.0.0.1", (KEY, OTHER), ["Box.Example."], ["https://App.example/"])


def refusal(access: Access, **headers: str) -> tuple[ErrorKind, str | None]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with pytest.raises(GatewayError) as caught:
        admit(access, "http", named)
    assert KEY not in str(caught.value)
    return caught.value.kind, caught.value.code


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:80", "localhost"),
        ("localhost.", "localhost"),
        ("[::1]:8", "::1"),
        ("127.0.0.1:32124", "127.0.0.1"),
        ("a:b", None),
        ("a:99999", None),
        ("", None),
        ("a b", None),
        ("user@localhost", None),
        ("localhost/evil", None),
        ("localhost,evil", None),
        ("[::1", None),
    ],
)
def test_the_name_in_a_host_header(host: str, name: str | None) -> None:
    assert host_name(host) == name
    assert host_allowed(host, frozenset()) is (name is not None)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "xlocalhost", "127.0.0.1.nip.io", "0x7f.1", f"{'a' * 300}.example"],
)
def test_names_must_be_known(host: str) -> None:
    assert not host_allowed(host, frozenset({"box.example"}))
    assert host_allowed(host, frozenset({"*"}))
    assert refusal(OPEN, host=host) == (ErrorKind.FORBIDDEN, "host_not_allowed")


def test_configured_names_and_clients_without_a_host() -> None:
    assert host_allowed("BOX.example:8080", LOCKED.hosts)
    assert admit(OPEN, "http", {}).caller == ""


@pytest.mark.parametrize(
    ("host", "outside"),
    [
        ("127.0.0.1", False),
        ("127.8.8.8", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("::", True),
        ("192.168.1.2", True),
        ("box", True),
    ],
)
def test_off_loopback_only_with_a_key(host: str, outside: bool) -> None:
    assert reachable_from_outside(host) is outside
    assert access_for(host, (KEY,)).keys
    if outside:
        with pytest.raises(GatewayError, match="no key is set"):
            access_for(host, ())
    else:
        assert not access_for(host, ()).keys


def test_keys() -> None:
    mine = admit(LOCKED, "http", {"authorization": f"bearer {KEY}"}).caller
    theirs = admit(LOCKED, "http", {"x-api-key": OTHER}).caller
    assert mine
    assert theirs
    assert mine != theirs
    assert KEY not in mine
    assert admit(LOCKED, "http", {"x-caretway-key": KEY, "authorization": "Bearer cursor"}).caller == mine
    assert refusal(LOCKED) == (ErrorKind.ACCESS_DENIED, None)
    assert refusal(LOCKED, authorization=f"Basic {KEY}") == (ErrorKind.ACCESS_DENIED, None)
    assert refusal(LOCKED, x_api_key=KEY[:-1]) == (ErrorKind.ACCESS_DENIED, None)
    assert refusal(LOCKED, x_api_key="\u00fc") == (ErrorKind.ACCESS_DENIED, None)
    assert admit(LOCKED, "http", {}, keyless=True).caller == ""
    assert is_key(LOCKED, KEY)
    assert not is_key(LOCKED, "cursor-key")
    assert KEY not in repr(LOCKED)


def test_new_keys_fit_the_rules() -> None:
    assert len({new_key() for _ in range(50)}) == 50
    assert check_key(new_key()).startswith("cw-")
    assert read_keys(f"# mine\n{KEY}\r\n\n  {OTHER}  \n") == (KEY, OTHER)
    for text in ("", "# nothing\n", "short", "with some spaces in it", "zw\u00f6lf-zeichen-und-mehr"):
        with pytest.raises(ValueError) as problem:
            read_keys(text)
        assert not text or text not in str(problem.value)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "https://127.0.0.1:1", "host": "127.0.0.1:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "sec_fetch_mode": "cors"},
    ],
)
def test_pages_that_are_refused(headers: dict[str, str]) -> None:
    assert refusal(LOCKED, x_api_key=KEY, **headers) == (ErrorKind.FORBIDDEN, "origin_not_allowed")


def test_pages_that_are_served() -> None:
    told = admit(LOCKED, "http", {"x-api-key": KEY, "origin": "https://app.EXAMPLE"}).headers
    assert (b"access-control-allow-origin", b"https://app.EXAMPLE") in told
    assert (b"vary", b"origin") in told
    own = {"x-api-key": KEY, "origin": "http://127.0.0.1:1", "host": "127.0.0.1:1", "sec-fetch-site": "same-origin"}
    assert admit(LOCKED, "http", own).headers == ()
    everyone = access_for("127.0.0.1", (), (), ["*"])
    assert admit(everyone, "http", {"origin": "https://any.example"}).headers


def test_a_browser_that_asks_first() -> None:
    page = {"origin": "https://app.example", "access-control-request-method": "POST"}
    assert preflight(LOCKED, "http", page)
    assert preflight(LOCKED, "http", {"origin": "https://app.example"}) is None
    with pytest.raises(GatewayError):
        preflight(LOCKED, "http", page | {"origin": "https://evil.example"})
    with pytest.raises(GatewayError):
        preflight(LOCKED, "http", page | {"host": "evil.example"})


# ---- keys with a name


def test_a_named_key_is_its_name_and_may_expire() -> None:
    named = {digest_of(KEY): NamedKey("k1", "anna", digest_of(KEY).hex(), 0.0, expires_at=100.0)}
    sent = {"authorization": f"Bearer {KEY}"}
    admitted = admit(OPEN, "http", sent, named=named, now=99.0)
    assert (admitted.caller, admitted.owner) == ("anna", "k1"), "a key of the same name that is made later is another"
    with pytest.raises(GatewayError) as caught:
        admit(OPEN, "http", sent, named=named, now=100.0)
    assert (caught.value.kind, caught.value.code) == (ErrorKind.ACCESS_DENIED, "key_expired")
    assert is_key(OPEN, KEY, named) and not is_key(OPEN, OTHER, named)


def test_where_all_named_keys_are_revoked_nobody_comes_in() -> None:
    for sent in ({}, {"x-api-key": KEY}):
        with pytest.raises(GatewayError):
            admit(OPEN, "http", sent, named={})
    assert admit(OPEN, "http", {}, named={}, keyless=True).caller == ""


def test_the_local_key_counts_where_a_key_is_asked_for() -> None:
    access = access_for("127.0.0.1", (), local_key=OTHER)
    sent = {"x-api-key": OTHER}
    assert admit(access, "http", sent).caller == ""
    assert admit(access, "http", {}).caller == "", "alone it closes nothing"
    admitted = admit(access, "http", sent, named={})
    assert (admitted.caller, admitted.owner) == ("", digest_of(OTHER).hex()[:12])
    both = access_for("127.0.0.1", (OTHER,), local_key=OTHER)
    assert admit(both, "http", sent).caller == ""


@pytest.mark.parametrize("hint", [OWN_KEY, SEND_KEY])
def test_what_to_do_about_a_key_can_be_read_in_the_log(hint: str) -> None:
    assert Redactor([]).text(hint) == hint
