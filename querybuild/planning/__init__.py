"""Plans of reads and writes: names are resolved, and nothing is SQL yet."""
