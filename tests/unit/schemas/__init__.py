"""Tests of the room of JSON schemas."""
