"""Splitting a text into statements: where each one ends, whatever is quoted in it."""

import pytest

from migrations.statements import is_ended, split

TEXTS = [
    # text, its statements, whether the last one has its end
    ("", [], False),
    ("-- nothing\n/* at all; */\n", [], False),
    (" ;; \n;", [], True),
    ("SELECT 1", ["SELECT 1"], False),
    ("SELECT 1; -- and; so\nSELECT 2 -- on\n;", ["SELECT 1", "SELECT 2"], True),
    ("/* a /* b; */ c; */ SELECT /* ; */ 1 ;x", ["SELECT /* ; */ 1", "x"], False),
    ("SELECT ';''; ' ; x", ["SELECT ';''; '", "x"], False),
    ("SELECT 'a\\'; x", ["SELECT 'a\\'", "x"], False),
    ("SELECT E'a\\'; b'; x", ["SELECT E'a\\'; b'", "x"], False),
    ("SELECT typE'a\\'; x", ["SELECT typE'a\\'", "x"], False),
    ("SELECT U&'\\0061;'; x", ["SELECT U&'\\0061;'", "x"], False),
    ('SELECT ";"";"; x', ['SELECT ";"";"', "x"], False),
    ("SELECT $$;$a$;$$; x", ["SELECT $$;$a$;$$", "x"], False),
    ("SELECT $a$;$$;$b$;$a$; x", ["SELECT $a$;$$;$b$;$a$", "x"], False),
    ("SELECT $ä1$;$ä1$; x", ["SELECT $ä1$;$ä1$", "x"], False),
    ("SELECT $1; $1", ["SELECT $1", "$1"], False),
    ("SELECT a$b$; $b$; x", ["SELECT a$b$", "$b$; x"], False),
    ("SELECT 1-- ;\n+1; x", ["SELECT 1-- ;\n+1", "x"], False),
    ("CREATE RULE r AS ON UPDATE TO a DO (SELECT 1; SELECT 2); x", None, False),
    ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END; x", None, False),
    ("create or replace procedure f() begin atomic select case when true then 1 end; end; x", None, False),
    ("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; x", None, False),
    (
        "CREATE FUNCTION begin() RETURNS int LANGUAGE sql RETURN 1",
        ["CREATE FUNCTION begin() RETURNS int LANGUAGE sql RETURN 1"],
        False,
    ),
    ("BEGIN; COMMIT", ["BEGIN", "COMMIT"], False),
    ("DO $$ BEGIN PERFORM 1; END $$; x", ["DO $$ BEGIN PERFORM 1; END $$", "x"], False),
    ("SELECT 'never; ended", ["SELECT 'never", "ended"], False),
    ("SELECT $a$ never; ended", ["SELECT $a$ never; ended"], False),
    ("SELECT 1 /* never; ended", ["SELECT 1"], False),
    ("SELECT (1; 2", ["SELECT (1; 2"], False),
]


@pytest.mark.parametrize(("text", "statements", "ended"), TEXTS)
def test_a_text_is_split_like_postgresql_does(text, statements, ended):
    if statements is None:
        statements = [text.removesuffix("; x"), "x"]
    assert [statement.sql for statement in split(text)] == statements
    assert is_ended(text) == ended


def test_lines_and_words():
    found = split("-- one\n\nDROP INDEX IF EXISTS a;\n\n  /* two\n */ create index \"B c\" on\n a (id) -- 'x'\n;")
    assert [(statement.line, statement.words) for statement in found] == [
        (3, ("DROP", "INDEX", "IF", "EXISTS", "A")),
        (6, ("CREATE", "INDEX", "ON", "A", "ID")),
    ]
