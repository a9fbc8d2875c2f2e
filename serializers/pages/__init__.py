"""Pages for people: HTML instead of documents."""
