"""An independent model of Linux 2.6.20's readahead, to compare with `bowwave explain --policy legacy`.

Written from a description of the algorithm in prose and pseudo code, not from bowwave's code, and as plainly as
possible: numbers, pages in a set, one page after the other. Its decisions are the lines of
`bowwave explain TRACE --policy legacy --json`.
"""

from model_ondemand import PAGE, initial_size, report

POLICIES = ("legacy",)

# Consecutive cached pages after which the algorithm stops trying.
MAX_CACHE_HIT = 256
# 16 KiB: minimum window.
MIN_READAHEAD = 4


class State:
    """What the kernel keeps of one (pid, file)."""

    def __init__(self):
        self.start = self.size = 0
        self.ahead_start = self.ahead_size = 0
        self.cache_hit = 0
        self.flags = set()
        self.prev_page = -1

    def reset_ahead(self):
        """Closes the ahead window; the sum of its two numbers survives, and is where the window ended."""
        self.ahead_start, self.ahead_size = 0, self.ahead_start + self.ahead_size

    def off(self):
        self.start = self.size = 0
        self.flags.clear()
        self.reset_ahead()

    def next_size(self, most):
        if "miss" in self.flags:
            self.flags.remove("miss")
            size = max(self.size - 2, MIN_READAHEAD)
        elif self.size < most // 16:
            size = 4 * self.size
        else:
            size = 2 * self.size
        return min(size, most)


class Model:
    """An unlimited page cache over an instant device that never congests, read through the algorithm."""

    def __init__(self, policy="legacy", ra_pages=32, file_pages=None):
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}")
        self.most = ra_pages
        self.file_pages = file_pages
        self.files = {}
        self.states = {}
        self.accesses = 0

    def access(self, pid, op, name, offset, length):
        """The decisions that this row of the trace causes, in order."""
        access, self.accesses = self.accesses, self.accesses + 1
        if length == 0:
            return []
        first, last = offset // PAGE, (offset + length - 1) // PAGE
        pages = self.files.setdefault(name, set())
        if op == "evict":
            pages -= {page for page in pages if first <= page <= last}
            return []
        if op != "read":
            raise ValueError(f"the model knows no {op!r}")
        state = self.states.setdefault((pid, name), State())
        decisions = Call(self, state, pages).read(first, last + 1)
        return [{"access": access, "pid": pid, "file": name, **decision} for decision in decisions]


class Call:
    """One read call, with the decisions it makes."""

    def __init__(self, model, state, pages):
        self.most = model.most
        self.file_pages = model.file_pages
        self.ra = state
        self.pages = pages
        self.decisions = []
        # The page for which the algorithm runs now.
        self.page = self.request = self.trigger = None

    def read(self, first, end):
        called_at = first
        for page in range(first, end if self.file_pages is None else min(end, self.file_pages)):
            self.page, self.request = page, end - page
            self.trigger = "mark" if page in self.pages else "miss"
            if page == called_at:
                called_at = self.page_cache_readahead(page, end - page)
            if page not in self.pages:
                self.ra.flags.add("miss")
                self.ra.flags.discard("incache")
                self.ra.cache_hit = 0
                self.trigger = "miss"
                self.submit("demand", page, 1)
        return self.decisions

    def page_cache_readahead(self, offset, request):
        """The algorithm; the page at which to call it again."""
        ra = self.ra
        if offset == ra.prev_page:
            request -= 1
            if request:
                offset += 1
        sequential = offset == ra.prev_page + 1
        ra.prev_page = offset
        pages = min(request, self.most)
        if pages == 0 or "incache" in ra.flags:
            return ra.prev_page + 1
        ra.prev_page += pages - 1
        if sequential and ra.size == 0:
            ra.size = initial_size(pages, self.most)
            ra.start = offset
            if self.readahead("initial", offset, ra.size) and request >= self.most:
                self.make_ahead(force=True)
            return ra.prev_page + 1
        if not sequential:
            ra.off()
            self.readahead("random", offset, pages)
            return ra.prev_page + 1
        shifted = False
        if ra.ahead_start == 0 and not self.make_ahead(force=False):
            shifted = True
        elif ra.prev_page >= ra.ahead_start:
            ra.start, ra.size = ra.ahead_start, ra.ahead_size
            self.make_ahead(force=False)
            shifted = True
        if shifted:
            ra.prev_page = min(ra.prev_page, ra.ahead_start + ra.ahead_size - 1)
        return ra.prev_page + 1

    def make_ahead(self, force):
        ra = self.ra
        ra.ahead_size = ra.next_size(self.most)
        ra.ahead_start = ra.start + ra.size
        done = self.readahead("ahead", ra.ahead_start, ra.ahead_size)
        if not done and not force:
            ra.reset_ahead()
        return done

    def readahead(self, reason, start, size):
        """Reads what is absent of a window; false if so much was cached that the algorithm turns itself off."""
        if self.submit(reason, start, size):
            self.ra.cache_hit = 0
            return True
        self.ra.cache_hit += size
        if self.ra.cache_hit < MAX_CACHE_HIT:
            return True
        self.ra.off()
        self.ra.flags.add("incache")
        return False

    def submit(self, reason, start, size):
        """Reads the absent pages of a window up to the end of the file; how many runs that were."""
        end = start + size if self.file_pages is None else min(start + size, self.file_pages)
        runs = []
        for page in range(start, end):
            if page in self.pages:
                continue
            self.pages.add(page)
            if runs and runs[-1][1] == page:
                runs[-1][1] = page + 1
            else:
                runs.append([page, page + 1])
        self.decisions.append(report(self.page, self.request, self.trigger, reason, start, size, 0, (runs, None)))
        return len(runs)
