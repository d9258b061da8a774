"""Tests of Anthropic's Messages."""
