"""The loop guard: it stops a model that makes the same tool call again and again and learns nothing from it.

`rule` has the numbers and the words, `history` reads a client's transcript, `live` counts the calls that run without
the client, `wander` notices that a model only looks around.
"""
