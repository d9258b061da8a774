"""Which remedy a refused run gets: the history replayed (blob not found, stale conversation), the model named in
another way, simpler tool schemas, or none. Pure.

Cursor's error and what was heard of the model go in; out comes the cause of the loss, which names the remedy.
"""

from ...core.errors import GatewayError
from ...core.recovery import Cause
from ...cursor.transport.faults import BLOB_NOT_FOUND
from ...cursor.transport.refusals import SCHEMA_REFUSED, may_be_conversation
from ...cursor.wire.errors import ConnectError
from .model_shapes import may_be_shape
from .run_life import RunLife


def cause_of(error: ConnectError, fault: GatewayError, run: RunLife, *, simplifiable: bool) -> Cause:
    """`fault`: what the client would be told. `simplifiable`: there may be simpler schemas. `REFUSED`: there is no
    other way to ask."""
    if fault.code == BLOB_NOT_FOUND:  # the kept conversation has a hole; its history can be told anew
        return Cause.INCOMPLETE
    if run.may_be_stale and may_be_conversation(error):
        return Cause.STALE
    if run.reshapable and may_be_shape(error):
        return Cause.SHAPE
    if simplifiable and run.unheard and fault.code == SCHEMA_REFUSED:
        return Cause.SCHEMA
    return Cause.REFUSED
