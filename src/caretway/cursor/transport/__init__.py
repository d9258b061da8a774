"""The transport to Cursor: HTTP/2 and HTTP/1.1 connections, pools, runs and unary calls."""
