"""How long a stop may take, and how the times of all who have a part in it add up. What comes in: nothing. What goes
out: seconds. Each waits longer than those whose end it waits for; the last is systemd (TimeoutStopSec of the unit).

     0.1  HEARSAY_SECONDS      a worker waits to hear whether all end or it alone
    25.0  FINISH_SECONDS       the requests in flight, then their connections, then the pool
     0.5  LAST_PROBE_SECONDS   who asks for health or metrics is answered
     2.0  CLOSING_SECONDS      what was written there is sent
     3.0  TRACES_SECONDS       the last traces are sent
    30.6  the most that a worker takes that is well
    32.6  WORKER_SECONDS       after which it is killed by its generation
    34.6  GENERATION_SECONDS   after which that is killed by the master
    45    systemd kills them all
"""

from server.http.connections import CLOSING_SECONDS
from server.observing.watch import TRACES_SECONDS

HEARSAY_SECONDS = 0.1
FINISH_SECONDS = 25.0
LAST_PROBE_SECONDS = 0.5

SLACK_SECONDS = 2.0
"""For processes to end in, and for whoever waits for them to see it."""

WORKER_SECONDS = (
    HEARSAY_SECONDS + FINISH_SECONDS + LAST_PROBE_SECONDS + CLOSING_SECONDS + TRACES_SECONDS + SLACK_SECONDS
)
GENERATION_SECONDS = WORKER_SECONDS + SLACK_SECONDS
