"""An independent model of bowwave's own swap readahead, for `bowwave explain --policy adaptive`.

Written from the description in the documentation of `bowwave_core::swap::Adaptive`, and from what `explain` prints, not
from its code. It covers rows of one time: there the pace of a reader is unknown, and neither pace nor latency bounds a
window. Paging and slots are those of tools/model_swap.py.
"""

import model_swap

POLICIES = ("adaptive",)
# Streams of a region, misses that are remembered, steps between misses and how many of them must be equal.
STREAMS, MISSES, STEPS, EQUAL = 64, 16, 4, 3
STRIDE_MAX = 1 << 20
# Pages of the first window, and of the largest whose pages are not adjacent.
FIRST, STRIDED_MAX = 8, 32
# Windows that a miss may be past its reader, and windows whose hits count.
REACH, HITS = 4, 2
# Misses and marks after which an unproven stream loses its mark, and by which a proven one outlives it.
AGE = 256
# Stages, their windows at first and at most, and the window that odds of one would have.
STAGES, ASSUMED, REMEMBERED, SCALE = 8, 4, 64, 16
# Pages examined for each page of a window, and pages of a request.
EXAMINED, REQUEST = 16, 8
UNLIMITED = 1 << 60


class Stage:
    """How many of the windows of a stage were reached; optimistic at first."""

    def __init__(self):
        self.windows = self.reached = ASSUMED

    def add(self):
        self.windows += 1
        if self.windows == REMEMBERED:
            self.windows, self.reached = self.windows // 2, self.reached // 2

    def limit(self):
        return UNLIMITED if 2 * self.reached >= self.windows else SCALE * self.reached // self.windows


