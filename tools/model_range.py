"""An independent model of Lustre's readahead with ranges of mapped faults, for `bowwave explain --policy range`.

Written from the description of llite's read-ahead and of the patch of 2021, not from bowwave's code: sets of pages, one page
after the other, positions of strides by search. All counts are pages. Lustre's RPC size is --ra-pages; the limits are
Lustre's own (ranges of 1 MiB, whole files up to 4 MiB, 256 MiB a file).
"""

import sys

from model_ondemand import PAGE

POLICIES = ("range", "range-literal")
MIB = (1 << 20) // PAGE
RANGE, WHOLE, PER_FILE = 1 * MIB, 4 * MIB, 256 * MIB
RANGE_LEAST = 16
LOOSE = 8
ENDLESS = 2**64 // PAGE


class Geometry:
    """Strided pages: `data` of each `length` from `first` on."""

    def __init__(self, first, length, data):
        self.first, self.length, self.data = first, length, data

    def has(self, page):
        return page >= self.first and (page - self.first) % self.length < self.data

    def pages(self, start, end):
        """Those of start..end, in order."""
        turn = max(start - self.first, 0) // self.length
        while self.first + turn * self.length < end:
            begin = self.first + turn * self.length
            yield from range(max(begin, start), min(begin + self.data, end))
            turn += 1

    def count(self, start, end):
        """How many of them, without looking at each: turns may be many."""
        def below(page):
            turns, rest = divmod(max(page - self.first, 0), self.length)
            return turns * self.data + min(rest, self.data)
        return max(below(end) - below(start), 0)


class Everything:
    """All pages."""

    @staticmethod
    def has(_page):
        return True

    @staticmethod
    def pages(start, end):
        return range(start, end)

    @staticmethod
    def count(start, end):
        return max(end - start, 0)


class File:
    def __init__(self):
        self.pages = set()
        # Pages read ahead and not used yet.
        self.ahead = set()


