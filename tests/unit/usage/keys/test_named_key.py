"""Keys with a name, as values."""

import pytest
from msgspec.structs import replace

from caretway.core.errors import ErrorKind, GatewayError
from caretway.usage.key_file import (
    MAX_KEYS,
    Keys,
    NamedKey,
    added,
    digest_of,
    dump,
    find,
    load,
    renamed,
    revoked,
)

KEY = "cw-0123456789abcdef"
ANNA: Keys = added((), KEY, "anna", 10.0)


def refusal(keys: Keys, name: str) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        added(keys, "cw-another-key-of-the-gateway", name, 10.0)
    return caught.value


@pytest.mark.parametrize("name", ["a", "opencode", "ci.bot", "anna@laptop", "A-1_b", "x" * 40])
def test_names(name: str) -> None:
    assert added((), KEY, name, 10.0)[0].name == name


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", ".a", "ä", "x" * 41, "a\n", "a/b", "a,b"])
def test_names_that_are_none(name: str) -> None:
    assert refusal((), name).kind is ErrorKind.BAD_REQUEST


def test_a_name_is_given_once_whatever_its_case() -> None:
    assert "already" in refusal(ANNA, "ANNA").message
    with pytest.raises(GatewayError, match="already"):
        renamed(added(ANNA, "cw-x", "bob", 1.0), "bob", "Anna")
    assert renamed(ANNA, "anna", "Anna")[0].name == "Anna"


def test_a_renamed_key_is_the_same_key() -> None:
    (before,), (after,) = ANNA, renamed(ANNA, "anna", "bob")
    assert (after.id, after.digest, after.name) == (before.id, before.digest, "bob")
    assert renamed(ANNA, "anna", "anna") == ANNA


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    for attempt in (lambda: revoked(ANNA, "bob"), lambda: renamed(ANNA, "bob", "eve"), lambda: find(ANNA, "bob")):
        with pytest.raises(GatewayError, match=r"There is no key named bob\.") as caught:
            attempt()
        assert "anna" in caught.value.hint


def test_what_is_kept_is_the_digest() -> None:
    kept = dump(ANNA)
    assert KEY.encode() not in kept
    assert load(kept).keys == ANNA
    assert ANNA[0].digest == digest_of(KEY).hex()


def test_the_number_of_keys_is_limited() -> None:
    many = tuple(NamedKey(str(at), f"n{at}", "", 0.0) for at in range(MAX_KEYS))
    assert "1000" in refusal(many, "one.more").message


BROKEN = [
    b"",
    b"[]",
    b"{",
    b'{"version": 2, "keys": []}',
    b'{"version": 1, "more": ' + b"[" * 5000,
    b'{"version": 1, "keys": [{"id": "k", "name": "n", "digest": "zz", "made_at": 1}]}',
    b'{"version": 1, "keys": [{"id": "k", "name": "n", "digest": "00", "made_at": 1}]}',
    b'{"version": 1, "keys": [{"name": "n"}]}',
    dump(ANNA).replace(b'"anna"', b'"\\u001b[31m"'),
    dump((*ANNA, *ANNA)),
    dump((*ANNA, replace(ANNA[0], id="another", name="ANNA", digest="00" * 32))),
    dump((*ANNA, replace(ANNA[0], id="another", name="another"))),
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_that_is_none(text: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        load(text)


def test_fields_of_a_later_version_do_no_harm() -> None:
    more = dump(ANNA).replace(b'"name"', b'"colour": "red", "name"')
    assert load(more).keys == ANNA


def test_expiry() -> None:
    key = NamedKey("k", "n", "", 0.0, expires_at=100.0)
    assert not key.expired(99.9)
    assert key.expired(100.0)
    assert not NamedKey("k", "n", "", 0.0).expired(1e12)


@pytest.mark.parametrize(
    ("patterns", "model", "allowed"),
    [
        ((), "anything", True),
        (("claude-*",), "claude-4-sonnet", True),
        (("claude-*",), "gpt-5", False),
        (("GPT-5", "claude-*"), "gpt-5", True),
        (("gpt-5",), "gpt-5-codex", False),
    ],
)
def test_models_that_a_key_may_use(patterns: tuple[str, ...], model: str, allowed: bool) -> None:
    assert NamedKey("k", "n", "", 0.0, models=patterns).may_use(model) is allowed
