"""The list of settings, and how flags, environment and file are loaded. No database, no socket."""

import tomllib
from pathlib import Path

import msgspec
import pytest

from server.settings import SETTINGS, Settings, SettingsError, StartError
from server.settings.describe import mask_passwords
from server.settings.loading import DEFAULT, Loaded, as_toml, load

SECRET = "s3cr3t"
URL = f"postgresql://ann:{SECRET}@db.example:5432/shop"
BY_NAME = {setting.name: setting for setting in SETTINGS}


def write_config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "waterspout.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def faults_of(
    flags: dict[str, object], environ: dict[str, str] | None = None, config: str | None = None
) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(flags, environ or {}, config)
    return caught.value.faults


def test_defaults_are_those_of_the_class() -> None:
    loaded = load({}, {})
    assert loaded == Loaded(Settings(), dict.fromkeys(Settings.__struct_fields__, DEFAULT))


def test_defaults_hold_their_own_bounds() -> None:
    given = {s.name: s.default for s in SETTINGS if s.default is not None}
    assert load(given, {}).settings == Settings()


@pytest.mark.parametrize(
    ("flag", "variable", "key", "value", "source"),
    [
        ("1", "2", "page_size = 3", 1, "--page-size"),
        ("1", None, "page_size = 3", 1, "--page-size"),
        ("1", "2", "", 1, "--page-size"),
        (None, "2", "page_size = 3", 2, "WATERSPOUT_PAGE_SIZE"),
        (None, "2", "", 2, "WATERSPOUT_PAGE_SIZE"),
        (None, "", "page_size = 3", 3, "FILE"),
        (None, None, "page_size = 3", 3, "FILE"),
        (None, None, 'page_size = "3"', 3, "FILE"),
        (None, "", "", 30, DEFAULT),
        ("1", "bad", "page_size = 'bad'", 1, "--page-size"),
        (None, "2", "page_size = 'bad'", 2, "WATERSPOUT_PAGE_SIZE"),
    ],
)
def test_precedence(flag: str | None, variable: str | None, key: str, value: int, source: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, key)
    flags: dict[str, object] = {} if flag is None else {"page_size": flag}
    environ = {} if variable is None else {"WATERSPOUT_PAGE_SIZE": variable}
    loaded = load(flags, environ, config)
    expected = config if source == "FILE" else source
    assert (loaded.settings.page_size, loaded.sources["page_size"]) == (value, expected)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("WATERSPOUT_PAGESIZE", "; did you mean WATERSPOUT_PAGE_SIZE?"),
        ("WATERSPOUT_PAGE-SIZE", "; did you mean WATERSPOUT_PAGE_SIZE?"),
        ("WATERSPOUT_port", "; did you mean WATERSPOUT_PORT?"),
        ("WATERSPOUT_CONFG", "; did you mean WATERSPOUT_CONFIG?"),
        ("WATERSPOUT_SERVICE_HOST", ""),
        ("WATERSPOUT_8080_TCP", ""),
        ("WATERSPOUT_", ""),
        ("WATERSPOUT_PREDECESSOR", None),
        ("WATERSPOUTPORT", None),
        ("waterspout_port", None),
        ("PGHOST", None),
    ],
)
def test_an_unknown_variable_is_a_warning_and_not_a_fault(name: str, told: str | None) -> None:
    """Its value is not shown, because it may be a secret."""
    expected = () if told is None else (f"the variable {name} belongs to no setting{told}",)
    assert load({}, {name: SECRET}).warnings == expected


def test_variables_of_settings_are_no_warning(tmp_path: Path) -> None:
    environ = {s.variable: str(s.default) for s in SETTINGS if s.default is not None}
    assert load({}, environ | {"WATERSPOUT_CONFIG": write_config(tmp_path, "")}).warnings == ()


