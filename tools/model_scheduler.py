"""An independent model of the schedulers, to compare with `bowwave explain --scheduler`.

Written from the descriptions (Linux 2.6.29's deadline for `deadline-rw`, the patch of 24 April 2009 for
`deadline-literal`, its text with a floor, priorities and a limit on async requests for `deadline`), not from bowwave's
code, and as plainly as possible: all waiting requests are one list. The device serves `depth` requests at once, each in
a fixed time and a time a page. Its dispatches are the lines of `bowwave explain TRACE --scheduler S --json`.
"""

PAGE = 4096
ALGORITHMS = ("noop", "deadline-rw", "deadline", "deadline-literal")
PRIORITIES = ("real-time", "best-effort", "idle")
FILL_PAGES = 64
FILE_ALIGNMENT = 256
MS = 1_000_000


class Part:
    """A request that was asked for; `fill` is what it reads for, None if it writes."""

    def __init__(self, row, file, start, end, sync, priority, fill):
        self.row, self.file, self.start, self.end = row, file, start, end
        self.sync, self.priority, self.fill = sync, priority, fill
        self.write = fill is None
        self.promoted = False


class Item:
    """What goes to the device as one; addresses in pages of the device."""

    def __init__(self, part, base, now, deadline, stamp):
        self.start, self.end = base + part.start, base + part.end
        self.base, self.file, self.write = base, part.file, part.write
        self.sync, self.priority = part.sync, part.priority
        self.parts, self.added, self.deadline, self.stamp = [part], now, deadline, stamp


class Lane:
    """Where the batch of a priority stands."""

    def __init__(self):
        self.next, self.demoted, self.batch_group, self.batched = None, False, 1, 0
        self.starved, self.position = 0, 0


