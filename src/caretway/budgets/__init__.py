"""Budgets: how much of a subscription a key, everybody, a conversation or one run may use.

`budget` has the values and their text, `periods` days and months, `verdict` decides, `spent_store` and `sqlite_store`
count, `purse` stands between sessions and the count, `run_limit` ends a run that passes its own limit.
"""
