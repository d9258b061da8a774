"""Several gateways that act as one: they find each other, pass requests to the gateway that holds a turn, and share
state in Redis or Valkey.

`link` is the connection to Redis, `directory` lists the live gateways, `hop` passes a request on. Without the setting
`cluster` this package is not imported.
"""
