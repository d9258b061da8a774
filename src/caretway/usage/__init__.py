"""What was used, what it cost, and who may use it: the ledger and prices, budgets, named keys, hooks.

`writing` has the ledger's rows and file, `queries` the questions about them. `budget` has the values of budgets, their
periods and who is within them; `charges` stands between sessions and the count and ends a run that passes its limit.
"""
