"""The server: settings, routes, handlers, the database. The one place that knows HTTP, and the top of the house."""
