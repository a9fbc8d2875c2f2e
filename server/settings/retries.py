"""Defines the settings of writes that clients may send again: keys of requests, and for how long their answers are
kept."""

from typing import Annotated, Literal

from msgspec import Meta

from server.settings.groups import MIB, About, Positive
from server.settings.sign_in import SignInSettings

_RETRIES = "Retried writes"


class RetrySettings(SignInSettings, frozen=True, kw_only=True):
    """The settings of the header Idempotency-Key, after those of signing in. `Settings` has them all."""

    idempotency: Annotated[
        Literal["off", "on", "required"],
        Meta(
            description="Whether the answer to a write with an Idempotency-Key is kept in "
            "waterspout.idempotency_keys, so that the same request sent again is carried out once. With required, "
            "each write needs a key."
        ),
        About(_RETRIES, is_of_commands=True),
    ] = "off"
    idempotency_hours: Annotated[
        Positive,
        Meta(description="For how many hours an answer is kept. After that its key may be used for something else."),
        About(_RETRIES, metavar="HOURS"),
    ] = 24
    idempotency_max_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * MIB,
            description="The largest document that is kept. Of a larger one only the status, Location and ETag are "
            "repeated.",
        ),
        About(_RETRIES, metavar="BYTES"),
    ] = MIB

    @property
    def keeps_answers(self) -> bool:
        """Whether the answers to writes with a key are kept."""
        return self.idempotency != "off"
