"""The waste budget of `stream`, counted from what `bowwave explain --policy stream` prints.

Written from the description of the budget in `bowwave_core::readahead::stream`: it counts the pages of a file that readers
have used, and the pages that were read ahead and not used, and says how many of the latter are allowed.
"""

from model_ondemand import PAGE

POLICIES = ("stream",)
# Unused pages allowed for each 100 used ones; windows allowed besides, and for each active stream and each further reader.
PERCENT, WINDOWS, EACH = 25, 16, 2
# Streams that the policy remembers at most: 32, and twice as many parked.
REMEMBERED = 96


class Ledger:
    """Pages of one file."""

    def __init__(self, ra_pages):
        self.ra_pages = ra_pages
        self.used, self.ahead, self.readers = 0, set(), set()

    def access(self, pid, offset, length, decisions):
        """A read and its decisions, in order; yields (used, unused) after each decision."""
        self.readers.add(pid)
        first, end = offset // PAGE, (offset + length - 1) // PAGE + 1
        waiting = list(decisions)
        for page in range(first, end):
            while waiting and waiting[0]["page"] == page:
                for start, stop in waiting.pop(0)["submitted"]:
                    self.ahead.update(range(start, stop))
                requested = sum(other in self.ahead for other in range(page, end))
                yield self.used, len(self.ahead) - requested
            if page in self.ahead:
                self.ahead.discard(page)
                self.used += 1

    def excess(self, used, unused):
        """Windows unused beyond the share of the used pages."""
        return (unused - used * PERCENT / 100) / self.ra_pages

    def allowed(self, streams):
        """Windows allowed while this many streams are active."""
        return WINDOWS + EACH * (len(self.readers) - 1) + EACH * streams
