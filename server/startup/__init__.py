"""Prepares a start: the declarations of the user, migrations, the order of the steps."""
