"""The stand-ins: Cursor over h2c, an OpenAI upstream, and the byte relay. Each runs as a process of its own."""
