"""Several gateways that act as one: they know each other, pass requests on to the one that holds a turn, and share what
must be shared, in Redis or Valkey.

`link` is the connection to Redis, `directory` knows who lives, `hop` passes a request on. Without the setting `cluster`
nothing of this room is imported.
"""
