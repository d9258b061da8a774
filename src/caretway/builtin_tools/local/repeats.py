"""The loop guard in front of local tools: when two execs are the same call, which kinds may change something, and the
refusal of one that repeats too often.

The guard itself is `loop_guard/`.
"""

from typing import Final

from ...loop_guard.live import CallCounter
from ...loop_guard.rule import RepeatLevel, refusal
from ...wire.messages import pb
from .. import execs
from ..decisions import Decision, Policy, Refuse

_CHANGING: Final = frozenset({"write_args", "delete_args", "shell_args", "shell_stream_args"})


def guarded(policy: Policy, max_repeat: int) -> Policy:
    """The policy with the guard in front of it; 0 switches the guard off."""
    if max_repeat <= 0:
        return policy
    counter = CallCounter(max_repeat)

    def decide(exec_: pb.ExecServerMessage) -> Decision:
        kind = exec_.WhichOneof("message") or ""
        level, calls = counter.count(f"{kind} {execs.essence(exec_)}", changes=kind in _CHANGING)
        return Refuse(refusal(calls)) if level is RepeatLevel.PAST_LIMIT else policy(exec_)

    return decide
