"""A client of Cursor's Agent API: Connect and protobuf over HTTP/2, or over HTTP/1.1 where HTTP/2 is not available."""
