"""The prompt side: what is injected when, how the history is told, and that foreign words stay foreign."""

import json
from dataclasses import replace

import pytest
from msgspec import structs

from caretway.backends.text_protocol.parser import TextLimits
from caretway.backends.text_protocol.prompt import (
    HINT,
    THINKING_RULES,
    Manner,
    demand_tools,
    mentions,
    prepare,
    quote,
    quote_json,
    quote_lines,
)
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import Image, Message, Role, Text, ToolCall, ToolChoice, ToolResult, ToolSpec, TurnRequest

T = "<<CALL_abcd1234>>"
TAGS = Manner(T)
TRANSCRIPT = Manner(T, "transcript")
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "reads a file", SCHEMA)
LIST = ToolSpec("list", "lists </function_list> files")


def said(role: Role, text: str) -> Message:
    return Message(role, (Text(text),))


def result(call_id: str, text: str, *, is_error: bool = False) -> Message:
    return Message(Role.TOOL, (ToolResult(call_id, (Text(text),), is_error),))


HISTORY = (
    said(Role.SYSTEM, "Be brief."),
    said(Role.USER, "What is in x?"),
    Message(Role.ASSISTANT, (Text("I look."), ToolCall("c1", "read", '{"path":"x"}'), ToolCall("c2", "list", ""))),
    result("c2", "x y"),
    result("c1", "gone", is_error=True),
)


def ask(*messages: Message, **more: object) -> TurnRequest:
    return structs.replace(TurnRequest("m", messages or HISTORY, (READ, LIST)), **more)


def texts(request: TurnRequest) -> list[tuple[str, str]]:
    assert not request.tools
    return [(message.role.value, message.text) for message in request.messages]


@pytest.mark.seed("F18")
def test_the_instructions_hold_format_tools_and_permission() -> None:
    system = prepare(ask(), TAGS).system
    assert system.startswith("Be brief.\n\n<tool_bridge>")
    assert f'\n{T}\n<invoke name="tool_name">{{"argument": "value"}}</invoke>\n' in system
    assert "executes them on its side" in system and "even where you believe that you are read-only" in system
    listed = system[system.index("<function_list>") + len("<function_list>") : system.index("</function_list>")]
    functions = [json.loads(line) for line in listed.strip().splitlines()]
    assert functions == [
        {"name": "read", "description": "reads a file", "parameters": SCHEMA},
        {"name": "list", "description": "lists </function_list> files", "parameters": {"type": "object"}},
    ]
    assert "must call" not in system


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (ToolChoice("required"), "you must call at least one of the tools"),
        (ToolChoice("named", "read"), 'you must call the tool "read", and no other'),
        (ToolChoice(parallel=False), "Make at most one call"),
    ],
)
def test_what_the_choice_adds(choice: ToolChoice, told: str) -> None:
    assert told in prepare(ask(tool_choice=choice), TAGS).system


@pytest.mark.seed("F15")
def test_nothing_is_injected_for_none() -> None:
    told = prepare(ask(tool_choice=ToolChoice("none")), TAGS)
    assert told.system == "Be brief."
    assert T not in "".join(text for _, text in texts(told))
    assert '[Called tool: read({"path":"x"})]' in told.messages[2].text


@pytest.mark.seed("F19", "F26", "G02", "G03")
def test_the_history_in_tags() -> None:
    assert texts(prepare(ask(), TAGS))[1:] == [
        ("user", "What is in x?"),
        ("assistant", f'I look.\n{T}\n<invoke name="read">{{"path":"x"}}</invoke>\n<invoke name="list">{{}}</invoke>'),
        (
            "user",
            "\n\n".join(
                [
                    '<tool_result id="c1" name="read" error="true">\ngone\n</tool_result>',
                    '<tool_result id="c2" name="list">\nx y\n</tool_result>',
                ]
            ),
        ),
    ]


@pytest.mark.seed("G01")
def test_the_history_as_a_transcript() -> None:
    told = texts(prepare(ask(*HISTORY, said(Role.USER, "And now?")), TRANSCRIPT))
    assert len(told) == 1 and told[0][0] == "user"
    text = told[0][1]
    assert text.startswith("System: Be brief.\n\n<tool_bridge>")
    assert text.endswith(
        "</tool_bridge>\n\n"
        "User: What is in x?\n\n"
        'Assistant: I look.\n[Called tool: read({"path":"x"})]\n[Called tool: list({})]\n\n'
        "[Tool result for c2]: x y\n\n"
        "[Tool result for c1]: (failed) gone\n\n"
        "User: And now?"
    )


@pytest.mark.seed("G05")
def test_plain_chat_is_left_alone() -> None:
    messages = (said(Role.SYSTEM, "s <invoke>"), said(Role.USER, "u </tool_result>"))
    request = TurnRequest("m", messages)
    assert prepare(request, TAGS) == request
    alone = TurnRequest("m", messages[1:])
    assert prepare(alone, TRANSCRIPT) == alone


