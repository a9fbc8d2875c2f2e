"""The query builder: query strings and documents to plans, plans to SQL. It knows PyPika, and neither HTTP, a
driver nor documents."""
