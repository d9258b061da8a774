"""The HTTP side: a bare ASGI application. It knows dialects and sessions, and nothing of any backend."""
