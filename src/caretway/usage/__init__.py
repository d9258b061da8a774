"""Usage accounting: the ledger and prices, budgets, named keys, hooks.

`writing` has the ledger's rows and file, `queries` the questions about them. `budget` has budgets as values, their
periods and levels; `charges` counts the runs of sessions in a store and ends a run that passes its limit.
"""
