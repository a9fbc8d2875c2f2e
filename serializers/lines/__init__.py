"""Lists as lines: one for each resource, without a document around them."""
