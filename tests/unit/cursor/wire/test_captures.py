"""Every recorded message against our generated classes: nothing unknown that we do not know of, nothing lost."""

from collections.abc import Iterator
from typing import Final

import pytest
from google.protobuf import unknown_fields
from google.protobuf.message import Message

from caretway.cursor.wire import paths
from caretway.cursor.wire.blobs import blob_id
from caretway.cursor.wire.messages import ai, pb

from .recordings import CAPTURES, NAMES, Row, messages, rows

CLASSES: Final[dict[str, type[Message]]] = {
    "agent.v1.AgentClientMessage": pb.AgentClientMessage,
    "agent.v1.AgentServerMessage": pb.AgentServerMessage,
}

LEFT_OUT: Final = {
    ("agent.v1.RequestContext", 9): "a sentence about the SDK's notes directory; the gateway keeps no notes",
    ("agent.v1.RequestContext", 26): "the word `enabled`; which feature it names is not established",
    ("agent.v1.RequestContext", 27): "the word `enabled` again",
    ("agent.v1.RequestContext", 32): "a flag, always 1; what it says is not established",
    ("agent.v1.RequestContextEnv", 8): "the path of the SDK's notes directory",
    ("agent.v1.RequestContextEnv", 14): "a flag that was 0 in every recording",
    ("agent.v1.RequestContextEnv", 19): "a flag that was 0 in every recording",
    ("agent.v1.RequestContextEnv", 20): "a flag that was 0 in every recording",
    ("agent.v1.RequestContextEnv", 22): "a flag that was 0 in every recording",
    ("agent.v1.ShellFailure", 12): "a number a little below execution_time, so probably a second duration",
    ("agent.v1.ShellResult", 101): "a message {1: 1}; what it says is not established",
    ("agent.v1.ShellStreamStart", 1): "the same message {1: 1}, in the streaming form",
}
"""Fields that the official client sends and our .proto does not name, each with a reason. They survive a round trip."""

MESSAGES: Final = list(messages())


def of(recording: str) -> list[Row]:
    return [row for row in MESSAGES if row.recording == recording]


def parse(row: Row) -> Message:
    assert row.payload is not None
    return CLASSES[row.type].FromString(row.payload)


def tree(message: Message) -> Iterator[Message]:
    """The message and every message inside it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = [item for item in value.values() if isinstance(item, Message)]
        else:
            inner = [value] if isinstance(value, Message) else list(value)
        for item in inner:
            yield from tree(item)


def unknown(message: Message) -> set[tuple[str, int]]:
    return {
        (part.DESCRIPTOR.full_name, field.field_number)
        for part in tree(message)
        for field in unknown_fields.UnknownFieldSet(part)  # type: ignore[attr-defined]  # missing in the type stubs
    }


def kind_of(message: Message) -> str:
    """The oneof names on the way down, as the recorder wrote them."""
    name = message.WhichOneof("message")
    assert name is not None
    inner = getattr(message, name)
    below = inner.WhichOneof("message") if "message" in inner.DESCRIPTOR.oneofs_by_name else None
    return f"{name}.{below}" if below else name


def test_there_are_recordings() -> None:
    assert len(NAMES) == 10
    assert len(MESSAGES) == 900
    described = (CAPTURES / "README.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in described] == []


def test_secrets_are_masked() -> None:
    secret = ("authorization", "cookie", "x-blob-encryption-key")
    seen = {
        row.headers[name] for recording in NAMES for row in rows(recording) for name in secret if name in row.headers
    }
    assert seen == {"<masked>"}


@pytest.mark.parametrize("recording", NAMES)
def test_every_field_is_known(recording: str) -> None:
    strangers = {str(row): unknown(parse(row)) - LEFT_OUT.keys() for row in of(recording)}
    assert {place: fields for place, fields in strangers.items() if fields} == {}


def test_every_exception_is_needed() -> None:
    assert set().union(*(unknown(parse(row)) for row in MESSAGES)) == LEFT_OUT.keys()


@pytest.mark.parametrize("recording", NAMES)
def test_round_trip(recording: str) -> None:
    for row in of(recording):
        message = parse(row)
        again = type(message).FromString(message.SerializeToString())
        assert again == message, row
        assert unknown(again) == unknown(message), row
        assert message.ByteSize() == len(row.payload or b""), f"{row}: something was dropped, added or widened"


@pytest.mark.parametrize("recording", NAMES)
def test_kind(recording: str) -> None:
    """The recorder named each message with its own schema; ours must find the same oneof."""
    assert [kind_of(parse(row)) for row in of(recording)] == [row.kind for row in of(recording)]


@pytest.mark.parametrize("recording", NAMES)
def test_blob_ids_are_sha256(recording: str) -> None:
    written = [
        pb.AgentServerMessage.FromString(row.payload or b"").kv_server_message.set_blob_args
        for row in of(recording)
        if row.kind == "kv_server_message.set_blob_args"
    ]
    assert written
    assert [args.blob_id.hex() for args in written] == [blob_id(args.blob_data).hex() for args in written]


CALLED: Final = {
    paths.EXCHANGE_KEY: paths.JSON_TYPE,
    paths.PRIVACY_MODE: paths.UNARY_TYPE,
    paths.SERVER_CONFIG: paths.UNARY_TYPE,
    paths.TEAM_SETTINGS: paths.UNARY_TYPE,
    paths.TEAM_REPOS: paths.UNARY_TYPE,
    paths.BIDI_APPEND: paths.UNARY_TYPE,
    paths.RUN_SSE: paths.STREAM_TYPE,
    paths.RUN: paths.STREAM_TYPE,
}
"""Where the official client calls, and with which content type. Model list and telemetry are left aside."""


@pytest.mark.parametrize(("path", "content_type"), CALLED.items())
def test_paths_and_content_types(path: str, content_type: str) -> None:
    calls = [row for name in NAMES for row in rows(name) if row.client and row.path == path and row.headers]
    assert calls
    assert {row.headers["content-type"] for row in calls} == {content_type}


def test_privacy_mode_and_server_config() -> None:
    bodies = {(row.path, row.client): row for name in NAMES for row in rows(name) if row.payload is not None}
    asked = bodies[paths.PRIVACY_MODE, True].payload
    assert ai.GetUserPrivacyModeRequest.FromString(asked or b"").inferred_privacy_mode == 1
    configs = {
        row.recording.rpartition("-")[2]: ai.GetServerConfigResponse.FromString(row.payload or b"").http2_config
        for name in NAMES
        for row in rows(name)
        if row.path == paths.SERVER_CONFIG and not row.client
    }
    forced = ai.GetServerConfigResponse.HTTP2_CONFIG_FORCE_BIDI_ENABLED
    assert configs == {"h1": 0, "h2": forced}, "our answer is what makes the official client choose its transport"
