"""Generated from ../proto by scripts/proto. Never edited; import through caretway.cursor.wire.messages."""
