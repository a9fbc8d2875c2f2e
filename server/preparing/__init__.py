"""From queries and changes to reads and writes that are ready to run."""
