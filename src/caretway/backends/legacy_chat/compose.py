"""A request as the one protobuf message of a legacy StreamChat call: roles, the system prompt as instruction, model,
ids. Pure."""

from collections.abc import Callable
from typing import Final

from ...core.request import Role, TurnRequest
from ...cursor.wire.messages import ai

PROJECT_PATH: Final = "/project"
"""What the clients of old sent; the service never needed a real one."""

_Chat = ai.StreamChatRequest
_ROLES: Final = {
    Role.USER: _Chat.ROLE_USER,
    Role.ASSISTANT: _Chat.ROLE_ASSISTANT,
    Role.TOOL: _Chat.ROLE_USER,
}


def compose(request: TurnRequest, request_id: str, conversation_id: str, new_id: Callable[[], str]) -> bytes:
    message = _Chat(
        messages=[
            _Chat.Message(content=said.text, role=_ROLES[said.role], message_id=new_id()) for said in request.talk
        ],
        project_path=PROJECT_PATH,
        model=_Chat.Model(name=request.model),
        request_id=request_id,
        conversation_id=conversation_id,
    )
    if request.system:
        message.instructions.instruction = request.system
    return message.SerializeToString()
