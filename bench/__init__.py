"""The benchmark: what the gateway costs, beside what nobody can go below and beside its peers, in one interleaved run.

Not part of the wheel. It knows the gateway as its users do, as a process with a port; only the stand-in for Cursor
borrows `caretway.cursor.wire` to build its messages once, before anything is measured.
"""
