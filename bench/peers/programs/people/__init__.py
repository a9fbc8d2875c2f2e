"""The Django application of `django_server`: users, groups and computers with Django REST framework JSON:API.

It is imported in the environment of that server, and must not import the project."""