@pytest.mark.parametrize(
    ("flags", "environ", "key", "told"),
    [
        ({"data_dir": "/d", "database_url": URL}, {}, "", ("--data-dir", "--database-url")),
        ({"data_dir": "/d"}, {"WATERSPOUT_DATABASE_URL": URL}, "", ("--data-dir", "WATERSPOUT_DATABASE_URL")),
        ({"database_url": URL}, {"WATERSPOUT_DATA_DIR": "/d"}, "", None),
        ({"database_url": URL}, {}, "data_dir = '/d'", None),
        ({"database_url": URL}, {}, "", None),
        ({"data_dir": "/d"}, {}, "", None),
    ],
)
def test_only_the_flag_of_a_data_folder_with_a_database_url_is_a_warning(
    flags: dict[str, object], environ: dict[str, str], key: str, told: tuple[str, str] | None, tmp_path: Path
) -> None:
    config = write_config(tmp_path, key)
    expected = told and (f"{told[0]} is not used: it is for the embedded PostgreSQL, and {told[1]} names another")
    assert load(flags, environ, config).warnings == ((expected,) if expected else ())


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"auth_audience": "api"}, "auth_issuer or auth_jwks or auth_secret_file or auth_introspection_url"),
        ({"auth_algorithms": "ES256"}, "auth_issuer or auth_jwks or auth_secret_file"),
        ({"auth_introspection_client_id": "api"}, "auth_introspection_url"),
        ({"auth_anonymous_role": "anon"}, "row_security"),
        ({"auth_roles_allowed": "editor", "row_security": "off"}, "row_security"),
    ],
)
def test_settings_of_access_that_have_no_effect(flags: dict[str, str], told: str) -> None:
    """A server that seems to be closed might be open."""
    label = f"--{next(iter(flags)).replace('_', '-')}"
    assert load(flags, {}, None).warnings == (f"{label} is not used without {told}",)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "0", 0),
        ("port", "65535", 65535),
        ("demo", "true", True),
        ("demo", "1", True),
        ("server_timing", "false", False),
        ("unpaginated", "on", "on"),
        ("unpaginated", "off", "off"),
        ("unpaginated", "5000", 5000),
        ("total", "estimated", "estimated"),
        ("statement_timeout_seconds", "0.5", 0.5),
        ("statement_timeout_seconds", "3", 3.0),
        ("unix_socket", "run/web.sock", Path("run/web.sock")),
        ("data_dir", "~/data", Path.home() / "data"),
        ("resources", "shop.catalog:CATALOG", "shop.catalog:CATALOG"),
        ("public_url", "https://api.example.org", "https://api.example.org"),
        ("public_url", "https://api.example.org/", "https://api.example.org"),
        ("public_url", "http://[::1]:8080/a%20b/v1/", "http://[::1]:8080/a%20b/v1"),
        ("public_url", "/api/", "/api"),
        ("path_prefix", "/api/v1", "/api/v1"),
        ("trusted_proxies", "10.0.0.5, unix", "10.0.0.5/32,unix"),
        ("cors_origins", "https://App.example.org", "https://app.example.org"),
        ("allowed_hosts", "API.example.org., [0::1], ::2, a, a", "api.example.org,[::1],[::2],a"),
        ("allowed_hosts", " * ", "*"),
        ("compression", "gzip", "gzip"),
        ("cache_control", "public,max-age=60", "public, max-age=60"),
        ("auth_algorithms", "RS256, ES256,RS256", "RS256,ES256"),
        ("auth_introspection_secret_file", "~/secret", Path.home() / "secret"),
        ("database_url", URL, URL),
        ("database_url", "postgres:///shop?host=/run/postgresql", "postgres:///shop?host=/run/postgresql"),
        ("database_url", "postgresql://ann:a%40b@[::1]:1,two:2/s", "postgresql://ann:a%40b@[::1]:1,two:2/s"),
    ],
)
def test_text_is_converted_to_a_value(name: str, text: str, value: object) -> None:
    from_flag = getattr(load({name: text}, {}).settings, name)
    from_variable = getattr(load({}, {BY_NAME[name].variable: text}).settings, name)
    assert (from_flag, from_variable) == (value, value)
    assert type(from_flag) is type(value) or isinstance(value, Path)


