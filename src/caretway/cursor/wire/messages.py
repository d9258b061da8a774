"""The generated protobuf classes under two short names: `pb` (agent.v1) and `ai` (aiserver.v1)."""

from .gen import agent_pb2 as pb
from .gen import aiserver_pb2 as ai

__all__ = ["ai", "pb"]
