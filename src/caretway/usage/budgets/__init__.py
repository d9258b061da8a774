"""Budgets: how much of a subscription a key, everybody, a conversation or one run may use.

`budget` has the values, their text and their periods, `verdict` decides, `spent_store` and `sqlite_store` count,
`charges` stands between sessions and the count, and ends a run that passes its own limit.
"""
