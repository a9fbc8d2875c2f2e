"""The Django application of `django_server`: users, groups and computers by Django REST framework JSON:API.

It is imported in that server's own environment, and must not import the project.
"""