HOST_FORM = (
    "expected names such as api.example.org or 10.0.0.5, without a scheme, port or path, with commas between, "
    "or * alone for all of them"
)
DATABASE_FORM = "expected postgresql://user:password@host:port/database"
PUBLIC_FORM = "expected an absolute URL such as https://api.example.org or https://example.org/api"
PUBLIC_PLAIN = f"{PUBLIC_FORM}, without query and fragment, other characters percent-encoded"
PUBLIC_BARE = f"{PUBLIC_FORM}, without user name and password: every link would show them"
ISSUER_FORM, WEB_FORM, ENDPOINT_FORM = [
    f"expected a URL such as https://id.example.org/{path}, without user name, password and fragment"
    for path in ("realms/shop", "keys", "introspect")
]
ALGORITHMS = (
    "expected names out of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, HS256, HS384, HS512, "
    "with commas between"
)
MIXED = "HS256, HS384 and HS512 are not accepted together with algorithms of public keys"
QUOTED = "percent-encode / ? # @ [ ] : in the password"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("host", "", "expected a text that is not empty, not ''"),
        ("port", "http", "expected a whole number from 0 to 65535, not 'http'"),
        ("port", "-1", "expected a whole number from 0 to 65535, not '-1'"),
        ("port", "65536", "expected a whole number from 0 to 65535, not '65536'"),
        ("port", "1.5", "expected a whole number from 0 to 65535, not '1.5'"),
        ("port", "9" * 40, f"expected a whole number from 0 to 65535, not '{'9' * 40}'"),
        ("port", True, "expected a whole number from 0 to 65535, not True"),
        ("port", [1], "expected a whole number from 0 to 65535, not [1]"),
        ("workers", "0", "expected a whole number from 1 to 256, not '0'"),
        ("demo", "maybe", "expected true or false, not 'maybe'"),
        ("demo", 2, "expected true or false, not 2"),
        ("unix_socket", "", "expected a path, not ''"),
        ("unix_socket", "a\0b", "expected a path, not 'a\\x00b'"),
        ("data_dir", 7, "expected a path, not 7"),
        ("resources", "", "expected a text that is not empty, not ''"),
        ("unpaginated", "0", "expected on, off or a whole number from 1 to 2147483647, not '0'"),
        ("unpaginated", True, "expected on, off or a whole number from 1 to 2147483647, not True"),
        ("total", "rough", "expected exact, estimated, capped or none, not 'rough'"),
        ("log_level", "loud", "expected debug, info, warning or error, not 'loud'"),
        ("log_format", "xml", "expected text, json or journald, not 'xml'"),
        ("connect_timeout_seconds", "0", "expected a number above 0 and up to 86400, not '0'"),
        ("connect_timeout_seconds", "nan", "expected a number above 0 and up to 86400, not 'nan'"),
        ("connect_timeout_seconds", "inf", "expected a number above 0 and up to 86400, not 'inf'"),
        ("max_json_depth", "501", "expected a whole number from 8 to 500, not '501'"),
        ("public_url", "api.example.org", PUBLIC_PLAIN),
        ("public_url", "https://a/?b", PUBLIC_PLAIN),
        ("public_url", 'https://a/"', PUBLIC_PLAIN),
        ("public_url", "https://a/%zz", PUBLIC_PLAIN),
        ("public_url", "https:///a", PUBLIC_FORM),
        ("public_url", "https://a:99999", PUBLIC_FORM),
        ("public_url", "https://u:p@a", PUBLIC_BARE),
        ("public_url", "/", PUBLIC_PLAIN),
        ("public_url", "//evil.example", PUBLIC_PLAIN),
        ("public_url", "/a/../b", PUBLIC_PLAIN),
        ("path_prefix", "api", "expected a path such as /api, or an empty text, not 'api'"),
        ("path_prefix", "/api/", "expected a path such as /api, or an empty text, not '/api/'"),
        ("path_prefix", "/a//b", "expected a path such as /api, or an empty text, not '/a//b'"),
        ("path_prefix", "/-", "expected a path such as /api, or an empty text, not '/-'"),
        ("path_prefix", "/a%20b", "expected a path such as /api, or an empty text, not '/a%20b'"),
        ("trusted_proxies", "", "expected a text that is not empty, not ''"),
        ("trusted_proxies", "10.0.0.1/8", "10.0.0.1/8 has bits beyond its length: write 10.0.0.0/8"),
        ("cors_origins", "https://a:443", "'https://a:443' is no origin as browsers write it: leave out :443"),
        ("allowed_hosts", "a:80", f"{HOST_FORM}; not 'a:80'"),
        ("allowed_hosts", "http://a", f"{HOST_FORM}; not 'http://a'"),
        ("allowed_hosts", "a,*", f"{HOST_FORM}; not '*'"),
        ("allowed_hosts", "a,,b", f"{HOST_FORM}; not ''"),
        ("allowed_hosts", "[::g]", f"{HOST_FORM}; not '[::g]'"),
        ("compression", "br", "expected off or gzip, not 'br'"),
        ("cache_control", "max-age", "max-age wants a number of seconds: max-age=60"),
        ("auth_issuer", "id.example.org", f"{ISSUER_FORM}, not 'id.example.org'"),
        ("auth_issuer", "https://id.example.org/?a", "an issuer has no query: 'https://id.example.org/?a'"),
        ("auth_issuer", "https://ann:pw@id.example.org", f"{ISSUER_FORM}, not 'https://ann:pw@id.example.org'"),
        ("auth_issuer", "https://id.example.org/#a", f"{ISSUER_FORM}, not 'https://id.example.org/#a'"),
        ("auth_issuer", "https://", f"{ISSUER_FORM}, not 'https://'"),
        ("auth_issuer", "https://id.example.org:99999", f"{ISSUER_FORM}, not 'https://id.example.org:99999'"),
        ("auth_jwks", "ftp://id.example.org/keys", f"{WEB_FORM}, not 'ftp://id.example.org/keys'"),
        ("auth_jwks", "file:///keys", f"{WEB_FORM}, not 'file:///keys'"),
        ("auth_algorithms", "none", f"{ALGORITHMS}; not 'none'"),
        ("auth_roles_claim", "..", "expected names with dots between, such as realm_access.roles, not '..'"),
        ("auth_role_claim", "app.", "expected names with dots between, such as realm_access.roles, not 'app.'"),
        ("auth_algorithms", "RS256,", f"{ALGORITHMS}; not ''"),
        ("auth_algorithms", "rs256", f"{ALGORITHMS}; not 'rs256'"),
        ("auth_algorithms", "HS256,RS256", MIXED),
        ("auth_leeway_seconds", "-1", "expected a whole number from 0 to 300, not '-1'"),
        ("auth_keys_hours", "0", "expected a number above 0 and up to 720, not '0'"),
        ("database_url", "", DATABASE_FORM),
        ("database_url", 7, "expected a text that is not empty"),
        ("database_url", f"mysql://ann:{SECRET}@db/shop", DATABASE_FORM),
        ("database_url", f"postgresql:ann:{SECRET}@db/shop", DATABASE_FORM),
        ("database_url", f"host=db password={SECRET}", DATABASE_FORM),
        ("database_url", f"postgresql://ann:{SECRET}#@db/shop", f"its host and port can't be read; {QUOTED}"),
        ("database_url", f"postgresql://ann:1/{SECRET}@db/shop", f"has a # or a second @; {QUOTED}"),
        ("database_url", f"postgresql://ann:1@{SECRET}@db/shop", f"has a # or a second @; {QUOTED}"),
        ("database_url", f"postgresql://ann:1#{SECRET}@db/shop", f"has a # or a second @; {QUOTED}"),
        (
            "database_url",
            f"postgresql://ann:1?{SECRET}@db/shop",
            "is not a URL; percent-encode / ? # @ [ ] : in its user name and password",
        ),
        (
            "database_url",
            f"postgresql://ann:[{SECRET}@db/shop",
            "is not a URL; percent-encode / ? # @ [ ] : in its user name and password",
        ),
    ],
)  # fmt: skip
def test_bad_value(name: str, value: object, message: str, tmp_path: Path) -> None:
    setting = BY_NAME[name]
    assert faults_of({name: value}) == (f"{setting.flag}: {message}",)
    if isinstance(value, str) and value:
        assert faults_of({}, {setting.variable: value}) == (f"{setting.variable}: {message}",)
        config = write_config(tmp_path, f"{name} = {msgspec.json.encode(value).decode()}")
        assert faults_of({}, {}, config) == (f"{config}: {name}: {message}",)


