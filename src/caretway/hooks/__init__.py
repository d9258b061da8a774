"""Hooks: a command or a web address that is told when something needs its owner: a budget is low or used up, Cursor's
usage is spent or back, the sign-in is lost.

`hook` has the values, `teller` runs commands and posts, one at a time; `watch` finds out what of it has happened.
"""
