-- The answers to writes with an Idempotency-Key (docs/retrying.md). A row is written in the transaction of its write.

CREATE TABLE waterspout.idempotency_keys (
    -- SHA-256 of who has sent the key, and of the key, in hexadecimal like the others.
    id text COLLATE "C" PRIMARY KEY,
    key text NOT NULL,
    -- Who has sent it: the issuer and the subject, or the address of a client without credentials.
    issuer text NOT NULL,
    subject text NOT NULL,
    address text NOT NULL,
    -- SHA-256 of the request, and of the rights that the principal had.
    request text NOT NULL,
    rights text NOT NULL,
    -- The answer. The body is null if it is empty or larger than `idempotency_max_bytes`.
    status smallint NOT NULL,
    location text NOT NULL,
    etag text NOT NULL,
    media_type text NOT NULL,
    has_document boolean NOT NULL,
    document bytea,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX idempotency_keys_created_at_idx ON waterspout.idempotency_keys (created_at);

-- Claims a key until the end of the transaction. The error is for the server: it ends the transaction, and then the
-- server reads the kept answer. In a function of PL/pgSQL, each statement sees what was committed before it begins: the
-- answer of a request that has just released the lock, too.
CREATE FUNCTION waterspout.claim_key(key_id text, hours integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('waterspout key ' || key_id, 0)) THEN
        RAISE EXCEPTION USING ERRCODE = 'WSKEY', MESSAGE = 'a request with this idempotency key is being carried out';
    END IF;
    IF EXISTS (
        SELECT FROM waterspout.idempotency_keys
        WHERE id = key_id AND created_at > now() - make_interval(hours => hours)
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'WSKEY', MESSAGE = 'a request with this idempotency key was carried out before';
    END IF;
END
$$;