def test_all_faults_are_reported_together(tmp_path: Path) -> None:
    config = write_config(tmp_path, 'prot = 1\ntotal = "rough"\n')
    assert faults_of({"port": "x"}, {"WATERSPOUT_DEMO": "maybe"}, config) == (
        f"{config}: there is no setting 'prot'; did you mean 'port'?",
        "--port: expected a whole number from 0 to 65535, not 'x'",
        "WATERSPOUT_DEMO: expected true or false, not 'maybe'",
        f"{config}: total: expected exact, estimated, capped or none, not 'rough'",
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("prot = 1", ": there is no setting 'prot'; did you mean 'port'?"),
        ("page-size = 1", ": there is no setting 'page-size'; did you mean 'page_size'?"),
        ("PORT = 1", ": there is no setting 'PORT'; did you mean 'port'?"),
        ("zzzz = 1", ": there is no setting 'zzzz'"),
        ("config = 'other.toml'", ": there is no setting 'config'"),
        ("[port]\nnumber = 1", ": port: expected a whole number from 0 to 65535, not {'number': 1}"),
    ],
)
def test_keys_of_the_file(text: str, fault: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, text)
    assert faults_of({}, {}, config) == (config + fault,)


def test_file_that_is_not_toml(tmp_path: Path) -> None:
    config = write_config(tmp_path, "port = = 1")
    (fault,) = faults_of({}, {}, config)
    assert fault.startswith(f"--config: {config} is not valid TOML: ")
    assert "line 1" in fault