class Handle:
    """What llite remembers of an open file."""

    def __init__(self, literal, rpc, file_pages):
        self.literal, self.rpc = literal, rpc
        self.end_of_file = ENDLESS if file_pages is None else min(file_pages, ENDLESS)
        self.reads = 0
        self.expected = 0            # one past the last access
        self.run_requests = self.run_pages = 0
        self.start, self.window, self.next = 0, 0, 1
        self.enlarge = self.whole = self.ranged = False
        self.async_start = None
        self.stride_seen, self.stride = 0, None
        self.low = self.high = None  # of the cluster; inclusive
        self.near_requests = self.cluster_pages = 0

    # -- what the reader does ------------------------------------------------------------------------------------

    def read_begins(self, page, count):
        self.reads += 1
        self.run_requests += 1
        self.enlarge = False
        self.whole = self.reads > 1 and self.end_of_file <= WHOLE
        if self.whole:
            self.start, self.next, self.window = 0, 0, WHOLE
            return
        stride_found = self.look_at(page, count)
        if self.run_requests > 1 or stride_found:
            self.enlarge = True

    def look_at(self, page, count):
        """Sequential, stride, or neither; true if this access makes it a stride."""
        found = False
        in_stride = self.continues_stride(page, count)
        if not -LOOSE <= page - self.expected < LOOSE:
            if in_stride:
                self.run_pages = self.run_requests = 0
                self.stride_seen += 1
                found = self.stride_seen > 1
            else:
                if self.stride_seen == 0 and page >= self.expected:
                    self.stride = Geometry(page, page - self.expected + self.run_pages, self.run_pages)
                    self.stride_seen = 1
                else:
                    self.no_stride()
                self.start_over(page)
        elif self.stride_seen > 1 and not in_stride:
            self.no_stride()
            self.window, self.next = 0, page
        self.run_pages += count
        self.expected = page + count
        return found

    def continues_stride(self, page, count):
        stride = self.stride
        if stride is None or stride.data == 0 or stride.data == stride.length:
            return False
        gap = page - self.expected
        if gap == 0:
            return self.run_pages + count <= stride.data
        return gap == stride.length - stride.data and self.run_pages == stride.data and count <= stride.data

    def no_stride(self):
        self.stride_seen, self.stride = 0, None

    def start_over(self, page):
        self.run_requests = self.run_pages = self.window = 0
        self.start, self.next = page, page + 1

    def follow_cluster(self, page):
        known = self.high is not None and not (self.literal and self.high == 0)
        width = self.high - self.low + 1 if known else 1
        if known and -RANGE <= page - self.expected < RANGE:
            self.near_requests += 1
            self.low, self.high = min(self.low, page), max(self.high, page)
            if self.high - self.low + 1 <= RANGE:
                return
        self.cluster_pages, self.near_requests = width, 0
        self.low = self.high = page

    # -- the state after a page that is missing, or was read ahead and is used for the first time ------------------

    def page_reached(self, page, hit, mapped):
        self.ranged = False
        if self.whole:
            return
        at, next_page = page, page + 1
        check = True
        if mapped:
            self.follow_cluster(page)
            found = self.look_at(page, 1)
            if found or self.run_pages >= max(RANGE, RANGE_LEAST) and self.run_pages % max(RANGE, RANGE_LEAST) == 0:
                self.enlarge = True
            if not self.enlarge and self.window <= RANGE and self.near_requests >= 2:
                check = False
                if hit:
                    self.window = 0
                else:
                    self.ranged = True
                    self.window = max(RANGE_LEAST, self.cluster_pages)
                    at = max(page - self.window // 2, 0)
                    next_page = at + 1 if self.literal else at
        lost = not hit and self.window and page < self.next and self.start <= page <= self.start + self.window
        if check and lost:
            self.enlarge = False
            keep = self.stride_seen > 1 and self.stride.has(page)
            self.start_over(page)
            if not keep:
                self.no_stride()
                return
            if self.start < self.stride.first:
                self.no_stride()
        self.place(at, next_page, hit)

    def place(self, at, next_page, hit):
        self.start = self.aligned(at)
        if self.stride_seen > 1:
            self.next = max(self.next, at + 1)
            self.start = max(self.start, self.stride.first)
        elif hit:
            self.next = max(self.next, self.start)
        else:
            self.next = next_page
        if self.enlarge:
            self.enlarge = False
            self.one_rpc_more()

    def one_rpc_more(self):
        if self.stride_seen < 2:
            wanted = min(self.window + self.rpc, PER_FILE)
            unit = min(self.window, self.rpc) or 1
            self.window = wanted if wanted < self.rpc else wanted // unit * unit
            return
        # The end of the next `rpc` pages of data: whole strides first, then page by page.
        end = self.start + self.window
        left = self.rpc
        turns = max(left // self.stride.data - 1, 0)
        end += turns * self.stride.length
        left -= self.stride.count(self.start + self.window, end)
        for page in self.stride.pages(end, sys.maxsize):
            if left == 0:
                break
            left -= 1
            end = page + 1
        if self.window == 0 or self.stride.count(self.start, end) <= PER_FILE:
            self.window = end - self.start

    def aligned(self, page):
        unit = min(self.window, self.rpc) or 1
        return page // unit * unit

    def geometry(self):
        return self.stride if self.stride_seen > 1 else Everything

    # -- what to read ----------------------------------------------------------------------------------------------

    def quick(self):
        """Whether a page read ahead is taken without looking for more."""
        margin = max(16 * MIB, self.rpc)
        if self.stride_seen > 1:
            margin *= -(-self.stride.length // self.stride.data)
        return self.whole or self.start + self.window < self.next + margin

    def to_worker(self):
        """A window that a worker reads: (start, count), or None for no worker, or () if it is at it already."""
        if self.stride_seen > 1 or self.window < PER_FILE:
            return None
        start, count = self.aligned(self.next), max(16 * MIB, self.rpc)
        if self.async_start == start:
            return ()
        self.async_start, self.next = start, start + count
        return (start, count)

    def ahead(self, page, request_end, missing):
        """The (start, end, reason) to read, if any; request_end is that of a read call, 0 of a fault."""
        geometry = self.geometry()
        around = self.next < page
        start = max(self.next, geometry.first) if geometry is not Everything else self.next
        end = self.start + self.window if self.window else 0
        if around:
            end = start + self.window
        request_end = min(request_end, self.end_of_file)
        end = max(end, request_end)
        at_eof = end >= self.end_of_file
        end = min(end, self.end_of_file)
        if geometry.count(start, end) == 0:
            return None
        if not around and not at_eof:
            end = self.aligned(end) or end
        if missing and request_end > start:
            end = max(end, request_end)
        if geometry.count(start, end) == 0:
            return None
        if geometry is not Everything:
            # The last page of data.
            rest = (end - 1 - geometry.first) % geometry.length
            end -= max(rest - geometry.data + 1, 0)
        self.next = end
        return start, end, self.why()

    def why(self):
        if self.whole:
            return "whole_file"
        if self.ranged:
            return "range"
        if self.stride_seen > 1:
            return "stride"
        return "readahead" if self.window else "random"


class Model:
    """An unlimited page cache over an instant device."""

    def __init__(self, policy, ra_pages=32, file_pages=None):
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}")
        self.literal = policy == "range-literal"
        self.rpc, self.file_pages = ra_pages, file_pages
        self.files, self.handles = {}, {}
        self.accesses = 0

    def access(self, pid, op, name, offset, length):
        """The decisions that this row of the trace causes, in order."""
        access, self.accesses = self.accesses, self.accesses + 1
        if length == 0:
            return []
        first, last = offset // PAGE, (offset + length - 1) // PAGE
        file = self.files.setdefault(name, File())
        if op == "evict":
            gone = {page for page in file.pages if first <= page <= last}
            file.pages -= gone
            file.ahead -= gone
            return []
        handle = self.handles.setdefault((pid, name), Handle(self.literal, self.rpc, self.file_pages))
        end = last + 1 if self.file_pages is None else min(last + 1, self.file_pages)
        decisions = []
        if op == "read":
            # A read past the end requests nothing.
            if first < end:
                handle.read_begins(first, last + 1 - first)
            slow = False
            for page in range(first, end):
                slow = self.step(file, handle, page, last + 1, False, slow, decisions)
        elif op == "load":
            for page in range(first, end):
                self.step(file, handle, page, page + 1, True, False, decisions)
        else:
            raise ValueError(f"the model knows no {op!r}")
        return [{"access": access, "pid": pid, "file": name, **decision} for decision in decisions]

    def step(self, file, handle, page, request_end, mapped, slow, decisions):
        """The reader comes to a page; whether it looks for readahead at each page from now on."""
        missing = page not in file.pages
        fresh = page in file.ahead
        file.ahead.discard(page)
        if not missing and not fresh:
            return slow
        handle.page_reached(page, not missing, mapped)
        plans = []
        if not missing and not slow:
            if handle.quick():
                return False
            given = handle.to_worker()
            if given is not None:
                if given and given[0] < handle.end_of_file:
                    plans.append((given[0], given[0] + given[1], "ahead"))
                self.carry_out(file, page, request_end, missing, Everything, plans, decisions)
                return False
        found = handle.ahead(page, 0 if mapped else request_end, missing)
        geometry = handle.geometry()
        if found is None and missing:
            plans.append((page, request_end, "random"))
            geometry = Everything
        elif found is not None:
            start, end, why = found
            if missing and start <= page + 1 and page < end and geometry.has(page):
                plans.append((min(start, page), end, why))
            else:
                if missing:
                    plans.append((page, page + 1, "demand"))
                plans.append((start, end, why))
        self.carry_out(file, page, request_end, missing, geometry, plans, decisions)
        return True

    def carry_out(self, file, page, request_end, missing, geometry, plans, decisions):
        for start, end, why in plans:
            stop = end if self.file_pages is None else min(end, self.file_pages)
            pages = range(start, stop) if why == "demand" else geometry.pages(start, stop)
            runs = []
            for wanted in pages:
                if wanted in file.pages:
                    continue
                file.pages.add(wanted)
                if wanted != page:
                    file.ahead.add(wanted)
                if runs and runs[-1][1] == wanted:
                    runs[-1][1] += 1
                else:
                    runs.append([wanted, wanted + 1])
            decisions.append({"page": page, "req_pages": request_end - page, "trigger": "miss" if missing else "mark",
                              "reason": why, "start": start, "size": end - start, "async_size": 0, "submitted": runs,
                              "mark": None})
