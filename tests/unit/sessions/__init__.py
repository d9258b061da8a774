"""Tests of the session engine."""