@pytest.mark.seed("G04")
@pytest.mark.parametrize("manner", [TAGS, TRANSCRIPT])
def test_thinking_is_asked_for_in_the_system_text_and_after_each_user_message(manner: Manner) -> None:
    messages = (said(Role.USER, "one"), said(Role.ASSISTANT, "two"), said(Role.USER, "three"))
    told = prepare(TurnRequest("m", messages), replace(manner, thinking=True))
    text = "\n".join(text for _, text in texts(told))
    assert text.count(HINT) == 2 and text.count(THINKING_RULES) == 1
    assert "tool_bridge" not in text
    hint = "Use <thinking>...</thinking> for hidden reasoning when it helps."
    assert [0 <= text.find(hint, text.index(word)) - text.index(word) < 20 for word in ("one", "three")] == [True, True]
    assert text.index(THINKING_RULES) < text.index("one"), "the rules come first"
    assert hint not in text[text.index("two") : text.index("three")]


@pytest.mark.parametrize("manner", [TAGS, TRANSCRIPT])
def test_a_remembered_conversation_hears_only_what_is_new(manner: Manner) -> None:
    messages = (*HISTORY, said(Role.ASSISTANT, "Nothing."), said(Role.USER, "And y?"))
    told = prepare(ask(*messages, tool_choice=ToolChoice("required")), replace(manner, continued=True))
    last = told.messages[-1]
    assert last.role is Role.USER
    assert f"The trigger for your next reply is {T}." in last.text
    assert "must call" in last.text and "And y?" in last.text
    assert "function_list" not in last.text
    if manner is TAGS:
        assert told.messages[:-1] == messages[:-1]  # the backend drops them: they are remembered
    else:
        assert len(told.messages) == 1 and "Nothing." not in last.text


def test_images_ride_along() -> None:
    picture = Image(b"png", "image/png")
    shown = Message(Role.USER, (Text("see"), picture))
    given = Message(Role.TOOL, (ToolResult("c1", (Text("shot"), picture)),))
    told = prepare(ask(shown, HISTORY[2], given), TAGS)
    assert [message.parts[1:] for message in told.messages[1:]] == [(picture,), (), (picture,)]


def test_a_trigger_that_somebody_knows_is_found() -> None:
    for message in (said(Role.USER, f"x {T}"), result("c", T), Message(Role.ASSISTANT, (ToolCall("c", "n", T),))):
        assert mentions(TurnRequest("m", (message,)), T)
    assert mentions(TurnRequest("m", (), (ToolSpec("t", T),)), T)
    assert not mentions(ask(), T)


def test_tools_that_are_too_large_are_refused() -> None:
    with pytest.raises(GatewayError) as refused:
        prepare(ask(), replace(TAGS, limits=TextLimits(max_tools_chars=50)))
    assert (refused.value.kind, refused.value.param) == (ErrorKind.BAD_REQUEST, "tools")


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("<invoke name", "<\\invoke name"),
        ("</INVOKE>", "<\\/INVOKE>"),
        ("</tool_result>", "<\\/tool_result>"),
        ("<tool_bridge><function_list>", "<\\tool_bridge><\\function_list>"),
        ("<<CALL_abcd1234>>", "<<\\CALL_abcd1234>>"),
        ("<\\invoke", "<\\\\invoke"),
        ("<invoker> <b> a < b", "<invoker> <b> a < b"),
    ],
)
def test_quoting(text: str, quoted: str) -> None:
    assert quote(text) == quoted


def test_quoting_of_lines() -> None:
    text = "User: hi\nassistant: x\n[Tool result for 1]: y\n\\User: z\nno User: here"
    assert quote_lines(text) == "\\User: hi\n\\assistant: x\n\\[Tool result for 1]: y\n\\\\User: z\nno User: here"


def test_quoting_inside_json_changes_nothing() -> None:
    text = json.dumps({"a": "</invoke><<CALL_x>><b>"})
    quoted = quote_json(text)
    assert "</invoke" not in quoted and "<<CALL_" not in quoted and "<b>" in quoted
    assert json.loads(quoted) == json.loads(text)
    assert quote_json("no </invoke>") == "no <\\/invoke>"


@pytest.mark.seed("F23")
@pytest.mark.parametrize(
    ("choice", "after"),
    [
        (ToolChoice(parallel=False), ToolChoice("required", parallel=False)),
        (ToolChoice("none"), ToolChoice("none")),
        (ToolChoice("named", "read"), ToolChoice("named", "read")),
    ],
)
def test_strict_demands_what_was_only_offered(choice: ToolChoice, after: ToolChoice) -> None:
    request = ask(said(Role.USER, "And now?"), tool_choice=choice)
    assert demand_tools(request).tool_choice == after
    assert demand_tools(structs.replace(request, tools=())).tool_choice == request.tool_choice


@pytest.mark.seed("F23")
@pytest.mark.parametrize("more", [(), (said(Role.SYSTEM, "A reminder."),), (said(Role.USER, "Hurry."),)])
def test_strict_demands_nothing_of_the_answer_to_results(more: tuple[Message, ...]) -> None:
    request = ask(*HISTORY, *more)
    assert demand_tools(request) == request
