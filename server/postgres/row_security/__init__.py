"""Runs the statements of a request with its role and its claims (`row_security`)."""
