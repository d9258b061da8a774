"""Runs that are not served: what others saw refused, rule by rule, and the same with the rule switched off."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from caretway.cursor.wire.messages import pb
from caretway_sim import admission, faults
from caretway_sim.admission import (
    MAX_MESSAGE_BYTES,
    MAX_ROOTS,
    MAX_TOOLS,
    judge_message,
    judge_roots,
    judge_tools,
    refused,
)
from caretway_sim.catalogue import is_shipped
from caretway_sim.manners import CLASSIC, LIVE, Manners
from caretway_sim.model_input import Tool
from caretway_sim.start import merged, read_tools

CLAUDE, COMPOSER = "claude-sonnet-5-low", "composer-2.5[fast=true]"
PICTURE = {"type": "image", "image": "aGk=", "mimeType": "image/png"}
URI = {"type": "image", "image": "data:image/png;base64,aGk=", "mediaType": "image/png"}


def root(role: str, content: Any) -> bytes:
    return msgspec.json.encode({"role": role, "content": content})


def call(call_id: str) -> bytes:
    return root("assistant", [{"type": "tool-call", "toolCallId": call_id, "toolName": "t", "args": {}}])


def result(call_id: str) -> bytes:
    return root("tool", [{"type": "tool-result", "toolCallId": call_id, "toolName": "t", "result": "r"}])


WORDS = [{"type": "text", "text": "hi"}]
ROOTS: list[tuple[str, str, list[bytes], str | None, str]] = [
    ("R13 a string", CLAUDE, [root("user", "hi")], "late", "parts_only"),
    ("R13 a string, composer", COMPOSER, [root("user", "hi")], None, ""),
    ("R13 parts", CLAUDE, [root("user", WORDS), root("system", "a string")], None, ""),
    ("R4 a foreign id", CLAUDE, [call("a|b"), result("a|b")], "bare", "plain_ids_only"),
    ("R4 an id of ours", CLAUDE, [call("call_a-1"), result("call_a-1")], None, ""),
    ("R19 an orphan", CLAUDE, [root("user", WORDS), result("x")], "late", "pairs_only"),
    ("R19 a result before its call", CLAUDE, [result("x"), call("x")], "late", "pairs_only"),
    ("I1 bare base64", CLAUDE, [root("user", [PICTURE])], "picture", "pictures_as_uris"),
    ("I1 a data URI", CLAUDE, [root("user", [URI])], None, ""),
    ("L4 too many roots", CLAUDE, [root("user", WORDS)] * (MAX_ROOTS + 1), "late", "limits"),
    ("L4 enough roots", CLAUDE, [root("user", WORDS)] * 192, None, ""),
    ("L4 composer takes more", COMPOSER, [root("user", WORDS)] * 300, None, ""),
    ("not JSON", CLAUDE, [b"{", b"[]"], None, ""),
]


@pytest.mark.parametrize(("name", "model", "roots", "wanted", "switch"), ROOTS, ids=[row[0] for row in ROOTS])
def test_root_messages(name: str, model: str, roots: Sequence[bytes], wanted: str | None, switch: str) -> None:
    error = faults.SCRIPTED[wanted] if wanted else None
    assert judge_roots(roots, model, own=False, manners=LIVE) == error
    assert judge_roots(roots, model, own=False, manners=CLASSIC) is None
    if switch:
        off: Any = {switch: False}
        assert judge_roots(roots, model, own=False, manners=replace(LIVE, **off)) is None


def test_ids_of_a_checkpoint_are_the_servers_own() -> None:
    assert judge_roots([call("call-1\nfc_1"), result("call-1\nfc_1")], CLAUDE, own=True, manners=LIVE) is None
    request = pb.AgentRunRequest()
    assert not admission.from_checkpoint(request)
    request.conversation_state.token_details.used_tokens = 5
    assert admission.from_checkpoint(request)


def said(text: str) -> pb.AgentRunRequest:
    request = pb.AgentRunRequest()
    request.action.user_message_action.user_message.text = text
    return request


def test_l3_a_message_of_more_than_a_mebibyte() -> None:
    assert judge_message(said("x" * 850_000), LIVE) is None
    assert judge_message(said("x" * (MAX_MESSAGE_BYTES + 1)), LIVE) == faults.SCRIPTED["late"]
    assert judge_message(said("x" * (MAX_MESSAGE_BYTES + 1)), CLASSIC) is None


def definitions(count: int, chars: int = 0) -> list[pb.McpToolDefinition]:
    return [pb.McpToolDefinition(name=f"t{n}", description="x" * chars) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "chars", "fits"), [(MAX_TOOLS, 0, True), (MAX_TOOLS + 1, 0, False), (2, 70_000, False)]
)
def test_l2_too_many_tools(count: int, chars: int, fits: bool) -> None:
    offered = definitions(count, chars)
    error = judge_tools(offered, read_tools(offered), CLAUDE, LIVE)
    assert error == (None if fits else faults.SCRIPTED["late"])
    assert judge_tools(offered, read_tools(offered), CLAUDE, CLASSIC) is None


OPTIONAL = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer", "enum": [1, 2]}}}
TUPLE = {"type": "object", "properties": {"a": {"type": "array", "items": [{"type": "string"}]}}}
PREFIX = {"type": "object", "$defs": {"P": {"type": "array", "prefixItems": [{"type": "string"}]}}}
NAMED = {"type": "object", "properties": {"anyOf": {"type": "string"}, "items": {"type": "string", "enum": ["a"]}}}
TAKEN = {"type": "object", "properties": {"a": {"not": {"type": "null"}, "minimum": 1, "enum": [1]}}}


@pytest.mark.parametrize(
    ("schema", "family", "wanted"),
    [
        (OPTIONAL, "fable", "anyOf"),
        ({"type": "array", "items": OPTIONAL}, "fable", "anyOf"),
        ({"oneOf": []}, "fable", "oneOf"),
        ({"$defs": {"X": {"allOf": []}}}, "fable", "allOf"),
        (TAKEN, "fable", ""),
        (OPTIONAL, "gpt", ""),
        (OPTIONAL, "grok", ""),
        (NUMBERS, "grok", "enum"),
        (NUMBERS, "claude", ""),
        (TUPLE, "gemini", "items"),
        (PREFIX, "kimi", "items"),
        (NAMED, "fable", ""),
        (NAMED, "kimi", ""),
    ],
)
def test_l1_schemas(schema: dict[str, Any], family: Any, wanted: str) -> None:
    assert refused(schema, family) == wanted


def test_l1_one_schema_ends_the_run() -> None:
    tools = (Tool("a", "a"), Tool("b", "b", schema=OPTIONAL))
    assert judge_tools([], tools, "claude-fable-5-low", LIVE) == faults.SCRIPTED["schema"]
    assert judge_tools([], tools, "claude-fable-5-low", replace(LIVE, judges_schemas=False)) is None
    assert judge_tools([], tools, CLAUDE, LIVE) is None


@pytest.mark.parametrize(
    ("model", "counted", "manners", "wanted"),
    [
        ("composer-2.5[fast=false]", False, LIVE, True),
        ("composer-2.5[fast=true]", False, LIVE, False),
        ("composer-2.5[fast=false]", True, LIVE, False),
        ("composer-2.5[fast=false]", False, CLASSIC, False),
    ],
)
def test_r14_a_replay_that_is_resumed(model: str, counted: bool, manners: Manners, wanted: bool) -> None:
    request = pb.AgentRunRequest()
    request.action.resume_action.SetInParent()
    if counted:
        request.conversation_state.token_details.used_tokens = 1
    assert admission.empty_turn(request, model, manners) == wanted


def test_a3_a_stream_that_ends_without_a_frame() -> None:
    assert admission.ends_unheard(said("sim: say x\nsim: fail eof"))
    assert not admission.ends_unheard(said("sim: fail bare"))


def test_r17_a_switch_hides_tools_that_stand_in_one_place() -> None:
    one, two = definitions(2)
    assert merged([one], [two]) == [one, two]
    assert merged([one, two], [two], both=True) == [two]


@pytest.mark.parametrize(
    ("version", "known"),
    [("cli-2026.07.08-0c04a8a", True), ("sdk-python-1.1.0", True), ("caretway-0.1.0", False), ("0.48.5", False)],
)
def test_a1_versions(version: str, known: bool) -> None:
    assert is_shipped(version) == known
