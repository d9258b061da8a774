"""The legacy chat call (StreamChat) as a Backend: its headers with a checksum, a new token after a refusal. Models and
sign-in are those of the Agent API beside it."""

from collections.abc import Callable, Sequence

from ...core.request import TurnRequest
from ...core.turn import Abilities, Backend, BackendStatus, ModelInfo, Snapshot, Standing
from ...cursor.transport.heads import REQUEST_ID
from ...cursor.transport.identity import Identity, TokenSource, checksum, new_id
from ...cursor.transport.ports import Listening, RunHandler, Transport
from ...cursor.wire import paths
from .compose import compose
from .turn import ChatLimits, ChatTurn


class LegacyChatBackend:
    name = "legacy-chat"
    standing: Standing = "unofficial"
    abilities = Abilities(client_tools="text")

    def __init__(
        self,
        agent: Backend,
        transport: Transport,
        tokens: TokenSource,
        identity: Identity,
        limits: ChatLimits,
        clock: Callable[[], float],
    ) -> None:
        """`agent` lists the models, and closes what it shares with us: the transport and the tokens."""
        self._agent = agent
        self.standing = agent.standing
        self._transport = transport
        self._tokens = tokens
        self._known = identity.headers()
        self._limits = limits
        self._clock = clock

    async def models(self) -> Sequence[ModelInfo]:
        return await self._agent.models()

    async def status(self) -> BackendStatus:
        return await self._agent.status()

    async def aclose(self) -> None:
        await self._agent.aclose()

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> ChatTurn:
        conversation_id = new_id()
        token = ""

        async def open_stream(handler: RunHandler, refused: bool) -> Listening:
            nonlocal token
            token = await self._tokens.token(refused=token if refused else "")
            request_id = new_id()
            message = compose(request, request_id, conversation_id, new_id)
            headers = self._headers(request_id, token)
            return await self._transport.open_stream(paths.STREAM_CHAT, headers, message, handler)

        return ChatTurn(open_stream, self._limits, renewable=self._tokens.renewable, model=request.model)

    def _headers(self, request_id: str, token: str) -> dict[str, str]:
        return {
            "authorization": f"Bearer {token}",
            **self._known,
            "x-cursor-checksum": checksum(token, self._clock()),
            REQUEST_ID: request_id,
        }
