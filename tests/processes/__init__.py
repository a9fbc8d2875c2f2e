"""The processes of the server, each with a small program in place of the others."""
