"""The words of a 404: a wrong base URL, a typing mistake, an API that is not served (embeddings, batches, Ollama ...),
and what to type instead. Pure.

Most wrong paths are a base URL with too much or too little in it, or a part of an API that is not served here.
Each gets a sentence of its own; the base URL is shown as the client would have to write it.
"""

from typing import Final

from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError
from ..server.exchange import HttpRequest

MAX_COMPARED: Final = 64
"""Characters of a path that is compared with those that are served: longer ones are no typing mistake."""
MAX_HOST: Final = 128

_NO_FILES: Final = "Files are not kept here. Send their content in the message."
_NO_AGENTS: Final = "OpenAI's Assistants are not served. Use POST /v1/responses."
_NOT_OLLAMA: Final = "This is not Ollama's API. Choose an OpenAI-compatible provider in the client."
ELSEWHERE: Final[dict[str, str]] = {
    "/complete": "The old Text Completions API is not served. Use POST /v1/messages.",
    "/embeddings": "Embeddings are not served: Cursor has none. Use another provider for them.",
    "/moderations": "Moderation is not served: Cursor has none. Use another provider for it.",
    "/rerank": "Reranking is not served: Cursor has none. Use another provider for it.",
    "/images": "Images are not made here: Cursor has no API for them. Use another provider for them.",
    "/videos": "Videos are not made here: Cursor has no API for them. Use another provider for them.",
    "/audio": "Speech is not served: Cursor has none. Use another provider for it.",
    "/realtime": "The Realtime API is not served. Use POST /v1/responses.",
    "/files": _NO_FILES,
    "/uploads": _NO_FILES,
    "/vector_stores": _NO_FILES,
    "/containers": _NO_FILES,
    "/batches": "Batches are not served. Send the requests one by one.",
    "/messages/batches": "Batches are not served. Send the requests one by one to POST /v1/messages.",
    "/conversations": "Conversations are not kept by name. Use `previous_response_id` of POST /v1/responses.",
    "/assistants": _NO_AGENTS,
    "/threads": _NO_AGENTS,
    "/fine_tuning": "Fine-tuning is not served. Cursor's models are used as they are.",
    "/organizations": "The Admin API is not served. Accounts are managed at cursor.com.",
    "/api/chat": _NOT_OLLAMA,
    "/api/generate": _NOT_OLLAMA,
    "/api/tags": _NOT_OLLAMA,
    "/api/show": _NOT_OLLAMA,
    "/api/version": _NOT_OLLAMA,
    "/v1beta": "Google's API is not served. Choose an OpenAI-compatible provider in the client.",
}
"""Known paths of public APIs, and all below them, that are not served."""


class ServedPaths(Struct, frozen=True):
    """What there is, as far as hints need it."""

    prefix: str
    paths: tuple[str, ...]
    """Without the prefix."""

    def is_elsewhere(self, path: str) -> bool:
        return self._elsewhere(path) is not None

    def hint(self, path: str, base: str) -> str:
        if (sentence := self._elsewhere(path)) is not None:
            return sentence
        bases = f"{base}{self.prefix} for OpenAI's clients, {base} for Anthropic's"
        # `/openai/v1/chat/completions`, `/v1/chat/completions/chat/completions`
        if tails := [served for served in self.paths if "{" not in served and path.endswith(served)]:
            right = self.prefix + max(tails, key=len)
            return f"Did you mean {right}? Then the client's base URL is wrong. It is {bases}."
        from difflib import get_close_matches  # only a mistake pays for this import

        if len(path) <= MAX_COMPARED and (near := get_close_matches(self._plain(path), self.paths, 1, 0.8)):
            return f"Did you mean {self.prefix}{near[0]}?"
        return f"The base URL is {bases}. GET / lists what is served."

    def _plain(self, path: str) -> str:
        return path.removeprefix(self.prefix) if path.startswith(f"{self.prefix}/") else path

    def _elsewhere(self, path: str) -> str | None:
        parts = self._plain(path).split("/", 3)[1:]
        two = "/" + "/".join(parts[:2])
        return ELSEWHERE.get(two) or ELSEWHERE.get("/" + parts[0] if parts else "")


def not_found(request: HttpRequest, path: str, served: ServedPaths) -> GatewayError:
    """`path`: as it was understood."""
    host = request.headers.get("host", "")
    base = f"{request.scheme}://{host if host and len(host) <= MAX_HOST else 'HOST:PORT'}"
    return GatewayError(ErrorKind.NOT_FOUND, f"No route for {request.method} {path}.", hint=served.hint(path, base))
