"""Reading a folder of migrations (names, numbers, checksums, marks), and creating the next file."""

import hashlib
import os

import pytest

from migrations import Migration, MigrationError, load, new

LONE = "-- waterspout: no-transaction\n"
BREAKS = "-- waterspout: breaks-older-servers\n"


def test_files_come_in_order_with_their_checksums(folder):
    path = folder({"0002_b.sql": "SELECT 2", "0001_a-b_C.sql": "SELECT 1", "schema.sql": "", "notes.txt": ""})
    assert load(path) == (
        Migration(1, "0001_a-b_C.sql", "SELECT 1", hashlib.sha256(b"SELECT 1").hexdigest()),
        Migration(2, "0002_b.sql", "SELECT 2", hashlib.sha256(b"SELECT 2").hexdigest()),
    )


@pytest.mark.parametrize(
    "text",
    [b"SELECT 1;\r\nSELECT 2;\r\n", b"\xef\xbb\xbfSELECT 1;\nSELECT 2;\n"],
    ids=["carriage returns", "byte order mark"],
)
def test_line_ends_do_not_change_the_checksum(folder, text):
    assert load(folder({"0001_a.sql": text})) == load(folder({"0001_a.sql": "SELECT 1;\nSELECT 2;\n"}))


@pytest.mark.parametrize(
    ("text", "in_transaction", "breaks_older_servers"),
    [
        ("SELECT 1", True, False),
        (f"{LONE}SELECT 1", False, False),
        ("-- waterspout: no-transaction  \r\nSELECT 1", False, False),
        (f"{BREAKS}SELECT 1", True, True),
        (f"{LONE}{BREAKS}SELECT 1", False, True),
        (f"{BREAKS}{LONE}-- why\nSELECT 1", False, True),
        ("-- about -- waterspout: no-transaction\nSELECT 1", True, False),
        ("", True, False),
    ],
)
def test_marks_are_read_from_the_first_lines(folder, text, in_transaction, breaks_older_servers):
    [migration] = load(folder({"0001_a.sql": text}))
    assert (migration.in_transaction, migration.breaks_older_servers) == (in_transaction, breaks_older_servers)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "{folder} has no migrations; the first one is named 0001_<what>.sql"),
        ({"schema.sql": ""}, "{folder} has no migrations; the first one is named 0001_<what>.sql"),
        (
            {"0001_a.sql": "", "0003_c.sql": ""},
            "{folder} has no 0002_<what>.sql: the next file is 0003_c.sql",
        ),
        ({"0002_b.sql": ""}, "{folder} has no 0001_<what>.sql: the next file is 0002_b.sql"),
        ({"0000_z.sql": ""}, "{folder} has no 0001_<what>.sql: the next file is 0000_z.sql"),
        (
            {"0001_a.sql": "", "0002_b.sql": "", "0002_c.sql": ""},
            "0002_b.sql and 0002_c.sql have the same number: renumber one of them",
        ),
        (
            {"0001_a.sql": "", "2_b.sql": ""},
            "2_b.sql looks like a migration, but its name must be NNNN_<what>.sql",
        ),
        (
            {"0001_a.SQL": ""},
            "0001_a.SQL looks like a migration, but its name must be NNNN_<what>.sql",
        ),
        ({"0001_a.sql": b"SELECT '\xff'"}, "0001_a.sql is not UTF-8 text (byte 8)"),
        (
            {"0001_a.sql": "-- waterspout: no_transaction\nSELECT 1"},
            "0001_a.sql, line 1 is '-- waterspout: no_transaction'; "
            "a mark is '-- waterspout: no-transaction' or '-- waterspout: breaks-older-servers'",
        ),
        (
            {"0001_a.sql": f"-- an index\n{LONE}SELECT 1"},
            "0001_a.sql, line 2: marks must be on the first lines, before everything else",
        ),
        (
            {"0001_a.sql": f"{LONE}SELECT 1;\n{BREAKS}SELECT 2"},
            "0001_a.sql, line 3: marks must be on the first lines, before everything else",
        ),
    ],
)
def test_an_invalid_folder_is_refused(folder, files, message):
    path = folder(files)
    with pytest.raises(MigrationError) as caught:
        load(path)
    assert str(caught.value) == message.format(folder=path)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(MigrationError) as caught:
        load(tmp_path / "nowhere")
    expected = f"the migrations folder {tmp_path / 'nowhere'} cannot be read: No such file or directory"
    assert str(caught.value) == expected


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "0001_a.sql").mkdir()
    with pytest.raises(MigrationError) as caught:
        load(tmp_path)
    assert str(caught.value) == "0001_a.sql cannot be read: Is a directory"


def test_new_writes_the_next_file(tmp_path):
    path = tmp_path / "schema"
    first = new(path, "create users")
    assert first == path / "0001_create_users.sql"
    assert (first.stat().st_mode & 0o111, first.read_text().startswith("-- ")) == (0, True)
    first.write_text("SELECT 1")
    second = new(path, "add-Price")
    assert second == path / "0002_add-Price.sql"
    assert first.read_text() == "SELECT 1"
    # The new file has only comments, and none of them is read as a mark.
    [_, begun] = load(path)
    assert (begun.statements, begun.in_transaction, begun.breaks_older_servers) == ((), True, False)


@pytest.mark.parametrize("what", ["", " ", "a/b", "../a", "a.sql", "größe", "a\nb", "a\0b"])
def test_an_invalid_name_is_refused(tmp_path, what):
    with pytest.raises(MigrationError, match="is not allowed in a file name"):
        new(tmp_path, what)
    assert os.listdir(tmp_path) == []


def test_new_refuses_a_folder_with_a_gap(folder):
    path = folder({"0001_a.sql": "", "0003_c.sql": ""})
    with pytest.raises(MigrationError, match="has no 0002"):
        new(path, "d")
    assert sorted(os.listdir(path)) == ["0001_a.sql", "0003_c.sql"]


def test_the_last_number_is_the_last(folder, monkeypatch):
    monkeypatch.setattr("migrations.files.LAST_NUMBER", 2)
    path = folder({"0001_a.sql": ""})
    assert new(path, "b").name == "0002_b.sql"
    with pytest.raises(MigrationError, match="is full: the last number is 2"):
        new(path, "c")


def test_new_reports_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MigrationError) as caught:
        new(tmp_path / "file" / "schema", "a")
    assert str(caught.value) == f"no file can be written in {tmp_path / 'file' / 'schema'}: Not a directory"