def test_file_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b'host = "\xe9"')
    (fault,) = faults_of({}, {"WATERSPOUT_CONFIG": str(path)})
    assert fault.startswith(f"WATERSPOUT_CONFIG: {path} is not valid TOML: ")


@pytest.mark.parametrize(("name", "reason"), [("absent.toml", "No such file or directory"), (".", "Is a directory")])
def test_file_that_cannot_be_read(name: str, reason: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    assert faults_of({}, {}, path) == (f"--config: can't read {path}: {reason}",)
    assert faults_of({}, {"WATERSPOUT_CONFIG": path}) == (f"WATERSPOUT_CONFIG: can't read {path}: {reason}",)


def test_the_flag_config_beats_the_variable(tmp_path: Path) -> None:
    config = write_config(tmp_path, "port = 9")
    assert load({}, {"WATERSPOUT_CONFIG": str(tmp_path / "absent.toml")}, config).settings.port == 9
    assert load({}, {"WATERSPOUT_CONFIG": config}).settings.port == 9
    assert load({}, {"WATERSPOUT_CONFIG": ""}).settings.port == 8080


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ({"max_page_size": "10"}, "page_size (30) is above max_page_size (10)"),
        (
            {"max_header_bytes": "16384"},
            "max_url_bytes (16384) must be below max_header_bytes (16384), which counts the URL too",
        ),
        (
            {"auth_jwks": "keys.json", "auth_secret_file": "secret", "auth_audience": "x"},
            "auth_jwks and auth_secret_file exclude each other: tokens have either public keys or a secret",
        ),
        (
            {"auth_issuer": "https://id.example.org"},
            "auth_audience is missing: without it, tokens for other servers of the issuer would be accepted",
        ),
        (
            {"auth_introspection_url": "https://id.example.org/ask", "auth_introspection_client_id": "x"},
            "auth_introspection_url needs auth_introspection_client_id and auth_introspection_secret_file",
        ),
        (
            {"auth_secret_file": "secret", "auth_audience": "x", "auth_algorithms": "RS256"},
            "auth_algorithms: HS256, HS384 and HS512 are for auth_secret_file, and only they",
        ),
        (
            {"auth_jwks": "keys.json", "auth_audience": "x", "auth_algorithms": "HS256"},
            "auth_algorithms: HS256, HS384 and HS512 are for auth_secret_file, and only they",
        ),
        (
            {"auth_issuer": "http://id.example.org", "auth_audience": "x"},
            "auth_issuer must be https, unless its host is a loopback address or auth_allow_http is set",
        ),
        (
            {"auth_jwks": "http://localhost.example.org/", "auth_audience": "x"},
            "auth_jwks must be https, unless its host is a loopback address or auth_allow_http is set",
        ),
    ],
)
def test_settings_that_contradict_each_other(flags: dict[str, object], fault: str) -> None:
    assert faults_of(flags) == (fault,)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9000", "127.8.8.8", "[::1]"])
