//! Small allocations: spans of one size class each, and their free slots. Only tables, no memory.
//!
//! The tables are separate from the memory, so allocating and freeing cause no page faults. Slots
//! are allocated in address order, so allocations made together are adjacent and swapped in
//! together.

/// Size and alignment of a span in bytes.
pub(crate) const SPAN: usize = 1 << 20;
/// Maximum size of an allocation from a span in bytes.
pub(crate) const PIECE_MAX: usize = SPAN / 8;
/// Minimum alignment in bytes.
const GRAIN: usize = 16;
/// Size classes grow by `GRAIN` up to here; above there are four per power of two.
const FINE_MAX: usize = 8 * GRAIN;
const CLASSES: usize = 8 + 4 * (PIECE_MAX.ilog2() - FINE_MAX.ilog2()) as usize;

/// Spans in address order.
#[derive(Debug)]
pub(crate) struct Spans {
    spans: Vec<Span>,
    /// Spans of each class that may have a free slot, the current one last.
    open: [Vec<u32>; CLASSES],
    /// Spans without a class.
    free: Vec<u32>,
    spans_max: usize,
}

#[derive(Debug, Default)]
struct Span {
    /// `None` if it is free.
    class: Option<u8>,
    /// Whether it is in its class's list.
    listed: bool,
    /// Free slots.
    slots: u32,
    /// Slots from here on have not been used since the span was zeroed.
    fresh: u32,
    /// No word before this one has a free slot.
    first: u32,
    /// Bitmap of free slots.
    words: Vec<u64>,
}

/// An allocated slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset in bytes from the first span.
    pub(crate) offset: usize,
    /// Whether it is zeroed.
    pub(crate) is_zero: bool,
}

/// Result of a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    Slot,
    /// The span at this offset is free: it must be zeroed before it is reused.
    Span(usize),
    /// It was not allocated.
    NotAllocated,
}

impl Spans {
    /// No spans yet, at most `spans_max`.
    pub(crate) const fn new(spans_max: usize) -> Self {
        Self { spans: Vec::new(), open: [const { Vec::new() }; CLASSES], free: Vec::new(), spans_max }
    }

    /// Allocates `size` bytes aligned to `align`, a power of two; `None` if all spans are full or
    /// it is too large.
    pub(crate) fn take(&mut self, size: usize, align: usize) -> Option<Piece> {
        // Slots of a power of two are aligned to it.
        let size = if align <= GRAIN { size } else { size.max(align).checked_next_power_of_two()? };
        if size > PIECE_MAX {
            return None;
        }
        let class = class_of(size);
        let index = self.open_span(class)?;
        let span = &mut self.spans[index];
        let word = (span.first as usize..).find(|&word| span.words[word] != 0)?;
        let bit = span.words[word].trailing_zeros();
        span.words[word] &= !(1 << bit);
        span.first = word as u32;
        span.slots -= 1;
        let slot = word as u32 * 64 + bit;
        let is_zero = slot >= span.fresh;
        span.fresh = span.fresh.max(slot + 1);
        Some(Piece { offset: index * SPAN + slot as usize * bytes_of(class), is_zero })
    }

    /// A span of a class with a free slot.
    fn open_span(&mut self, class: u8) -> Option<usize> {
        while let Some(&last) = self.open[usize::from(class)].last() {
            let span = &mut self.spans[last as usize];
            if span.class == Some(class) && span.slots > 0 {
                return Some(last as usize);
            }
            if span.class == Some(class) {
                span.listed = false;
            }
            self.open[usize::from(class)].pop();
        }
        let index = self.free.pop().map(|index| index as usize).or_else(|| {
            let index = self.spans.len();
            (index < self.spans_max).then(|| self.spans.push(Span::default()))?;
            Some(index)
        })?;
        let slots = SPAN / bytes_of(class);
        let mut words = vec![u64::MAX; slots / 64];
        if !slots.is_multiple_of(64) {
            words.push((1 << (slots % 64)) - 1);
        }
        self.spans[index] =
            Span { class: Some(class), listed: true, slots: slots as u32, fresh: 0, first: 0, words };
        self.open[usize::from(class)].push(index as u32);
        Some(index)
    }

    /// Frees the slot at `offset`.
    pub(crate) fn free(&mut self, offset: usize) -> Freed {
        let index = offset / SPAN;
        let Some(span) = self.spans.get_mut(index) else { return Freed::NotAllocated };
        let Some(class) = span.class else { return Freed::NotAllocated };
        let (slot, rest) = (offset % SPAN / bytes_of(class), offset % SPAN % bytes_of(class));
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        if rest != 0 || span.words.get(word).is_none_or(|free| free & bit != 0) {
            return Freed::NotAllocated;
        }
        span.words[word] |= bit;
        span.first = span.first.min(word as u32);
        span.slots += 1;
        let open = &mut self.open[usize::from(class)];
        if !span.listed {
            span.listed = true;
            open.push(index as u32);
        }
        // Keep the last empty span: a program that allocates and frees one slot would have it
        // cleared each time.
        if span.slots as usize == SPAN / bytes_of(class) && open.last() != Some(&(index as u32)) {
            *span = Span::default();
            self.free.push(index as u32);
            return Freed::Span(index * SPAN);
        }
        Freed::Slot
    }

