"""Runs Django REST framework JSON:API over the tables of the benchmark, as its documentation sets it up, on gunicorn.

In: the URL of a migrated database, a port, the size of the pool. Out: a server on that port. It runs in the Python of
its own environment, and must not import the project.

gunicorn has one worker with as many threads as the pool has connections; each thread keeps one. The `sync` worker would
close every connection after one answer."""

import argparse
import secrets
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from gunicorn.app.base import BaseApplication

LIBRARY = "rest_framework_json_api"
REST_FRAMEWORK = {
    "PAGE_SIZE": 30,
    "EXCEPTION_HANDLER": f"{LIBRARY}.exceptions.exception_handler",
    "DEFAULT_PARSER_CLASSES": [f"{LIBRARY}.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": [f"{LIBRARY}.renderers.JSONRenderer"],
    "DEFAULT_METADATA_CLASS": f"{LIBRARY}.metadata.JSONAPIMetadata",
    "DEFAULT_FILTER_BACKENDS": [
        f"{LIBRARY}.filters.QueryParameterValidationFilter",
        f"{LIBRARY}.filters.OrderingFilter",
        f"{LIBRARY}.django_filters.DjangoFilterBackend",
    ],
    # There is no authentication.
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}


def database(url: str) -> dict[str, Any]:
    """Return the parts of a URL as Django's settings. The folder and port of a socket are `host` and `port` in the
    query."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", None) or parts.hostname or "",
        "PORT": options.pop("port", None) or str(parts.port or ""),
        "OPTIONS": options,
        # Connections are kept without a limit of time.
        "CONN_MAX_AGE": None,
    }


def configure(url: str) -> None:
    """Set up Django."""
    settings.configure(
        DEBUG=False,
        SECRET_KEY=secrets.token_urlsafe(),
        ALLOWED_HOSTS=["127.0.0.1", "localhost"],
        DATABASES={"default": database(url)},
        INSTALLED_APPS=["rest_framework", LIBRARY, "django_filters", "people"],
        MIDDLEWARE=[],
        ROOT_URLCONF="people.urls",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_I18N=False,
        USE_TZ=True,
        REST_FRAMEWORK=REST_FRAMEWORK,
        LOGGING=LOGGING,
    )
    django.setup()


class Server(BaseApplication):
    """gunicorn, configured by this program instead of its command line."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        super().__init__()

    def load_config(self) -> None:
        for name, value in self.options.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return get_wsgi_application()


def main() -> None:
    """Parse the command line and run the server."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pool-size", type=int, required=True)
    given = parser.parse_args()
    configure(given.database_url)
    options = {"bind": f"127.0.0.1:{given.port}", "workers": 1, "worker_class": "gthread", "threads": given.pool_size}
    Server(options | {"keepalive": 60, "loglevel": "warning", "control_socket_disable": True}).run()


if __name__ == "__main__":
    main()
