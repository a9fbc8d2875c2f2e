"""Declarations of resources, and what they are made of: types, operators, attributes."""
