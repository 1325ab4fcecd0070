//! The orders in which the files of a directory have ranks.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::RECENT;

/// An order of the files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Listing,
    Numeric,
    /// By the time of the last open.
    Time,
}

/// An order beside the listing's: file by rank, and rank by file.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    pub(super) files: Vec<u32>,
    pub(super) ranks: Vec<u32>,
}

impl Ranked {
    /// The order of the numbers in names, if it is another one than that of the listing.
    pub(super) fn by_numbers<N: AsRef<[u8]>>(names: &[N]) -> Option<Self> {
        if names.len() > NUMERIC_FILES_MAX {
            return None;
        }
        let mut files: Vec<u32> = (0..names.len() as u32).collect();
        files.sort_by(|&a, &b| by_numbers(names[a as usize].as_ref(), names[b as usize].as_ref()));
        if files.is_sorted() {
            return None;
        }
        let mut ranks = vec![0; files.len()];
        for (rank, &index) in (0..).zip(&files) {
            ranks[index as usize] = rank;
        }
        Some(Self { files, ranks })
    }
}

/// The kinds of the files of a directory: their extensions.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds {
    /// By file; empty if all are of kind 0.
    of: Vec<u8>,
    /// Kinds of opened files and their opens, the last one first.
    opened: Vec<(u8, u32)>,
}

impl Kinds {
    pub(super) fn of<N: AsRef<[u8]>>(names: &[N]) -> Self {
        let mut kinds: Vec<&[u8]> = Vec::new();
        let mut of = Vec::with_capacity(names.len());
        for name in names {
            let extension = extension(name.as_ref());
            let known = kinds.iter().position(|known| *known == extension);
            of.push(known.unwrap_or(kinds.len()) as u8);
            if known.is_none() && kinds.len() < KINDS_MAX {
                kinds.push(extension);
            }
        }
        Self { of: if kinds.len() > 1 { of } else { Vec::new() }, opened: Vec::new() }
    }

    fn kind(&self, index: u32) -> u8 {
        self.of.get(index as usize).copied().unwrap_or(0)
    }

    /// Whether a file is of the kind that was opened this many kinds before the last one, and at
    /// least `opens` times.
    pub(super) fn is_of(&self, index: u32, kinds_ago: usize, opens: u32) -> bool {
        let kind = self.opened.get(kinds_ago);
        kind.is_some_and(|&(kind, count)| kind == self.kind(index) && count >= opens)
    }

    pub(super) fn opened(&mut self, index: u32) {
        let kind = self.kind(index);
        let known = self.opened.iter().position(|&(other, _)| other == kind);
        let count = known.map_or(0, |at| self.opened.remove(at).1);
        self.opened.insert(0, (kind, count.saturating_add(1)));
    }

    /// How many kinds have opened files.
    pub(super) fn opened_count(&self) -> usize {
        self.opened.len()
    }
}

/// The part of a name after its last dot; empty without one.
fn extension(name: &[u8]) -> &[u8] {
    name.iter().rposition(|&byte| byte == b'.').map_or(&[], |dot| &name[dot + 1..])
}

/// The last opens, as many as there are files. They are numbered from 1.
#[derive(Clone, Debug)]
pub(super) struct Opens {
    log: VecDeque<u32>,
    /// Number of the first open in `log`.
    first: u32,
    /// Numbers of each file's last two opens, the last one first; 0 for none.
    pub(super) numbers: Vec<[u32; 2]>,
}

impl Opens {
    pub(super) fn new(files: u32) -> Self {
        Self { log: VecDeque::new(), first: 1, numbers: vec![[0; 2]; files as usize] }
    }

    pub(super) fn push(&mut self, index: u32) {
        let Some(number) = self.first.checked_add(self.log.len() as u32) else {
            *self = Self::new(self.numbers.len() as u32);
            return;
        };
        let [last, _] = self.numbers[index as usize];
        self.numbers[index as usize] = [number, last];
        self.log.push_back(index);
        if self.log.len() > self.numbers.len().max(RECENT) {
            self.log.pop_front();
            self.first += 1;
        }
    }

    /// Number of the next open.
    pub(super) fn end(&self) -> i64 {
        i64::from(self.first) + self.log.len() as i64
    }

    /// The last opens, the newest first.
    pub(super) fn recent(&self, most: usize) -> impl Iterator<Item = u32> {
        self.log.iter().rev().take(most).copied()
    }

    /// The file of an open, if it was not opened since.
    pub(super) fn file(&self, number: i64) -> Option<u32> {
        let at = usize::try_from(number - i64::from(self.first)).ok()?;
        self.log.get(at).copied().filter(|&index| i64::from(self.numbers[index as usize][0]) == number)
    }
}

/// Compares names by the numbers in them: `a2` is before `a10`.
pub(super) fn by_numbers(a: &[u8], b: &[u8]) -> Ordering {
    let (mut left, mut right) = (a, b);
    while let (Some(x), Some(y)) = (left.first(), right.first()) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let (x, y) = (number(&mut left), number(&mut right));
            x.len().cmp(&y.len()).then(x.cmp(y))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            x.cmp(y)
        };
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len()).then(a.cmp(b))
}

/// Takes the digits at the start of a name; returns them without leading zeros.
fn number<'a>(name: &mut &'a [u8]) -> &'a [u8] {
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let zeros = name[..digits].iter().take_while(|byte| **byte == b'0').count();
    let (all, rest) = name.split_at(digits);
    *name = rest;
    &all[zeros..]
}

/// Most files that are also ordered by the numbers in their names: 10^6 take a second.
const NUMERIC_FILES_MAX: usize = 100_000;
/// Most kinds of files in a directory; others count as one. Names that end in numbers have as many
/// as there are files.
const KINDS_MAX: usize = 15;
