"""HTTP between the client's connection and tornado's handlers."""
