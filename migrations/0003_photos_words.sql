-- waterspout: no-transaction
-- Serves the search for words in the names of photos. Built beside the writes that go on.

CREATE INDEX CONCURRENTLY photos_words_idx
    ON public.photos USING gin (to_tsvector('english', name));
