"""An independent model of `stream` for readers in order, for `bowwave explain --policy stream`.

Written from the description in `bowwave_core::readahead::stream`, not from its code. It covers handles that each read one
range upward from page 0 or anywhere, far from each other, in a file without an end, on a store that takes no time: windows
grow as in Linux, and one window is in flight ahead of each reader. Detectors, budgets and memory pressure are not modelled.
"""

from model_ondemand import PAGE, initial_size, next_size

POLICIES = ("stream",)
# Pages of a first read that shows a reader in order, and the first window, in such reads.
LONG, TIMES = 32, 8
# Requests of a file's first window: this part of the largest window, and its least pages.
PART, PART_LEAST = 4, 32


class Reader:
    """A handle, and its stream from its second read on."""

    def __init__(self):
        self.last, self.window, self.edge, self.streams = None, 0, 0, False


class Model:
    def __init__(self, ra_pages):
        self.ra_pages = ra_pages
        self.readers, self.pages, self.marks = {}, set(), {}
        self.rows = 0

    def access(self, pid, op, name, offset, length):
        """The decisions of a read."""
        row, self.rows = self.rows, self.rows + 1
        reader = self.readers.setdefault(pid, Reader())
        first, end = offset // PAGE, (offset + length - 1) // PAGE + 1
        for page in range(first, end):
            if page not in self.pages:
                yield self.decision(row, pid, name, page, end, "miss", *self.miss(reader, page, end - page))
            owner = self.marks.pop(page, None)
            if owner:
                yield self.decision(row, pid, name, page, end, "mark", *self.ahead(owner, end))
        reader.last = end - 1

    def miss(self, reader, page, request):
        """(reason, start, size, async size) of a read of a missing page."""
        if reader.streams:
            reason = "miss"
        elif page == 0:
            reason = "initial"
        elif reader.last is not None and page - reader.last in (0, 1):
            reason = "miss"
        else:
            return "oversize" if request > self.ra_pages else "random", page, request, 0, None
        window = initial_size(request, self.ra_pages)
        if page == 0 and request >= LONG:
            window = max(window, min(TIMES * request, self.ra_pages))
        size = window if request < window else request + window
        reader.streams, reader.window, reader.edge = True, window, page + size
        return reason, page, size, size - request, reader

    def ahead(self, reader, end):
        """The next window of a stream, and at least the rest of the request."""
        reader.window = next_size(reader.window, self.ra_pages)
        start, size, ahead = reader.edge, reader.window, reader.window
        if end - start > size:
            size, ahead = end - start, 0
        reader.edge = start + size
        return "lookahead", start, size, ahead, reader

    def decision(self, row, pid, name, page, end, trigger, reason, start, size, ahead, reader):
        mark = start + size - ahead if ahead else None
        if ahead:
            self.marks[mark] = reader
        self.pages.update(range(start, start + size))
        unit = max(self.ra_pages // PART, PART_LEAST) if reason == "initial" else size
        submitted = [[at, min(at + unit, start + size)] for at in range(start, start + size, unit)]
        return {"access": row, "pid": pid, "file": name, "page": page, "req_pages": end - page, "trigger": trigger,
                "reason": reason, "start": start, "size": size, "async_size": ahead, "submitted": submitted,
                "mark": mark}
