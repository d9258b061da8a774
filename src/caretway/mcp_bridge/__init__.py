"""The user's MCP servers as tools of every model and every client: offered beside the client's own tools, run here."""
