"""Loads the `Settings` from flags, environment, credentials and a TOML file.

What comes in: the flags that were given, the environment, the path of a file. What goes out: `Loaded`, the settings
with their sources and with warnings; or SettingsError with every fault found. Flags take precedence over the
environment, then credentials, the file and the defaults. Each value is converted and checked in the same way.

It must not know: the command line's library, what the settings are for, or the names of settings except those that can
contradict each other or make each other useless.
"""

import difflib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from server.settings.access import access_contradictions
from server.settings.groups import PREFIX, Setting, shown
from server.settings.settings import (
    CONFIG_VARIABLE,
    PREDECESSOR_VARIABLE,
    SETTINGS,
    Settings,
    SettingsError,
)
from server.settings.sign_in import sign_in_contradictions

CONFIG_FLAG = "--config"
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The environment variable with the folder of the files of LoadCredential= (systemd.exec(5))."""
DEFAULT = "default"


class Loaded(msgspec.Struct, frozen=True):
    """The settings, and the source of each: the flag, the variable, the path of the credential or file, or `DEFAULT`.
    warnings: a line for each given value that has no effect."""

    settings: Settings
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()


class _Given(msgspec.Struct, frozen=True):
    """A value as it was given. label: the start of messages about it. source: where it came from."""

    value: object
    label: str
    source: str


def load(flags: Mapping[str, object], environ: Mapping[str, str], config: str | None = None) -> Loaded:
    """Load the settings from `flags` (those that were given, by setting name), the environment and the TOML file.

    `config` is the path of the file from `--config`. Without it, the variable WATERSPOUT_CONFIG names the file. An
    empty variable counts as not set. A secret may also be in a file of its name in the folder of credentials. If a
    setting is given twice, only the value that takes precedence is checked.

    Raises SettingsError with all faults: values, unknown keys, a file that can't be read, contradictions.
    """
    path, keys = _read_config(config, environ)
    given = {setting.name: _find(setting, flags, environ, keys, path) for setting in SETTINGS}
    values: dict[str, object] = {}
    faults = _unknown_keys(keys, path)
    for setting in SETTINGS:
        if (value := given[setting.name]) is not None:
            try:
                values[setting.name] = _convert(setting, value.value)
            except ValueError as error:
                faults.append(f"{value.label}: {error}")
    if not faults:
        settings = msgspec.structs.replace(Settings(), **values)
        faults = list(_contradictions(settings))
    if faults:
        raise SettingsError(tuple(faults))
    sources = {name: DEFAULT if value is None else value.source for name, value in given.items()}
    return Loaded(settings, sources, (*_unknown_variables(environ), *_unused(given)))


def _find(
    setting: Setting,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    keys: Mapping[str, object],
    path: str,
) -> _Given | None:
    if setting.name in flags:
        return _Given(flags[setting.name], setting.flag, setting.flag)
    if environ.get(setting.variable):
        return _Given(environ[setting.variable], setting.variable, setting.variable)
    if setting.is_secret and (credential := _find_credential(setting, environ)) is not None:
        return credential
    if setting.name in keys:
        return _Given(keys[setting.name], f"{path}: {setting.name}", path)
    return None


def _find_credential(setting: Setting, environ: Mapping[str, str]) -> _Given | None:
    folder = environ.get(CREDENTIALS)
    if not folder:
        return None
    path = Path(folder, setting.name)
    try:
        # Editors and echo end a file with a line break, which is not part of the secret.
        text = path.read_text(encoding="utf-8").removesuffix("\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError((f"{path}: can't be read: {error.strerror}",)) from None
    except ValueError:  # its message would quote the secret
        raise SettingsError((f"{path}: is not UTF-8 text",)) from None
    return _Given(text, str(path), str(path))


def _read_config(config: str | None, environ: Mapping[str, str]) -> tuple[str, dict[str, object]]:
    path, source = (config, CONFIG_FLAG) if config is not None else (environ.get(CONFIG_VARIABLE), CONFIG_VARIABLE)
    if config is None and not path:
        return "", {}
    path = str(Path(path or "").expanduser())
    try:
        with open(path, "rb") as file:
            return path, tomllib.load(file)
    except OSError as error:
        raise SettingsError((f"{source}: can't read {path}: {error.strerror}",)) from None
    except ValueError as error:  # a TOMLDecodeError, or the UnicodeDecodeError of a file that is not UTF-8
        raise SettingsError((f"{source}: {path} is not valid TOML: {error}",)) from None


def _unknown_keys(keys: Mapping[str, object], path: str) -> list[str]:
    known = {setting.name: repr(setting.name) for setting in SETTINGS}
    return [f"{path}: there is no setting {key!r}{_nearest(key, known)}" for key in keys if key not in known]


def _nearest(name: str, known: Mapping[str, str | None]) -> str:
    """Return a proposal for an unknown name, or an empty text. known: what to propose, by name; if it is None or empty,
    the name."""
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1)
    return f"; did you mean {known[near[0]] or near[0]}?" if near else ""


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield warnings. They are not faults, because other programs (such as Kubernetes) set variables too, maybe with
    the same prefix."""
    known = {setting.name: setting.variable for setting in SETTINGS} | {"config": CONFIG_VARIABLE}
    for name in environ:
        if name.startswith(PREFIX) and name not in (*known.values(), PREDECESSOR_VARIABLE):
            yield f"the variable {name} belongs to no setting{_nearest(name.removeprefix(PREFIX), known)}"


