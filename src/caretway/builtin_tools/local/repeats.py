"""The loop guard for tools that run here: one turn asking for the same thing again and again.

The guard over a client's history cannot see these calls. So the same request is refused once it was made too often,
with words that say so. Counting starts again when something else was changed in between: then the answer may be
another one.
"""

from collections import Counter
from typing import Final

from ...wire.messages import pb
from ..decisions import Decision, Policy, Refuse

GENEROUS_FACTOR: Final = 5
"""Looking again is cheap, and waiting for a command is work: as generous as with a client's own tools."""
_CHANGING: Final = frozenset({"write_args", "delete_args", "shell_args", "shell_stream_args"})


def guarded(policy: Policy, max_repeat: int) -> Policy:
    """The policy with the guard in front of it; 0 switches the guard off."""
    if max_repeat <= 0:
        return policy
    limit = max_repeat * GENEROUS_FACTOR
    made: Counter[bytes] = Counter()

    def decide(exec_: pb.ExecServerMessage) -> Decision:
        kind, key = _key(exec_)
        if kind in _CHANGING and key not in made:
            made.clear()
        made[key] += 1
        if made[key] > limit + 1:
            return Refuse(
                f"This exact call was made {made[key]} times. Do something else, or answer with what you know."
            )
        return policy(exec_)

    return decide


def _key(exec_: pb.ExecServerMessage) -> tuple[str, bytes]:
    """What is asked for, without the ids that differ from call to call."""
    kind = exec_.WhichOneof("message") or ""
    plain = pb.ExecServerMessage()
    plain.CopyFrom(exec_)
    plain.ClearField("id")
    plain.ClearField("exec_id")
    plain.ClearField("span_context")
    if kind and "tool_call_id" in getattr(plain, kind).DESCRIPTOR.fields_by_name:
        getattr(plain, kind).ClearField("tool_call_id")
    return kind, plain.SerializeToString(deterministic=True)
