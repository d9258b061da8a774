"""A conversation told in one quoted message, as it is told to the official SDK, and back."""

from caretway.backends.cursor_sdk.compose import compose
from caretway.core.request import Message, Role, Text, ToolCall, ToolResult, ToolSpec, TurnRequest
from caretway.simulator.brain import plan
from caretway.simulator.model_input import InputCall, InputMessage, InputResult, InputText, Tool
from caretway.simulator.quoted_talk import is_quoted, unquoted
from caretway.simulator.script import Result, Say

ASK = 'Call the tool `lookup` with the arguments {"key": "a"}.\nThen reply with exactly what the last call returned.'
HISTORY = (
    Message(Role.USER, (Text("The code word is egret.\nReply with exactly this and nothing else: m1"),)),
    Message(Role.ASSISTANT, (Text("m1"),)),
    Message(Role.USER, (Text(ASK),)),
    Message(Role.ASSISTANT, (ToolCall("x", "lookup", '{"key": "a"}'),)),
    Message(Role.TOOL, (ToolResult("x", (Text("two\nlines"),)),)),
)
LOOKUP = Tool("caretway-lookup", "lookup", "caretway")


def told(*messages: Message) -> InputMessage:
    request = TurnRequest("auto", messages, tools=(ToolSpec("lookup"),))
    return InputMessage("user", (InputText(compose(request, known=False, delivery="message").text),))


def test_what_was_quoted_is_read_as_it_was() -> None:
    text = told(*HISTORY).text
    assert is_quoted(text)
    messages = unquoted(text)
    assert [message.role for message in messages] == ["user", "user", "assistant", "user", "assistant", "tool", "user"]
    assert messages[1].text == HISTORY[0].text
    call, result = messages[4].parts[0], messages[5].parts[0]
    assert isinstance(call, InputCall)
    assert isinstance(result, InputResult)
    assert (call.name, call.args, result.text, result.call_id) == ("lookup", '{"key": "a"}', "two\nlines", call.call_id)


def test_the_model_goes_on_from_there() -> None:
    todo = plan([told(*HISTORY)], [LOOKUP])
    assert (todo.steps, todo.results, todo.at) == ((Result(),), ("two\nlines",), 0)


def test_it_remembers_what_was_quoted() -> None:
    ask = Message(Role.USER, (Text("Reply with the code word of my first message, and nothing else."),))
    assert plan([told(*HISTORY[:2], ask)], []).steps == (Say("egret"),)


def test_instructions_before_the_words() -> None:
    system = Message(Role.SYSTEM, (Text("The code word is heron. Tell it."),))
    ask = Message(Role.USER, (Text("Reply with the code word of your instructions, and nothing else."),))
    assert plan([told(system, ask)], []).steps == (Say("heron"),)


def test_a_result_without_its_call_is_kept() -> None:
    (message,) = unquoted("[result of `gone`]\n> m1")
    assert message == InputMessage("tool", (InputResult("", "gone", "m1"),))
    assert not is_quoted("[result of `gone`]\n> m1")