    /// Size of the slot at `offset` in bytes; `None` if there is none.
    pub(crate) fn bytes(&self, offset: usize) -> Option<usize> {
        self.spans.get(offset / SPAN)?.class.map(bytes_of)
    }
}

/// The smallest class that holds `size` bytes, at most [`PIECE_MAX`].
fn class_of(size: usize) -> u8 {
    let class = if size <= FINE_MAX {
        size.max(1).div_ceil(GRAIN) - 1
    } else {
        // Between two powers of two there are four steps.
        let power = (size - 1).ilog2();
        let step = (size - 1 - (1 << power)) >> (power - 2);
        8 + 4 * (power - FINE_MAX.ilog2()) as usize + step
    };
    class as u8
}

/// Slot size of a class in bytes.
fn bytes_of(class: u8) -> usize {
    let class = usize::from(class);
    if class < 8 {
        return (class + 1) * GRAIN;
    }
    let (power, step) = ((class - 8) / 4, (class - 8) % 4);
    (FINE_MAX << power) + (step + 1) * (FINE_MAX << power) / 4
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_size_has_the_smallest_class_that_holds_it() {
        assert_eq!(bytes_of(CLASSES as u8 - 1), PIECE_MAX);
        for size in 1..=PIECE_MAX {
            let class = class_of(size);
            assert!(bytes_of(class) >= size, "{size}");
            assert!(class == 0 || bytes_of(class - 1) < size, "{size}");
            assert!(
                size <= FINE_MAX || bytes_of(class) < size * 5 / 4 + 1,
                "{size}: no more than a quarter is lost"
            );
        }
    }

    #[test]
    fn pieces_are_disjoint_aligned_and_reusable() {
        let mut state = 0x5EED_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut spans = Spans::new(64);
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        let (mut refused, mut emptied) = (0, 0);
        for turn in 0..200_000 {
            // Phases of mostly allocating and mostly freeing.
            if random(100) < if turn / 20_000 % 2 == 0 { 70 } else { 35 } {
                let scale = 1 << (4 + random(14));
                let size = 1 + random(scale).min(PIECE_MAX - 1);
                let align = 16 << random(8);
                let Some(piece) = spans.take(size, align) else {
                    refused += 1;
                    continue;
                };
                assert!(piece.offset.is_multiple_of(align), "{size} {align}");
                let bytes = spans.bytes(piece.offset).expect("taken");
                assert!(bytes >= size && piece.offset % SPAN + bytes <= SPAN && piece.offset < 64 * SPAN);
                let before = taken.range(..=piece.offset).next_back();
                assert!(before.is_none_or(|(at, len)| at + len <= piece.offset), "{before:?} {piece:?}");
                let after = taken.range(piece.offset..).next();
                assert!(after.is_none_or(|(&at, _)| piece.offset + bytes <= at), "{after:?} {piece:?}");
                taken.insert(piece.offset, bytes);
            } else if let Some((&offset, _)) = taken.range(random(64 * SPAN)..).next() {
                taken.remove(&offset);
                match spans.free(offset) {
                    Freed::Slot => assert_eq!(spans.free(offset), Freed::NotAllocated),
                    Freed::Span(at) => {
                        emptied += 1;
                        assert!(taken.range(at..at + SPAN).next().is_none(), "it has allocated slots");
                    }
                    Freed::NotAllocated => panic!("{offset} was taken"),
                }
            }
        }
        assert!(refused > 0 && emptied > 0, "{refused} {emptied}");
    }

    #[test]
    fn unused_slots_of_a_cleared_span_are_zero() {
        let mut spans = Spans::new(2);
        let first = spans.take(PIECE_MAX, 16).expect("room");
        let second = spans.take(PIECE_MAX, 16).expect("room");
        assert!(first.is_zero && second.is_zero);
        assert_eq!(spans.free(first.offset), Freed::Slot);
        assert_eq!(spans.take(PIECE_MAX, 16), Some(Piece { offset: first.offset, is_zero: false }));
        let others: Vec<Piece> = (0..14).map(|_| spans.take(PIECE_MAX, 16).expect("room")).collect();
        assert!(others.iter().all(|piece| piece.is_zero) && spans.take(PIECE_MAX, 16).is_none());
        // All slots of the first span.
        let of_first: Vec<usize> = (0..8).map(|slot| slot * PIECE_MAX).collect();
        let given: Vec<Freed> = of_first.iter().map(|&offset| spans.free(offset)).collect();
        assert_eq!(given.last(), Some(&Freed::Slot), "it is the only one with room: kept");
        assert_eq!(spans.free(SPAN), Freed::Slot);
        assert_eq!(spans.take(16, 16), None, "both spans are of the other class");
        let wrong = [spans.free(SPAN + 1), spans.free(2 * SPAN), spans.free(usize::MAX)];
        assert_eq!(wrong, [Freed::NotAllocated; 3]);
    }
}
