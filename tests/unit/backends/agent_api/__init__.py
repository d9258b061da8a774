"""Mirrors src."""
