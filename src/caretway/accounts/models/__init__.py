"""Which models there are, and what a client's name for one means upstream."""
