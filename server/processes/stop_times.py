"""Defines the times that a stop may take, and how they add up.

Each process waits longer than the processes whose end it waits for. The last one is systemd (TimeoutStopSec of the
unit).

     0.1  STOP_REASON_SECONDS  a worker waits to learn whether the whole server stops
    25.0  FINISH_SECONDS       the requests in flight, then their connections, then the pool
     0.5  LAST_PROBE_SECONDS   probes and scrapes that have arrived are answered
     2.0  CLOSING_SECONDS      their responses are sent
     3.0  TRACES_SECONDS       the last traces are sent
    30.6  the most that a healthy worker takes
    32.6  WORKER_SECONDS       after which its generation kills it
    34.6  GENERATION_SECONDS   after which the master kills the generation
    45    systemd kills them all
"""

from server.http.transport.connections import CLOSING_SECONDS
from server.observing.telemetry import TRACES_SECONDS

STOP_REASON_SECONDS = 0.1
FINISH_SECONDS = 25.0
LAST_PROBE_SECONDS = 0.5

SLACK_SECONDS = 2.0
"""For processes to end, and for their parent to notice it."""

WORKER_SECONDS = (
    STOP_REASON_SECONDS + FINISH_SECONDS + LAST_PROBE_SECONDS + CLOSING_SECONDS + TRACES_SECONDS + SLACK_SECONDS
)
GENERATION_SECONDS = WORKER_SECONDS + SLACK_SECONDS
