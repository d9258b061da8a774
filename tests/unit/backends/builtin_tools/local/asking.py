"""What the tests of local tools share: asking a tool and reading its answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caretway.backends.builtin_tools.local.tools import LocalTools, Mode
from caretway.cursor.wire.messages import pb

SYSTEM = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def tools(workspace: Path, mode: Mode = "all", **changed: Any) -> LocalTools:
    settings: dict[str, Any] = {"shell_timeout_s": 20.0, "output_bytes": 20_000, "environment": SYSTEM} | changed
    return LocalTools(workspace, mode, **settings)


async def answers(local: LocalTools, kind: str, args: Mapping[str, Any]) -> list[pb.ExecClientMessage]:
    """The typed answers to an exec; that they end with the closing message is checked every time."""
    exec_ = pb.ExecServerMessage(id=7)
    inner = getattr(exec_, kind)
    inner.SetInParent()
    for name, value in args.items():
        if isinstance(value, list):
            getattr(inner, name).extend(value)
        else:
            setattr(inner, name, value)
    messages = [pb.AgentClientMessage.FromString(message) for message in await local.run(exec_)]
    assert messages[-1].exec_client_control_message.stream_close.id == 7
    replies = [message.exec_client_message for message in messages[:-1]]
    assert all(reply.id == 7 for reply in replies)
    return replies


async def ask(local: LocalTools, kind: str, **args: Any) -> tuple[str, Any]:
    """(which result, the result)."""
    (reply,) = await answers(local, f"{kind}_args", args)
    field = reply.WhichOneof("message")
    assert field is not None
    result = getattr(reply, field)
    which = result.WhichOneof("result")
    assert which is not None
    return which, getattr(result, which)
