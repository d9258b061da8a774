"""The way to Cursor: HTTP/2 and HTTP/1.1 connections, pools, runs and single calls. It knows no model and no turn."""
