"""What a request is for: the marks of clients, as Codex 0.169, Claude Code 2.1.328 and OpenCode 1.18 send them."""

import pytest

from caretway.core.request import Message, Role, Text, ToolSpec
from caretway.dialects.anthropic_messages import AnthropicMessages
from caretway.dialects.kinds import COMPACTION, SUBAGENT, TITLE, TURN, kind_of_request
from caretway.dialects.openai_chat import OpenAIChat
from caretway.dialects.openai_responses import ResponseStore, openai_responses

OPENAI_CHAT = OpenAIChat()
ANTHROPIC_MESSAGES = AnthropicMessages()

PROMPT = Message(Role.USER, (Text("Do it."),))
COMPACT = Message(Role.USER, (Text("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT use Read"),))
CODEX_SUMMARY = '{"thread_id":"t","request_kind":"compaction","window_number":0}'
CODEX_TITLE = '{"thread_id":"t","request_kind":"turn","thread_source":"thread_title","sandbox":"seccomp"}'
CODEX_TURN = '{"thread_id":"t","request_kind":"turn","subagent_kind":"thread_spawn"}'


def system(text: str) -> Message:
    return Message(Role.SYSTEM, (Text(text),))


@pytest.mark.parametrize(
    ("messages", "headers", "metadata", "expected"),
    [
        ((), {}, None, TURN),
        ((PROMPT,), {"x-claude-code-session-id": "s", "session-id": "s"}, None, TURN),
        ((PROMPT,), {"x-claude-code-agent-id": "a"}, None, SUBAGENT),
        ((PROMPT,), {"x-parent-session-id": "ses_1"}, None, SUBAGENT),
        ((PROMPT,), {"x-openai-subagent": "collab_spawn", "x-codex-turn-metadata": CODEX_TURN}, None, SUBAGENT),
        ((PROMPT,), {}, {"x-openai-subagent": "collab_spawn", "x-codex-turn-metadata": CODEX_TURN}, SUBAGENT),
        ((PROMPT,), {}, {"x-codex-turn-metadata": CODEX_TURN}, TURN),
        ((PROMPT,), {"x-codex-turn-metadata": CODEX_SUMMARY}, None, COMPACTION),
        ((PROMPT,), {"x-codex-turn-metadata": CODEX_TITLE}, None, TITLE),
        ((PROMPT,), {}, {"x-codex-turn-metadata": CODEX_TITLE}, TITLE),
        ((PROMPT,), {"x-openai-subagent": "review"}, {"x-codex-turn-metadata": CODEX_SUMMARY}, COMPACTION),
        ((PROMPT,), {}, {"x-codex-turn-metadata": 5, "x-openai-subagent": ""}, TURN),
        ((PROMPT,), {}, "no object", TURN),
        ((PROMPT, COMPACT), {}, None, COMPACTION),
        ((PROMPT, COMPACT), {"x-claude-code-agent-id": "a"}, None, COMPACTION),
        ((COMPACT, PROMPT), {}, None, TURN),
        ((PROMPT, COMPACT, system("15 tokens left")), {}, None, COMPACTION),
        ((Message(Role.USER, (Text("Result."), *COMPACT.parts)),), {}, None, COMPACTION),
        ((system("You are a title generator. You output"), PROMPT), {}, None, TITLE),
        ((system("You are a context summarization agent. You"), PROMPT), {}, None, COMPACTION),
        ((PROMPT, system("You are a title generator.")), {}, None, TURN),
    ],
)
def test_kinds(messages: tuple[Message, ...], headers: dict[str, str], metadata: object, expected: str) -> None:
    assert kind_of_request(messages, (), headers, metadata) == expected


def test_with_tools_it_is_no_title() -> None:
    assert kind_of_request((system("You are a title generator."), PROMPT), (ToolSpec("bash"),), {}) == TURN


def test_every_dialect_says_it() -> None:
    words = [{"role": "user", "content": "Do it."}]
    about = {"x-openai-subagent": "collab_spawn"}
    responses = openai_responses(ResponseStore())
    chat = OPENAI_CHAT.decode({"model": "m", "messages": words}, {"x-parent-session-id": "ses_1"})
    messages = ANTHROPIC_MESSAGES.decode(
        {"model": "m", "max_tokens": 9, "messages": words}, {"x-claude-code-agent-id": "a"}
    )
    spawned = responses.decode({"model": "m", "input": words, "client_metadata": about}, {})
    asked = responses.decode({"model": "m", "input": [*words, {"type": "compaction_trigger"}]}, {})
    assert [one.kind for one in (chat, messages, spawned, asked)] == [SUBAGENT, SUBAGENT, SUBAGENT, COMPACTION]
