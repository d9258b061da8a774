"""Tests of OpenAI's Chat Completions."""
