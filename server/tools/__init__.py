"""What no request meets: the commands of the command line, and what they find out about a database or a request."""
