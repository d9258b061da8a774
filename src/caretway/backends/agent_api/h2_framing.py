"""The `h2` library, set up as our client needs it, and what an HTTP/2 peer can do to us that has a name of its own."""

from typing import Final

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import Event
from h2.settings import SettingCodes, Settings

from ...core.errors import ErrorKind, GatewayError
from .faults import HINTS
from .limits import TransportLimits
from .run_reader import cut

_TYPE_AT: Final = 3
_SETTINGS: Final = 4


class NotHttp2(GatewayError):
    """The peer is there and does not speak HTTP/2."""


class Unprocessed(GatewayError):
    """The peer says that it never looked at the request: sending it again is safe."""


class _DrainingMachine(H2ConnectionStateMachine):
    """`h2` takes a GOAWAY for the end of the connection; RFC 9113 section 6.8 lets the open streams finish."""

    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        return [] if input_ is ConnectionInputs.RECV_GOAWAY else super().process_input(input_)


class Framing(H2Connection):
    def __init__(self, limits: TransportLimits) -> None:
        super().__init__(H2Configuration(client_side=True, header_encoding=None))
        self.state_machine = _DrainingMachine()
        self.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
                SettingCodes.MAX_HEADER_LIST_SIZE: self.DEFAULT_MAX_HEADER_LIST_SIZE,
            },
        )

    def greet(self, connection_window_bytes: int) -> None:
        self.initiate_connection()
        if connection_window_bytes > self.inbound_flow_control_window:
            self.increment_flow_control_window(connection_window_bytes - self.inbound_flow_control_window)

    def clear_outbound_data_buffer(self) -> None:
        """`h2` calls this on a GOAWAY, when the buffer may hold frames of streams that are still alive: keep them."""


def speaks_http2(first_bytes: bytes | bytearray) -> bool | None:
    """A server's first frame is SETTINGS; `HTTP/1.1 400` has a P where the type would be. None: too few bytes yet."""
    return first_bytes[_TYPE_AT] == _SETTINGS if len(first_bytes) > _TYPE_AT else None


def reset_fault(host: str, code: int) -> GatewayError:
    if code == ErrorCodes.REFUSED_STREAM:
        return unprocessed(host, "refused the stream")
    try:
        name = ErrorCodes(code).name
    except ValueError:
        name = f"code {code}"
    return cut(f"{host} reset the stream ({name})")


def unprocessed(host: str, what: str) -> Unprocessed:
    return Unprocessed(ErrorKind.UPSTREAM_DOWN, f"Cursor: {host} {what}", hint=HINTS[ErrorKind.UPSTREAM_DOWN])
