"""Named keys of the gateway: who they are for, what they may do, where they are kept.

Only the SHA-256 of a key is kept. `named_key` has the values and what may be done to and with them, `key_file` the file
between processes and what a running gateway knows of it.
"""
