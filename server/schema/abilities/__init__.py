"""Finds out what PostgreSQL can do with the tables of resources, and what else happens when they are written."""
