"""MCP servers of other people and ill-behaved ones of our own, behind a gateway on real sockets."""
