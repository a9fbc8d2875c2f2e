"""Answers with pages for people."""
