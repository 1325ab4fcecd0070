"""An independent model of on-demand readahead, to compare with `bowwave explain`.

Written from the description of the algorithm (figure 4 and tables 2 and 3 of the OLS 2007 paper for `ondemand`, the
posted patch's order of tests for `ondemand-patch`), not from bowwave's code, and as plainly as possible: pages in a
set, one page after the other. Its decisions are the lines of `bowwave explain TRACE --policy P --json`.
"""

PAGE = 4096
HEADER = ["time_ns", "pid", "op", "file", "offset", "length"]
POLICIES = ("ondemand", "ondemand-patch")


def initial_size(request, most):
    """The first window for a request: the next power of two, times four, two or up to the whole maximum."""
    size = 1
    while size < request:
        size *= 2
    if size <= most // 32:
        return size * 4
    if size <= most // 4:
        return size * 2
    return most


def next_size(size, most):
    """The window after one of this size: times four while small, then times two."""
    return min(size * 4 if size < most // 16 else size * 2, most)


class Stream:
    """What is remembered of one (pid, file): the last window and the page read last."""

    def __init__(self):
        self.start = self.readahead_index = self.lookahead_index = 0
        self.prev_page = -1

    def follows(self, page):
        """Whether `page` is the page read last or the next one, in unsigned arithmetic of 64 bits."""
        return (page - self.prev_page) % 2**64 <= 1


class File:
    """Which pages of a file are in the cache, and which of them bear the lookahead mark."""

    def __init__(self):
        self.pages = set()
        self.marks = set()


class Model:
    """An unlimited page cache over an instant device, read through one of the two policies."""

    def __init__(self, policy, ra_pages=32, file_pages=None):
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}")
        self.patch = policy == "ondemand-patch"
        self.ra_pages = ra_pages
        self.file_pages = file_pages
        self.files = {}
        self.streams = {}
        self.accesses = 0

    def access(self, pid, op, name, offset, length):
        """The decisions that this row of the trace causes, in order."""
        access, self.accesses = self.accesses, self.accesses + 1
        if length == 0:
            return []
        first, last = offset // PAGE, (offset + length - 1) // PAGE
        file = self.files.setdefault(name, File())
        if op == "evict":
            for page in [page for page in file.pages if first <= page <= last]:
                file.pages.remove(page)
                file.marks.discard(page)
            return []
        if op != "read":
            raise ValueError(f"the model knows no {op!r}")
        stream = self.streams.setdefault((pid, name), Stream())
        decisions = self.read(file, stream, first, last)
        return [{"access": access, "pid": pid, "file": name, **decision} for decision in decisions]

    def read(self, file, stream, first, last):
        """Walks the pages of a request as figure 4 does."""
        decisions = []
        end = last if self.file_pages is None else min(last, self.file_pages - 1)
        for page in range(first, end + 1):
            request = last - page + 1
            if page not in file.pages:
                decisions.append(self.decide(file, stream, page, request, first, "miss"))
                if page not in file.pages:
                    sent = self.submit(file, page, 1, 0)
                    decisions.append(report(page, request, "miss", "demand", page, 1, 0, sent))
            if page in file.marks:
                file.marks.remove(page)
                decisions.append(self.decide(file, stream, page, request, first, "mark"))
        if end >= first:
            stream.prev_page = end
        return decisions

    def decide(self, file, stream, page, request, first, trigger):
        """One call of the readahead algorithm."""
        reason = self.reason_of_patch(stream, page, request, trigger) if self.patch else \
            self.reason_of_paper(stream, page, request, first, trigger)
        most = self.ra_pages
        if reason == "random":
            start, size, ahead = page, request, 0
        elif reason in ("lookahead", "readahead"):
            start = stream.readahead_index
            size = ahead = next_size(stream.readahead_index - stream.start, most)
        else:
            start, size = page, initial_size(request, most)
            ahead = size - request if size > request else size
            if reason == "interleaved":
                start, size = page + 1, min(size * 4, most)
        if reason != "random":
            stream.start, stream.readahead_index = start, start + size
            stream.lookahead_index = start + size - ahead
        sent = self.submit(file, start, size, ahead)
        return report(page, request, trigger, reason, start, size, ahead, sent)

    def reason_of_paper(self, stream, page, request, first, trigger):
        """Table 2, in the order of figure 4; position is that of the whole request."""
        random = trigger == "miss" and not stream.follows(first)
        if page == 0:
            return "initial"
        if random and request <= self.ra_pages:
            return "random"
        if page == stream.lookahead_index:
            return "lookahead"
        if page == stream.readahead_index:
            return "readahead"
        if trigger == "mark":
            return "interleaved"
        return "oversize" if random else "miss"

    def reason_of_patch(self, stream, page, request, trigger):
        """The patch asks for a hit first, and knows no start of file but through its previous page of -1."""
        if page != 0 and page == stream.lookahead_index:
            return "lookahead"
        if page != 0 and page == stream.readahead_index:
            return "readahead"
        if trigger == "mark":
            return "interleaved"
        if not stream.follows(page) and request <= self.ra_pages:
            return "random"
        if page == 0:
            return "initial"
        return "miss" if stream.follows(page) else "oversize"

    def submit(self, file, start, size, ahead):
        """Reads the absent pages of a window up to the end of the file: the runs sent, and the page marked."""
        end = start + size if self.file_pages is None else min(start + size, self.file_pages)
        runs, mark = [], None
        for page in range(start, end):
            if page in file.pages:
                continue
            file.pages.add(page)
            if ahead and page == start + size - ahead:
                file.marks.add(page)
                mark = page
            if runs and runs[-1][1] == page:
                runs[-1][1] = page + 1
            else:
                runs.append([page, page + 1])
        return runs, mark


def report(page, request, trigger, reason, start, size, ahead, sent):
    """A decision as `explain --json` prints it."""
    runs, mark = sent
    return {"page": page, "req_pages": request, "trigger": trigger, "reason": reason, "start": start, "size": size,
            "async_size": ahead, "submitted": runs, "mark": mark}
