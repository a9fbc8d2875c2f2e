"""The bytes of connections: which connections are open, the requests that come in and the answers that go out."""
