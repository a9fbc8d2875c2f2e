"""Makes declarations of the tables, as values."""