class Stream:
    def __init__(self, stride, page):
        self.stride, self.begin, self.reader = stride, page - stride, page
        self.next, self.mark, self.size, self.hits = page + stride, None, 0, 0
        self.stage, self.counts, self.used = -1, False, 0

    def steps(self, page):
        """Strides from the reader to a page ahead; 0 if the stream does not come there."""
        distance = page - self.reader
        return 0 if distance % self.stride else max(distance // self.stride, 0)

    def reach(self):
        planned = (self.next - self.reader) // self.stride
        return max(planned, REACH * self.size) if self.stage > 0 and self.size >= FIRST else planned

    def age_rank(self):
        return self.used + (AGE if self.stage > 0 else 0)


class State:
    """What a region remembers."""

    def __init__(self):
        self.streams, self.stages = [], [Stage() for _ in range(STAGES)]
        self.misses, self.steps, self.last_miss = [], [], 0
        # Pages that were the first of a window when they were read.
        self.marks = set()
        # Number of misses and marks.
        self.clock = 0

    # -- touches ---------------------------------------------------------------------------------------------------

    def miss(self, page):
        """The stream to read ahead for, and the first page of its window; or none."""
        self.clock += 1
        near = [stream for stream in self.streams if 0 < stream.steps(page) <= stream.reach()]
        if near:
            stream = min(near, key=lambda stream: stream.steps(page))
            self.count_reached(stream)
        else:
            stride = self.stride_of(page)
            if stride is None or page + stride < 0:
                return None
            stream = Stream(stride, page)
            self.enter(stream)
        stream.used, stream.reader = self.clock, page
        return stream, page + stream.stride

    def hit(self, page):
        """A touch of a page that was read ahead: the same, if it has a stream's mark."""
        stream = next((stream for stream in self.streams if 0 < stream.steps(page) <= HITS * stream.size), None)
        if stream:
            stream.hits += 1
        if page not in self.marks:
            return None
        self.marks.discard(page)
        self.clock += 1
        stream = next((stream for stream in self.streams if stream.mark == page), None)
        if stream is None:
            return None
        stream.mark, late = None, self.clock - stream.used > AGE
        if late and stream.stage == 0:
            return None
        stream.used = self.clock
        if late:
            stream.counts = False
        self.count_reached(stream)
        if stream.steps(page) > 0:
            stream.reader = page
        return stream, stream.next

    def stride_of(self, page):
        """The stride of the stream that begins at a miss, if one does."""
        step, self.last_miss = page - self.last_miss, page
        self.steps = [*self.steps, step][-STEPS:]
        before = set(self.misses)
        self.misses = [*self.misses, page][-MISSES:]
        if page - 1 in before:
            return 1
        if page + 1 in before:
            return -1
        return step if step and self.steps.count(step) >= EQUAL and abs(step) <= STRIDE_MAX else None

    def enter(self, stream):
        if len(self.streams) < STREAMS:
            self.streams.append(stream)
        else:
            oldest = min(self.streams, key=Stream.age_rank)
            self.streams[self.streams.index(oldest)] = stream

    # -- windows ---------------------------------------------------------------------------------------------------

    def window(self, stream, start, most):
        """Sizes the next window of a stream; returns its pages, and how many may be examined for them."""
        hits, stream.hits = stream.hits, 0
        stream.stage = min(stream.stage + 1, STAGES - 1)
        if stream.size == 0:
            size = FIRST
        elif 2 * hits >= stream.size:
            size = max(2 * stream.size, FIRST)
        else:
            size = max(stream.size // 2, 1)
        if abs(stream.stride) != 1:
            size = min(size, STRIDED_MAX)
        own, following = (self.stages[min(stream.stage + more, STAGES - 1)].limit() for more in (0, 1))
        stream.size = min(size, most, own, max(following, 1))
        if start < 0:
            stream.counts = False
            return None
        room = self.room(stream, start)
        count = min(stream.size, room)
        if count:
            return count, min(EXAMINED * count, room)
        stream.next, stream.counts = start, False
        if stream.size == 0:
            self.count(stream)
        return None

    def planned(self, stream, following, pages):
        """A window was read: its pages, and where the next one begins."""
        stream.next, stream.mark, stream.counts = following, pages[0] if pages else None, False
        if pages:
            self.count(stream)

    def room(self, stream, start):
        """Pages to where another reader of adjacent pages began, or is if it comes towards this one."""
        if abs(stream.stride) != 1:
            return UNLIMITED
        nearest = min if stream.stride == 1 else max
        edges = [(nearest(other.begin, other.reader) - start) * stream.stride for other in self.streams
                 if other is not stream and abs(other.stride) == 1]
        return min((edge for edge in edges if edge >= 0), default=UNLIMITED)

    def count(self, stream):
        self.stages[stream.stage].add()
        stream.counts = True

    def count_reached(self, stream):
        if stream.counts:
            self.stages[stream.stage].reached += 1
            stream.counts = False


class Model(model_swap.Model):
    """Unlimited memory over an instant store."""

    def __init__(self, policy, ra_pages, region_pages, slots):
        super().__init__(policy, 0, region_pages, slots)
        self.most = max(ra_pages, FIRST)
        self.states = {}

    def touch(self, pid, name, region, number, store):
        page = region.pages.get(number)
        if page is None:
            region.pages[number] = model_swap.Page()
            return None
        state, missed = self.states.setdefault((pid, name), State()), not page.here
        slot, plan = page.slot, None
        if missed:
            plan = state.miss(number)
        else:
            if store:
                self.soil(page)
            if page.ahead:
                plan = state.hit(number)
        window = plan and state.window(*plan, self.most)
        decision = None
        if missed or window:
            read = self.read_ahead(region, state, plan, window) if window else []
            for other in read:
                region.pages[other].here = region.pages[other].ahead = True
            state.marks.difference_update(read[1:])
            state.marks.update(read[:1])
            if missed:
                read, page.here = [*read, number], True
            slots = {region.pages[other].slot: [pid, name, other] for other in read}
            shown = self.shown(number, missed, plan, window)
            decision = {"slot": slot if missed else page.slot or 0, **shown,
                        "slots": list(requests(sorted(slots), slot if missed else None)),
                        "pages": [slots[each] for each in sorted(slots)]}
        page.ahead = False
        if store and missed:
            self.soil(page)
        return decision

    def read_ahead(self, region, state, plan, window):
        """The pages of a window: as many as it has that are swapped out, from its start on."""
        (stream, start), (count, examined) = plan, window
        found, number = [], start
        for _ in range(examined):
            if len(found) == count or number >= self.region_pages:
                break
            page = region.pages.get(number)
            if page is not None and not page.here:
                found.append(number)
            if number + stream.stride < 0:
                break
            number += stream.stride
        state.planned(stream, number, found)
        return found

    @staticmethod
    def shown(number, missed, plan, window):
        if not window:
            return {"reason": "single", "unit": "pages", "start": number, "stride": 1, "count": 1, "size": 1}
        (stream, start), (count, _) = plan, window
        reason = {1: "forward", -1: "backward"}.get(stream.stride, "strided") if missed else "mark"
        return {"reason": reason, "unit": "pages", "start": start, "stride": stream.stride, "count": count, "size": count}


def requests(slots, demanded):
    """Runs of slots as requests. The demanded slot is in the middle of its own; the rest is split from its first slot."""
    runs = []
    for slot in slots:
        if runs and runs[-1][1] == slot:
            runs[-1][1] = slot + 1
        else:
            runs.append([slot, slot + 1])
    for start, end in runs:
        cuts = [(start, end)]
        if demanded is not None and start <= demanded < end:
            begin = max(start, min(demanded - REQUEST // 2, end - REQUEST))
            stop = min(end, begin + REQUEST)
            cuts = [(start, begin), (begin, stop), (stop, end)]
        for first, last in cuts:
            yield from ([at, min(at + REQUEST, last)] for at in range(first, last, REQUEST))
