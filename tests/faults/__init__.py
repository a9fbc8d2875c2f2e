"""What the server answers while its database fails, with clients at work."""
