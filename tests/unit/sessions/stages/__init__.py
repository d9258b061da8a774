"""Tests of the event filters."""
