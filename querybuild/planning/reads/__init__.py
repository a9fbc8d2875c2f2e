"""Parts of the planning of reads."""
