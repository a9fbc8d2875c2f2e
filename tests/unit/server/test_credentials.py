"""Secrets from the files of systemd's LoadCredential=. No database, no socket."""

from pathlib import Path

import pytest

from server.settings import SETTINGS, SettingsError
from server.settings.loading import as_toml, load

URL = "postgresql://ann:s3cr3t@db.example/shop"
OTHER = "postgresql://bob@db.example/other"


def environ_with(folder: Path, text: str | bytes = URL, **variables: str) -> dict[str, str]:
    (folder / "database_url").write_bytes(text if isinstance(text, bytes) else text.encode())
    return {"CREDENTIALS_DIRECTORY": str(folder), **variables}


@pytest.mark.parametrize(
    ("flag", "variable", "has_credential", "key", "winner"),
    [
        (True, True, True, True, "--database-url"),
        (False, True, True, True, "WATERSPOUT_DATABASE_URL"),
        (False, False, True, True, "credential"),
        (False, False, True, False, "credential"),
        (False, False, False, True, "file"),
        (False, False, False, False, "default"),
    ],
)
def test_flags_beat_variables_beat_credentials_beat_the_file(
    flag: bool, variable: bool, has_credential: bool, key: bool, winner: str, tmp_path: Path
) -> None:
    config = tmp_path / "waterspout.toml"
    config.write_text(f'database_url = "{OTHER}"' if key else "")
    environ = environ_with(tmp_path) if has_credential else {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    if variable:
        environ["WATERSPOUT_DATABASE_URL"] = OTHER
    loaded = load({"database_url": OTHER} if flag else {}, environ, str(config))
    sources = {"credential": str(tmp_path / "database_url"), "file": str(config)}
    values = {"credential": URL, "default": None}
    assert loaded.sources["database_url"] == sources.get(winner, winner)
    assert loaded.settings.database_url == values.get(winner, OTHER)


@pytest.mark.parametrize(("text", "value"), [(URL, URL), (f"{URL}\n", URL)])
def test_one_line_break_at_the_end_is_not_part_of_it(text: str, value: str, tmp_path: Path) -> None:
    assert load({}, environ_with(tmp_path, text)).settings.database_url == value


def test_the_source_is_shown_and_the_secret_is_not(tmp_path: Path) -> None:
    shown = as_toml(load({}, environ_with(tmp_path)))
    assert f'database_url = "postgresql://ann:***@db.example/shop"  # {tmp_path}/database_url\n' in shown
    assert "s3cr3t" not in shown


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "expected postgresql://user:password@host:port/database"),
        ("s3cr3t", "expected postgresql://user:password@host:port/database"),
        (b"postgresql://ann:s3cr3t\xff@db/shop", "is not UTF-8 text"),
    ],
)
def test_a_bad_credential_is_named_by_its_path_and_not_quoted(text: str | bytes, fault: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load({}, environ_with(tmp_path, text))
    assert caught.value.faults == (f"{tmp_path}/database_url: {fault}",)


def test_a_credential_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "database_url").mkdir()
    with pytest.raises(SettingsError) as caught:
        load({}, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert caught.value.faults == (f"{tmp_path}/database_url: can't be read: Is a directory",)


def test_only_secrets_are_read_from_credentials(tmp_path: Path) -> None:
    for setting in SETTINGS:
        (tmp_path / setting.name).write_text(URL)
    loaded = load({}, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    secrets = {setting.name for setting in SETTINGS if setting.is_secret}
    assert {name for name, source in loaded.sources.items() if source != "default"} == secrets
