"""The handlers of routes without a resource: /, those below /-/ and /.well-known/, and `OPTIONS *`."""
