"""The gateway on the `cli` backend against the stand-in for cursor-agent: real processes, real sockets."""
