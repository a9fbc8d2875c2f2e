"""What people see of the command line: help, exit codes, completion, and the progress of what takes long."""
