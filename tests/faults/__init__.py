"""Tests of the server while its database fails and clients send requests."""