def test_an_issuer_on_this_machine_may_be_http(host: str) -> None:
    assert load({"auth_issuer": f"http://{host}/realm", "auth_audience": "x"}, {}).settings.takes_tokens
    given = {"auth_issuer": "http://id.example.org", "auth_audience": "x", "auth_allow_http": True}
    assert load(given, {}).settings.takes_jwts


def test_a_settings_error_is_a_start_error_with_one_line_for_each_fault() -> None:
    error = SettingsError(("one", "two"))
    assert isinstance(error, StartError)
    assert str(error) == "one\ntwo"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "postgresql://ann:***@db.example:5432/shop"),
        ("postgresql://ann@db/shop", "postgresql://ann@db/shop"),
        ("postgresql://db:5432/shop", "postgresql://db:5432/shop"),
        ("postgresql:///shop?host=/run", "postgresql:///shop?host=/run"),
        (f"postgresql://:{SECRET}@db", "postgresql://:***@db"),
        (f"postgresql://ann:a:{SECRET}@b@db", "postgresql://ann:***@db"),
        (f"postgresql://ann:/{SECRET}?#@db", "postgresql://ann:***@db"),
        (f"postgresql://ann:\n{SECRET}@db", "postgresql://ann:***@db"),
        (f"postgresql://db/s?password={SECRET}&ssl=on", "postgresql://db/s?password=***&ssl=on"),
        (f"postgresql://db/s?a=1&p%61ssword={SECRET}", "postgresql://db/s?a=1&p%61ssword=***"),
        (f"postgresql://db/s?sslPassword={SECRET}", "postgresql://db/s?sslPassword=***"),
        (f"ann:{SECRET}@db", "ann:***@db"),
    ],
)
def test_mask_passwords(url: str, shown: str) -> None:
    assert mask_passwords(url) == shown


def test_secrets_are_masked_wherever_settings_are_shown() -> None:
    loaded = load({"database_url": f"{URL}?sslpassword={SECRET}2"}, {})
    assert SECRET in str(loaded.settings.database_url)
    texts = [
        repr(loaded),
        str(loaded.settings),
        f"{loaded.settings!r}",
        repr(loaded.settings.__rich_repr__()),
        as_toml(loaded),
        str(ValueError(loaded.settings)),
    ]
    assert [text for text in texts if SECRET in text] == []
    assert all("postgresql://ann:***@db.example:5432/shop?sslpassword=***" in text for text in texts)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]


def test_every_setting_is_described() -> None:
    for setting in SETTINGS:
        assert setting.description[0].isupper(), setting
        assert setting.description.endswith("."), setting
        assert setting.group, setting
        assert setting.metavar, setting
        assert setting.flag == "--" + setting.name.replace("_", "-")
        assert setting.variable == "WATERSPOUT_" + setting.name.upper()


def test_the_rows_are_the_fields() -> None:
    assert tuple(setting.name for setting in SETTINGS) == Settings.__struct_fields__


def test_as_toml_reads_back(tmp_path: Path) -> None:
    config = write_config(tmp_path, 'host = "h\\u00e9\\u007f\\"\\\\"\nunpaginated = 7\n')
    loaded = load({"data_dir": "/var/lib/spout"}, {"WATERSPOUT_DEMO": "true"}, config)
    text = as_toml(loaded)
    unset = {setting.name for setting in SETTINGS if getattr(loaded.settings, setting.name) is None}
    assert set(tomllib.loads(text)) == set(BY_NAME) - unset
    assert load({}, {}, write_config(tmp_path, text)).settings == loaded.settings


def test_as_toml_names_each_source(tmp_path: Path) -> None:
    config = write_config(tmp_path, "page_size = 7")
    loaded = load({"port": "1"}, {"WATERSPOUT_DEMO": "true"}, config)
    lines = {" ".join(line.split()) for line in as_toml(loaded).splitlines()}
    assert lines >= {
        "port = 1 # --port",
        "demo = true # WATERSPOUT_DEMO",
        f"page_size = 7 # {config}",
        "# unix_socket # default",
        'total = "exact" # default',
    }
