"""The vocabulary of the house: values and Protocols. No I/O, and nothing of ours is imported here."""
