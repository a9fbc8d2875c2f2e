"""Parts of the planning of writes."""
