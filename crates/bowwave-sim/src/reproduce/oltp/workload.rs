//! MySQL's reads for sysbench: from transactions to rows to leaf pages, with the buffer pool.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bowwave_core::FileId;

use crate::machine::Access;
use bowwave_core::Random;

/// Bytes of a page of InnoDB.
const PAGE_BYTES: u64 = 16 << 10;
/// `--oltp-table-size`.
const TABLE_ROWS: u64 = 10_000_000;
/// Point selects per transaction (`--oltp-point-selects`).
const POINTS: u64 = 10;
/// Range queries per transaction: simple, sum, order, distinct, one each.
const RANGES: u64 = 4;
/// Rows of a range (`--oltp-range-size`).
const RANGE_ROWS: u64 = 100;

/// Distribution and layout of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rows {
    /// Rows per leaf page.
    pub(super) a_page: u64,
    /// Share of draws in the middle of the table (`--oltp-dist-res`).
    pub(super) middle_draws: f64,
    /// Share of the table that counts as its middle (`--oltp-dist-pct`).
    pub(super) middle_rows: f64,
    /// Draws averaged for each other row (`--oltp-dist-iter`).
    pub(super) draws: u64,
    /// Pages of the buffer pool.
    pub(super) pool_pages: u64,
}

impl Rows {
    /// sysbench's defaults; rows of 206 bytes on pages filled to 15/16, as when loaded in order;
    /// InnoDB's default pool.
    pub(super) const DEFAULT: Self = Self {
        a_page: 74,
        middle_draws: 0.75,
        middle_rows: 0.01,
        draws: 12,
        pool_pages: (8 << 20) / PAGE_BYTES,
    };

    /// Bytes of the table.
    pub(super) fn file_bytes(&self) -> u64 {
        self.pages() * PAGE_BYTES
    }

    fn pages(&self) -> u64 {
        TABLE_ROWS.div_ceil(self.a_page)
    }

    fn draw(&self, random: &mut Random) -> u64 {
        if random.unit() < self.middle_draws {
            let middle = (TABLE_ROWS as f64 * self.middle_rows) as u64;
            return (TABLE_ROWS - middle) / 2 + random.below(middle);
        }
        (0..self.draws).map(|_| random.below(TABLE_ROWS)).sum::<u64>() / self.draws
    }

    /// The leaf pages of transaction `number`, in order of access.
    fn pages_of(&self, seed: u64, number: u32, pages: &mut VecDeque<u64>) {
        // A transaction does not depend on its thread or time.
        let mut random = Random::from_state(Random::from_state(seed).bits() ^ u64::from(number) << 20);
        for query in 0..POINTS + RANGES {
            let first = self.draw(&mut random);
            let rows = if query < POINTS { 1 } else { RANGE_ROWS };
            let last = (first + rows - 1).min(TABLE_ROWS - 1);
            pages.extend(first / self.a_page..=last / self.a_page);
        }
    }
}

/// Transactions shared by threads, and the pool.
#[derive(Clone, Debug)]
pub(super) struct Transactions(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rows: Rows,
    seed: u64,
    next: u32,
    transactions: u32,
    pool: Pool,
}

/// The LRU buffer pool.
#[derive(Debug)]
struct Pool {
    /// Last use of each page of the table; 0 if absent.
    used: Vec<u64>,
    /// Uses in order; only the latest of a page counts.
    order: VecDeque<(u64, u64)>,
    now: u64,
    resident: u64,
    pages: u64,
}

impl Pool {
    /// Uses a page; returns whether it was present.
    fn use_page(&mut self, page: u64) -> bool {
        self.now += 1;
        // The table has fewer pages than a usize holds.
        let used = &mut self.used[page as usize];
        let hit = *used > 0;
        *used = self.now;
        self.order.push_back((page, self.now));
        self.resident += u64::from(!hit);
        while self.resident > self.pages {
            let Some((page, at)) = self.order.pop_front() else { break };
            if self.used[page as usize] == at {
                self.used[page as usize] = 0;
                self.resident -= 1;
            }
        }
        hit
    }
}

impl Transactions {
    pub(super) fn new(rows: Rows, transactions: u32, seed: u64) -> Self {
        let pool = Pool {
            used: vec![0; rows.pages() as usize],
            order: VecDeque::new(),
            now: 0,
            resident: 0,
            pages: rows.pool_pages,
        };
        Self(Arc::new(Mutex::new(State { rows, seed, next: 0, transactions, pool })))
    }

    /// Reads of one thread: whole transactions while any are left, without pool hits.
    pub(super) fn thread(&self, file: FileId) -> impl Iterator<Item = Access> + Send + 'static {
        let shared = Arc::clone(&self.0);
        let mut pages = VecDeque::new();
        std::iter::from_fn(move || {
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                let Some(page) = pages.pop_front() else {
                    if state.next == state.transactions {
                        return None;
                    }
                    state.rows.pages_of(state.seed, state.next, &mut pages);
                    state.next += 1;
                    continue;
                };
                if !state.pool.use_page(page) {
                    return Some(Access::read(file, page * PAGE_BYTES, PAGE_BYTES));
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(rows: Rows, transactions: u32) -> Vec<u64> {
        let thread = Transactions::new(rows, transactions, 1).thread(FileId(0));
        thread.map(|access| access.offset / PAGE_BYTES).collect()
    }

    #[test]
    fn a_transaction_reads_ten_rows_and_four_ranges_on_two_or_three_pages() {
        let mut wanted = VecDeque::new();
        Rows::DEFAULT.pages_of(1, 0, &mut wanted);
        assert!((10 + 4 * 2..=10 + 4 * 3).contains(&wanted.len()), "{wanted:?}");
        let neighbours = wanted.iter().zip(wanted.iter().skip(1)).filter(|(a, b)| **b == **a + 1).count();
        assert!(neighbours >= 4, "{wanted:?}");
    }

    #[test]
    fn the_table_has_its_published_size_and_is_hot_in_the_middle() {
        let rows = Rows { pool_pages: 0, ..Rows::DEFAULT };
        assert_eq!(rows.file_bytes() >> 20, 2111);
        let pages = pages(rows, 1000);
        let last = rows.pages();
        let middle = pages.iter().filter(|&&page| (last * 99 / 200..=last * 101 / 200).contains(&page));
        let share = middle.count() as f64 / pages.len() as f64;
        assert!((0.74..0.80).contains(&share), "{share}");
    }

    #[test]
    fn threads_share_transactions_and_the_pool_is_lru() {
        let work = Transactions::new(Rows::DEFAULT, 10, 1);
        let alone: Vec<_> = Transactions::new(Rows::DEFAULT, 10, 1).thread(FileId(0)).collect();
        let first: Vec<_> = work.thread(FileId(0)).take(20).collect();
        let rest: Vec<_> = work.thread(FileId(0)).collect();
        assert_eq!(first[..], alone[..20]);
        assert!(rest.len() < alone.len());
        let mut pool = Pool { used: vec![0; 9], order: VecDeque::new(), now: 0, resident: 0, pages: 2 };
        assert_eq!(
            [1, 2, 1, 3, 1, 2].map(|page| pool.use_page(page)),
            [false, false, true, false, true, false]
        );
    }
}
