"""Traces and metrics for OpenTelemetry, after its conventions for generative AI. Only `export` and `tracing` import
OpenTelemetry (extra `otel`); nothing here is imported unless it is asked for.
"""
