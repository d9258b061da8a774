"""Tests of the redirect package."""