def _unused(given: Mapping[str, _Given | None]) -> Iterator[str]:
    folder, url = given["data_dir"], given["database_url"]
    # A variable or a key may name the folder for other commands. Somebody who gives the flag expects to use it.
    if folder is not None and folder.source.startswith("--") and url is not None:
        yield f"{folder.label} is not used: it is for the embedded PostgreSQL, and {url.label} names another"
    for setting in SETTINGS:
        set_value = given[setting.name]
        needed = [given[name] for name in setting.needs]
        if set_value is not None and needed and all(value is None or value.value == "off" for value in needed):
            yield f"{set_value.label} is not used without {' or '.join(setting.needs)}"


def _convert(setting: Setting, value: object) -> object:
    """Convert a value to the type of the setting. A number or boolean may be a text. Raises ValueError."""
    try:
        converted = msgspec.convert(value, setting.form, strict=False, dec_hook=_to_path)
    except msgspec.ValidationError:
        got = "" if setting.is_secret else f", not {value!r}{_nearest(str(value), dict.fromkeys(setting.choices))}"
        raise ValueError(f"expected {setting.expected}{got}") from None
    return setting.check(converted) if setting.check is not None else converted


def _to_path(kind: type, value: object) -> object:
    if kind is not Path or not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("not a path")
    return Path(value).expanduser()


def _contradictions(settings: Settings) -> Iterator[str]:
    if settings.page_size > settings.max_page_size:
        yield f"page_size ({settings.page_size}) is above max_page_size ({settings.max_page_size})"
    if settings.max_url_bytes >= settings.max_header_bytes:
        yield (
            f"max_url_bytes ({settings.max_url_bytes}) must be below "
            f"max_header_bytes ({settings.max_header_bytes}), which counts the URL too"
        )
    if settings.has_sign_in and not settings.pages:
        yield "login_client_id is for people who use the pages: set pages, or leave it out"
    yield from access_contradictions(settings)
    yield from sign_in_contradictions(settings)


def as_toml(loaded: Loaded) -> str:
    """Return the settings as a TOML file with their sources. Secrets are masked, settings without a value commented
    out.

    port = 9000                       # WATERSPOUT_PORT
    # unix_socket                     # default
    """
    lines = [
        (_toml_line(setting, getattr(loaded.settings, setting.name)), loaded.sources[setting.name])
        for setting in SETTINGS
    ]
    width = max(len(line) for line, _ in lines if len(line) <= 48)
    return "".join(f"{line:<{width}}  # {source}\n" for line, source in lines)


def _toml_line(setting: Setting, value: object) -> str:
    if value is None:
        return f"# {setting.name}"
    # A JSON string is a TOML basic string, except that TOML wants DEL escaped.
    literal = json.dumps(str(value) if isinstance(value, Path) else shown(setting, value))
    return f"{setting.name} = {literal}".replace("\x7f", "\\u007f")
