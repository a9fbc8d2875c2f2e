"""Reading a folder of migrations: names, numbers, checksums, the marker."""

import hashlib

import pytest

from migrations import Migration, MigrationError, load


def test_files_come_in_order_with_their_checksums(folder):
    path = folder({"0002_b.sql": "SELECT 2", "0001_a-b_C.sql": "SELECT 1", "schema.sql": "", "notes.txt": ""})
    assert load(path) == (
        Migration(1, "0001_a-b_C.sql", "SELECT 1", hashlib.sha256(b"SELECT 1").hexdigest(), True),
        Migration(2, "0002_b.sql", "SELECT 2", hashlib.sha256(b"SELECT 2").hexdigest(), True),
    )


@pytest.mark.parametrize(
    "text",
    [b"SELECT 1;\r\nSELECT 2;\r\n", b"\xef\xbb\xbfSELECT 1;\nSELECT 2;\n"],
    ids=["carriage returns", "byte order mark"],
)
def test_what_an_editor_or_a_checkout_does_to_line_ends_changes_nothing(folder, text):
    assert load(folder({"0001_a.sql": text})) == load(folder({"0001_a.sql": "SELECT 1;\nSELECT 2;\n"}))


@pytest.mark.parametrize(
    ("text", "in_transaction"),
    [
        ("SELECT 1", True),
        ("-- waterspout: no-transaction\nSELECT 1", False),
        ("-- waterspout: no-transaction  \r\nSELECT 1", False),
        ("-- a comment\n-- waterspout: no-transaction\nSELECT 1", True),
        ("", True),
    ],
)
def test_the_marker_is_the_first_line(folder, text, in_transaction):
    assert [migration.in_transaction for migration in load(folder({"0001_a.sql": text}))] == [in_transaction]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "{folder} holds no migrations; the first would be called 0001_<what>.sql"),
        ({"schema.sql": ""}, "{folder} holds no migrations; the first would be called 0001_<what>.sql"),
        (
            {"0001_a.sql": "", "0003_c.sql": ""},
            "{folder} lacks 0002_<what>.sql: the next file is 0003_c.sql",
        ),
        ({"0002_b.sql": ""}, "{folder} lacks 0001_<what>.sql: the next file is 0002_b.sql"),
        ({"0000_z.sql": ""}, "{folder} lacks 0001_<what>.sql: the next file is 0000_z.sql"),
        (
            {"0001_a.sql": "", "0002_b.sql": "", "0002_c.sql": ""},
            "0002_b.sql and 0002_c.sql have the same number; one must move on",
        ),
        (
            {"0001_a.sql": "", "2_b.sql": ""},
            "2_b.sql looks like a migration, which would be called NNNN_<what>.sql",
        ),
        (
            {"0001_a.SQL": ""},
            "0001_a.SQL looks like a migration, which would be called NNNN_<what>.sql",
        ),
        ({"0001_a.sql": b"SELECT '\xff'"}, "0001_a.sql is not UTF-8 text (byte 8)"),
        (
            {"0001_a.sql": "-- waterspout: no_transaction\nSELECT 1"},
            "0001_a.sql begins with '-- waterspout: no_transaction'; "
            "the one marker there is reads '-- waterspout: no-transaction'",
        ),
    ],
)
def test_a_folder_that_cannot_be_right_is_refused(folder, files, message):
    path = folder(files)
    with pytest.raises(MigrationError) as caught:
        load(path)
    assert str(caught.value) == message.format(folder=path)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MigrationError) as caught:
        load(tmp_path / "nowhere")
    expected = f"the migrations folder {tmp_path / 'nowhere'} cannot be read: No such file or directory"
    assert str(caught.value) == expected


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "0001_a.sql").mkdir()
    with pytest.raises(MigrationError) as caught:
        load(tmp_path)
    assert str(caught.value) == "0001_a.sql cannot be read: Is a directory"
