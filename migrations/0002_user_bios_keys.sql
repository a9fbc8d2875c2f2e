-- waterspout: no-transaction
-- Serves the containment filters of user_bio's keys_to_ids_list. Built beside the writes that go on.

CREATE INDEX CONCURRENTLY user_bios_keys_to_ids_list_idx
    ON public.user_bios USING gin (keys_to_ids_list jsonb_path_ops);
