"""An independent model of swap readahead by slots and by addresses, for `bowwave explain --policy cluster|vma`.

Written from the description of both methods of Linux ("VMA based swap readahead" and its successors), not from bowwave's code: pages
are dictionaries. Slots are assigned in the order in which pages are swapped out, and never twice.
"""

PAGE = 4096
POLICIES = ("cluster", "vma")
# Linux's limits, by its names.
PTRS_PER_PTE = 512
SWAP_RA_ORDER_CEILING = 5
SWAP_RA_HITS_MAX = 63
# Pages of an unbounded region, and slots of the store, whose slot 0 is its header.
ENDLESS = 1 << 32


def window_size(before, at, hits, most, last):
    """The size of the next window, from the hits of the last."""
    if hits == 0:
        size = 2 if at in (before - 1, before + 1) else 1
    else:
        size = 4
        while size < hits + 2:
            size *= 2
    return max(min(size, most), last // 2)


class Page:
    def __init__(self):
        self.here = True
        self.mapped = True
        self.ahead = False
        self.dirty = True
        self.slot = None


class Region:
    def __init__(self):
        self.pages = {}
        # Linux's packed word: address, window, hits.
        self.last, self.size, self.hits = 0, 0, 4


class Model:
    def __init__(self, policy, page_cluster, region_pages, slots):
        self.policy, self.page_cluster, self.slots = policy, page_cluster, slots
        self.region_pages = ENDLESS if region_pages is None else min(region_pages, ENDLESS)
        self.regions = {}
        self.next_slot = 1
        self.owners = {}
        self.hits, self.before, self.last_size = 4, 0, 0
        self.rows = 0

    def access(self, pid, op, name, offset, length):
        """The decisions of a row."""
        row, self.rows = self.rows, self.rows + 1
        region = self.regions.setdefault((pid, name), Region())
        first = offset // PAGE
        end = (offset + length - 1) // PAGE + 1 if length else first
        pages = range(first, min(end, self.region_pages))
        if op == "evict":
            for page in pages:
                self.page_out(pid, name, region, page)
            return
        for page in pages:
            decision = self.touch(pid, name, region, page, op == "store")
            if decision:
                yield {"access": row, "pid": pid, "file": name, "page": page, **decision}

    def page_out(self, pid, name, region, number):
        page = region.pages.get(number)
        if page is None or not page.here:
            return
        if page.dirty:
            page.slot, self.next_slot = self.next_slot, self.next_slot + 1
            self.owners[page.slot] = (pid, name, number)
        page.here = page.mapped = page.ahead = page.dirty = False

    def make_dirty(self, page):
        page.dirty = True
        if page.slot is not None:
            del self.owners[page.slot]
            page.slot = None

    def touch(self, pid, name, region, number, store):
        page = region.pages.get(number)
        if page is None:
            region.pages[number] = Page()
            return None
        decision = None
        if not page.here:
            decision = self.fault(pid, name, region, number, page)
        elif not page.mapped:
            if self.policy == "vma":
                region.last = number
                region.hits = min(region.hits + page.ahead, SWAP_RA_HITS_MAX)
            else:
                self.hits += page.ahead
        page.mapped, page.ahead = True, False
        if store:
            self.make_dirty(page)
        return decision

    def fault(self, pid, name, region, number, page):
        slot = page.slot
        if self.policy == "vma":
            plan, wanted = self.around(region, number)
            wanted = [(pid, name, other) for other in wanted]
        else:
            plan = self.block(slot)
            wanted = [self.owners[other] for other in range(plan["start"], plan["start"] + plan["count"])
                      if other in self.owners]
        read = {slot: (pid, name, number)}
        for key in wanted:
            other = self.regions[key[:2]].pages.get(key[2])
            if other is not None and not other.here:
                read[other.slot] = key
        for owner in read.values():
            other = self.regions[owner[:2]].pages[owner[2]]
            other.here, other.ahead = True, True
        runs = []
        for each in sorted(read):
            if runs and runs[-1][1] == each:
                runs[-1][1] = each + 1
            else:
                runs.append([each, each + 1])
        return {"slot": slot, **plan, "slots": runs, "pages": [list(read[each]) for each in sorted(read)]}

    def block(self, slot):
        hits, self.hits = self.hits, 0
        size = window_size(self.before, slot, hits, 1 << self.page_cluster, self.last_size)
        if hits == 0:
            self.before = slot
        self.last_size = size
        start = slot // size * size
        end = min(start + size, self.slots)
        start = max(start, 1)
        reason = "single" if size == 1 else "block"
        return {"reason": reason, "unit": "slots", "start": start, "stride": 1, "count": end - start, "size": size}

    def around(self, region, number):
        most = 1 << min(self.page_cluster, SWAP_RA_ORDER_CEILING)
        size, last = 1, region.last
        if most > 1:
            size = window_size(last, number, region.hits, most, region.size)
            region.last, region.size, region.hits = number, size, 0
        if size == 1:
            reason, start, end = "single", number, number + 1
        else:
            if number == last + 1:
                reason, start = "forward", number
            elif number == last - 1:
                reason, start = "backward", number - (size - 1)
            else:
                reason, start = "centred", number - (size - 1) // 2
            table = number // PTRS_PER_PTE * PTRS_PER_PTE
            end = min(start + size, self.region_pages, table + PTRS_PER_PTE)
            start = max(start, 0, table)
        plan = {"reason": reason, "unit": "pages", "start": start, "stride": 1, "count": end - start, "size": size}
        return plan, range(start, end)