class AsyncLimit:
    """How many async requests may be at the device: halved each 100 ms in which sync ones took more than `slowdown` times
    what they took with at most one async one there (forgotten by 1/64 a window), one more if not, doubled after two
    seconds without any."""

    def __init__(self, most, slowdown):
        self.most = self.limit = most
        self.slowdown = slowdown
        self.ends, self.all, self.alone, self.best, self.silent = 0, [], [], None, 0

    def turn(self, now):
        if not self.slowdown or now < self.ends:
            return
        self.ends = now + 100 * MS
        if not self.all:
            self.silent += 1
            if self.silent > 20:
                self.limit = min(self.limit * 2, self.most)
            return
        self.silent = 0
        if self.best is not None:
            self.best += self.best // 64
        if self.alone:
            alone = sum(self.alone) // len(self.alone)
            self.best = alone if self.best is None else min(self.best, alone)
        average = sum(self.all) // len(self.all)
        self.all, self.alone = [], []
        slow = self.best is None or average > self.best * self.slowdown
        self.limit = max(self.limit // 2, 1) if slow else min(self.limit + 1, self.most)

    def done(self, now, took, alone):
        self.turn(now)
        self.all.append(took)
        if alone:
            self.alone.append(took)


class Scheduler:
    """Everything that waits, in one list."""

    def __init__(self, algorithm, knobs, request_pages):
        self.algorithm, self.request_pages = algorithm, request_pages
        self.knobs = {"sync_expire_ms": 500, "async_expire_ms": 5000, "batch": 16, "starved": 2, "contiguous": 0,
                      "front_merges": 1, "seeks": 1, "promotion": 1, "aging_ms": 10000, "async_depth": 64, "sync_slowdown": 2,
                      "merge": 1, **knobs}
        self.own = algorithm == "deadline"
        self.waiting, self.there = [], []
        self.lanes = [Lane() for _ in PRIORITIES]
        self.limit = AsyncLimit(self.knobs["async_depth"], self.knobs["sync_slowdown"])
        self.stamps = 0

    def stamp(self):
        self.stamps += 1
        return self.stamps

    def group(self, item):
        """0 is favoured, 1 is not."""
        if self.algorithm == "noop":
            return 0
        if self.algorithm == "deadline-rw":
            return int(item.write)
        return int(self.is_async(item))

    def is_async(self, item):
        # The patch's kernel classed every read as sync.
        return not item.sync and (item.write or self.algorithm != "deadline-literal")

    def lane(self, item):
        return PRIORITIES.index(item.priority) if self.own else 1

    def expire(self, group):
        if self.algorithm == "noop":
            return 0
        return int(self.knobs["async_expire_ms" if group else "sync_expire_ms"] * MS)

    def add(self, now, part, base):
        new = Item(part, base, now, 0, 0)
        below = next((item for item in self.waiting if item.end == new.start and self.fits(item, new)), None)
        above = next((item for item in self.waiting if new.end == item.start and self.fits(item, new)), None)
        below = below if self.knobs["merge"] else None
        above = above if self.knobs["merge"] and self.knobs["front_merges"] else None
        item = below or above
        if item is None:
            new.deadline, new.stamp = now + self.expire(self.group(new)), self.stamp()
            self.waiting.append(new)
            return new
        item.parts = item.parts + new.parts if item is below else new.parts + item.parts
        item.start, item.end = min(item.start, new.start), max(item.end, new.end)
        if self.algorithm != "deadline-literal":
            item.sync |= new.sync
        if below and above and self.fits(below, above) and self.group(below) == self.group(above):
            self.forget(above)
            below.end, below.parts = above.end, below.parts + above.parts
            below.added = min(below.added, above.added)
            if above.deadline < below.deadline:
                below.deadline, below.stamp = above.deadline, self.stamp()
        return item

    def fits(self, item, new):
        same = (item.write, item.file) == (new.write, new.file)
        alike = not self.own or (item.sync, item.priority) == (new.sync, new.priority)
        return same and alike and item.end - item.start + new.end - new.start <= self.request_pages

    def forget(self, item):
        """Takes it out; a batch that was to go on with it goes on with the one behind."""
        lane = self.lanes[self.lane(item)]
        if lane.next is item:
            lane.next = next(iter(self.behind(item)), None)
        self.waiting.remove(item)

    def behind(self, item):
        same = [other for other in self.waiting if self.lane(other) == self.lane(item) and other.write == item.write]
        return sorted((other for other in same if other.start > item.start), key=lambda other: other.start)

    def head(self, lane, group):
        line = [item for item in self.waiting if self.lane(item) == lane and self.group(item) == group]
        return min(line, key=lambda item: (item.deadline, item.stamp), default=None)

    def item_of(self, part):
        return next((item for item in self.waiting if part in item.parts), None)

    def promote(self, now, item):
        before, item.sync = self.group(item), True
        if self.group(item) != before:
            item.deadline = min(item.deadline, now + self.expire(0))
            item.stamp = self.stamp()

    def promote_alone(self, now, part):
        """Makes this part sync, and only it if that changes its group."""
        item = self.item_of(part)
        alone = Item(part, item.base, 0, 0, 0)
        alone.sync = True
        if self.group(alone) == self.group(item):
            self.promote(now, item)
            part.sync = True
            return
        deadline = item.deadline
        self.drop(item, part)
        part.sync = True
        item = self.add(now, part, item.base)
        if deadline < item.deadline:
            item.deadline, item.stamp = deadline, self.stamp()

    def drop(self, item, part):
        at = item.parts.index(part)
        lower, upper = item.parts[:at], item.parts[at + 1:]
        if not lower and not upper:
            self.forget(item)
            return
        item.parts = lower or upper
        self.measure(item)
        if lower and upper:
            rest = Item(part, item.base, item.added, item.deadline, self.stamp())
            rest.parts, rest.sync, rest.priority = upper, item.sync, item.priority
            self.measure(rest)
            self.waiting.append(rest)

    @staticmethod
    def measure(item):
        item.start, item.end = item.base + item.parts[0].start, item.base + item.parts[-1].end

    def dispatch(self, now):
        """What goes to the device now, and why."""
        self.limit.turn(now)
        there = [item for item, *_ in self.there]
        may_async = not self.own or sum(self.is_async(item) for item in there) < self.limit.limit
        waits = {self.lane(item) for item in self.waiting}
        busy = waits | {self.lane(item) for item in there}
        if self.own and len(busy) > 1:
            for lane, group in ((1, 0), (1, 1), (2, 0), (2, 1)):
                head = self.head(lane, group) if may_async or not group else None
                if head and now - head.added >= int(self.knobs["aging_ms"] * MS):
                    return self.begin(lane, head, group), "aged"
        lane = min(busy if self.own else waits, default=None)
        return self.choose(lane, now, may_async) if lane in waits else None

    def choose(self, number, now, may_async):
        lane = self.lanes[number]
        heads = [self.head(number, 0), self.head(number, 1) if may_async else None]
        if self.algorithm == "noop":
            return self.begin(number, heads[0], 0), "arrival"
        following = lane.next if lane.next and (may_async or self.group(lane.next) == 0) else None
        if following and lane.batched < self.knobs["batch"] \
                and (following.start == lane.position or not self.knobs["contiguous"]):
            lane.batched += 1
            reason = "demoted" if lane.demoted else "batch"
            return self.hand_over(number, following), reason
        both = None not in heads
        floor = both and lane.starved >= self.knobs["starved"]
        group = int(floor or heads[0] is None)
        first = heads[group]
        if first is None:
            return None
        expired = first.deadline < now
        lane.starved = 0 if group else lane.starved + both
        onward = None
        if following and not expired:
            suits = lane.batch_group <= group if self.algorithm == "deadline-literal" else self.group(following) == group
            onward = following if suits else None
        if onward:
            reason = "floor" if floor and self.group(onward) == 1 else "onward"
        else:
            reason = "expired" if expired else "floor" if floor else "oldest"
        return self.begin(number, onward or first, group), reason

    def begin(self, number, item, group):
        self.lanes[number].batched, self.lanes[number].batch_group = 1, group
        return self.hand_over(number, item)

    def hand_over(self, number, item):
        lane, behind = self.lanes[number], self.behind(item)
        lane.position, lane.next, lane.demoted = item.end, None, False
        self.waiting.remove(item)
        if self.algorithm == "noop" or not self.knobs["seeks"] or not behind:
            return item
        search = self.knobs["batch"]
        seen = behind[:search]
        found = next((other for other in seen if self.group(other) <= lane.batch_group), None)
        if self.algorithm == "deadline-rw":
            lane.next = behind[0]
        elif self.algorithm == "deadline":
            lane.next = found
        elif found:
            # As published: the result of the last step is discarded.
            lane.next = found if seen.index(found) + 1 < search else None
        elif len(seen) == search:
            # If all steps find lower addresses, the last of those is taken.
            lane.next = seen[-1]
        if lane.next is None:
            lane.next, lane.demoted = behind[0], True
            lane.batch_group = self.group(behind[0])
        return item


class Fill:
    def __init__(self, pages, sync):
        self.pages, self.sync, self.parts = pages, sync, []


class Model:
    """A page cache without readahead and without end, a scheduler and a plain device."""

    def __init__(self, scheduler, device):
        self.scheduler = scheduler
        self.request_ns, self.page_ns, self.depth = device
        # Per file: its first page on the device, its pages, cached pages, and fills in flight.
        self.base, self.ends, self.there, self.flying = {}, {}, {}, {}
        self.writes = []
        self.sent = 0

    def serve(self, rows, priorities):
        """The dispatches of rows (time, pid, op, file, offset, length)."""
        self.lay_out(rows)
        at = 0
        while at < len(rows):
            now, last = rows[at][0], at
            while last < len(rows) and rows[last][0] == now:
                last += 1
            yield from self.advance(now)
            for number in range(at, last):
                self.row(now, number, rows[number], priorities.get(rows[number][1], "best-effort"))
            yield from self.dispatches(now)
            at = last
        yield from self.advance(None)

    def lay_out(self, rows):
        for _, _, op, file, offset, length in rows:
            end = -(-(offset + length) // PAGE) if length and op != "willneed" and op != "fsync" else 0
            self.ends[file] = max(self.ends.get(file, 0), end)
        base = 0
        for file, end in self.ends.items():
            self.base[file], self.there[file], self.flying[file] = base, set(), {}
            base = -(-(base + end) // FILE_ALIGNMENT) * FILE_ALIGNMENT

    def row(self, now, number, row, priority):
        _, _, op, file, offset, length = row
        first = offset // PAGE
        pages = range(first, min(-(-(offset + length) // PAGE), self.ends[file])) if length else range(0)
        there, flying = self.there[file], self.flying[file]
        if op == "fsync":
            waits = self.writes if self.scheduler.knobs["promotion"] else []
            for part in sorted((part for part in waits if part.file == file), key=lambda part: part.start):
                self.scheduler.promote(now, self.scheduler.item_of(part))
                part.promoted |= not part.sync
                part.sync = True
        elif op == "write":
            there.update(page for page in pages if page not in flying)
            waiting = {page for part in self.writes if part.file == file for page in range(part.start, part.end)}
            for run in runs(page for page in pages if page not in waiting):
                self.writes += self.submit(now, number, file, run, False, priority, None)
        else:
            sync = op == "read"
            for page in pages:
                if page not in there and page not in flying:
                    for run in runs(page for page in range(page, pages.stop) if page not in there and page not in flying):
                        for start in range(run.start, run.stop, FILL_PAGES):
                            part = range(start, min(start + FILL_PAGES, run.stop))
                            fill = Fill(part, sync)
                            flying.update(dict.fromkeys(part, fill))
                            fill.parts = self.submit(now, number, file, part, sync, priority, fill)
                elif page in flying and sync and not flying[page].sync:
                    self.promote(now, flying[page])

    def promote(self, now, fill):
        fill.sync = True
        for part in list(fill.parts):
            if self.scheduler.knobs["promotion"] and self.scheduler.item_of(part):
                part.promoted |= not part.sync
                self.scheduler.promote_alone(now, part)
                fill.parts.remove(part)
                fill.parts.append(part)

    def submit(self, now, number, file, pages, sync, priority, fill):
        parts = []
        for start in range(pages.start, pages.stop, self.scheduler.request_pages):
            end = min(start + self.scheduler.request_pages, pages.stop)
            parts.append(Part(number, file, start, end, sync, priority, fill))
            self.scheduler.add(now, parts[-1], self.base[file])
        return parts

    def advance(self, until):
        there = self.scheduler.there
        while there and (until is None or min(there, key=lambda one: one[1])[1] <= until):
            now = min(one[1] for one in there)
            for one in sorted((one for one in there if one[1] == now), key=lambda one: one[2]):
                self.ended(now, one)
            yield from self.dispatches(now)

    def ended(self, now, one):
        item, _, _, since, counts, alone = one
        self.scheduler.there.remove(one)
        if not counts:
            self.scheduler.limit.done(now, now - since, alone)
        for part in item.parts:
            if part.fill:
                part.fill.parts.remove(part)
                if not part.fill.parts:
                    for page in part.fill.pages:
                        del self.flying[item.file][page]
                        self.there[item.file].add(page)

    def dispatches(self, now):
        scheduler = self.scheduler
        while len(scheduler.there) < self.depth:
            chosen = scheduler.dispatch(now)
            if chosen is None:
                return
            item, reason = chosen
            self.sent += 1
            asyncs = sum(one[4] for one in scheduler.there)
            counts = scheduler.own and scheduler.is_async(item)
            took = self.request_ns + self.page_ns * (item.end - item.start)
            scheduler.there.append((item, now + took, self.sent, now, counts, asyncs <= 1))
            self.writes = [part for part in self.writes if part not in item.parts]
            yield self.line(now, item, reason)

    def line(self, now, item, reason):
        waiting = [part for other in self.scheduler.waiting for part in other.parts]
        rows = [part.row for part in item.parts]
        return {
            "time_ns": now,
            "rows": [row for at, row in enumerate(rows) if at == 0 or rows[at - 1] != row],
            "file": item.file,
            "offset": (item.start - item.base) * PAGE,
            "length": (item.end - item.start) * PAGE,
            "direction": "write" if item.write else "read",
            "class": "async" if self.scheduler.is_async(item) else "sync",
            "priority": item.priority,
            "reason": reason,
            "waited_ns": now - item.added,
            "expired": self.scheduler.algorithm != "noop" and item.deadline < now,
            "merged": len(item.parts) > 1,
            "promoted": any(part.promoted for part in item.parts),
            "waiting": {"sync": sum(part.sync for part in waiting), "async": sum(not part.sync for part in waiting)},
            "at_device": len(self.scheduler.there),
        }


def runs(pages):
    """Numbers in ascending order as ranges of neighbours."""
    found = []
    for page in pages:
        if found and found[-1].stop == page:
            found[-1] = range(found[-1].start, page + 1)
        else:
            found.append(range(page, page + 1))
    return found
