//! Readahead across the files of a directory: which files a program opens next.
//!
//! The same questions as within a file, one level up. A file has a rank in each [`Order`]: in the
//! listing, in the order of the numbers in its name, and in the order of its last opens.
//!
//! | opens | reason | read ahead |
//! |---|---|---|
//! | the first two, neighbours in an order | [`Sequence`](SiblingReason::Sequence) | the next two |
//! | three at one distance in an order, forwards or backwards | [`Sequence`](SiblingReason::Sequence), [`Stride`](SiblingReason::Stride), [`Again`](SiblingReason::Again) | the next at that distance, as many as the run has had |
//! | distances in the listing that repeat | [`Jumps`](SiblingReason::Jumps) | the next by these distances, as many as fitted |
//! | eight in no order, none twice | [`Sample`](SiblingReason::Sample) | files that were not opened, with extensions that were |
//! | fewer, after samples in other directories paid | [`Sample`](SiblingReason::Sample) | the same ([`SamplePrior`]) |
//!
//! **Readers overtake each other.** Several processes that take files from one list open them
//! almost in its order. So an open near the expected one also continues a run: at most half the
//! run's length away, and at most sixteen files.
//!
//! **Passes.** A pass is one reading of the directory. It ends when a file is opened a second time
//! in it, if it has opened nine tenths of the files. The next pass may sample again.
//!
//! **A run goes on in the next directory** if it has reached the end of its own: a program that
//! walks a tree, or takes its classes one after another, does not begin anew in each directory
//! ([`Siblings::go_on_from`]).
//!
//! **As much is read ahead of a file** as programs read of those that they closed before it, at its
//! beginning and at its end ([`SiblingUses`]).
//!
//! **The reads of a file predict** those of files that are read at the same offsets in the same
//! order ([`SiblingTrails`]).
//!
//! **Waste is bounded.** Files that were read ahead and not opened, in memory or dropped from it,
//! are at most as many as the opened ones, counted over the directories that a run went through.
//! For samples they are half as many, until random opens would have opened three files twice, and
//! none was opened twice.

mod directories;
mod extent;
mod orders;
mod prior;
#[cfg(test)]
mod tests;
mod trail;
mod trails;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

pub use directories::{PlannedSibling, SiblingDirectories, SiblingEvent};
pub use extent::{SiblingExtent, SiblingUses};
use orders::{Kinds, Opens, Order, Ranked};
pub use prior::SamplePrior;
pub use trails::{SiblingFetch, SiblingTrails};

/// Why a file is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiblingReason {
    /// The program opens neighbours, in either direction.
    Sequence,
    /// The program opens each n-th file.
    Stride,
    /// The program opens files in the order in which they were opened before.
    Again,
    /// The program opens files at distances that repeat.
    Jumps,
    /// The program opens files in no order, and none twice.
    Sample,
}

impl SiblingReason {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::Stride => "stride",
            Self::Again => "again",
            Self::Jumps => "jumps",
            Self::Sample => "sample",
        }
    }
}

/// A file to read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sibling {
    /// Its position in the listing.
    pub index: u32,
    /// Why.
    pub reason: SiblingReason,
}

/// The opens of one directory.
#[derive(Clone, Debug)]
pub struct Siblings {
    files: Vec<State>,
    numeric: Option<Ranked>,
    kinds: Kinds,
    opens: Opens,
    runs: VecDeque<Run>,
    jumps: Option<Jumps>,
    /// Opens of this pass, each file once.
    opened: u32,
    /// Files of this pass that were opened again.
    repeated: u32,
    /// Opens of earlier passes, each file once a pass.
    opened_before: u32,
    /// Number of the first open of this pass.
    pass: i64,
    /// Files read ahead that are neither opened nor dropped.
    ahead: u32,
    /// Files read ahead that were dropped before they were opened.
    wasted: u32,
    /// Files that may be read ahead here for opens in other directories; below 0, opens here that
    /// count elsewhere.
    credit: i64,
    /// Where the next sample begins.
    cursor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unread,
    Ahead,
    /// Read ahead, by a sample.
    Sampled,
    Opened,
}

impl State {
    fn is_ahead(self) -> bool {
        matches!(self, Self::Ahead | Self::Sampled)
    }
}

/// Opens at one distance in an order. Several readers have one each.
#[derive(Clone, Copy, Debug)]
struct Run {
    order: Order,
    /// Rank behind the farthest open.
    next: i64,
    distance: i64,
    length: u32,
    /// Rank behind the farthest planned file.
    planned: i64,
    /// It opens files that were opened before in this pass.
    again: bool,
    /// It came from another directory.
    came: bool,
}

/// Distances that repeat.
#[derive(Clone, Copy, Debug)]
struct Jumps {
    period: usize,
    /// Opens that fitted.
    length: u32,
}

impl Siblings {
    /// A directory of `files` files, of which none was opened.
    pub fn new(files: u32) -> Self {
        Self {
            files: vec![State::Unread; files as usize],
            numeric: None,
            kinds: Kinds::default(),
            opens: Opens::new(files),
            runs: VecDeque::with_capacity(RUNS),
            jumps: None,
            opened: 0,
            repeated: 0,
            opened_before: 0,
            pass: 1,
            ahead: 0,
            wasted: 0,
            credit: 0,
            cursor: 0,
        }
    }

    /// A directory of the files with these names, in the order of its listing. Names with numbers
    /// of different lengths have a second order.
    pub fn of<N: AsRef<[u8]>>(names: &[N]) -> Self {
        // A directory has fewer files.
        let files = names.len().min(u32::MAX as usize) as u32;
        Self { numeric: Ranked::by_numbers(names), kinds: Kinds::of(names), ..Self::new(files) }
    }

    /// Files that were read ahead and not opened yet.
    pub fn ahead(&self) -> u32 {
        self.ahead
    }

    /// A program opens a file. Appends the files to read ahead, in this order; memory has space for
    /// `room` more. `prior` is that of all directories of a mount.
    pub fn opened(&mut self, index: u32, room: u32, prior: &mut SamplePrior, out: &mut Vec<Sibling>) {
        let Some(&before) = self.files.get(index as usize) else { return };
        if before == State::Opened && self.opens.recent(AT_ONCE).any(|other| other == index) {
            // The same program opens it twice, for its type and for its bytes.
            return;
        }
        self.count(index, before);
        self.kinds.opened(index);
        if before == State::Sampled {
            prior.hit();
        }
        let run = self.follow(index, before);
        self.opens.push(index);
        let jumps = self.jumps();
        match (run, jumps) {
            (Some(run), Some(jumps)) if jumps.length > run.length => self.jump(jumps, room, out),
            (Some(_), _) => self.extend(room, out),
            (None, Some(jumps)) => self.jump(jumps, room, out),
            (None, None) => self.sample(index, room, prior, out),
        }
    }

    /// A program goes from directory `before` to this one, of which it has opened no file: a run
    /// that is through `before` goes on here, and with it what the opens there allow to read ahead.
    /// Appends the files to read ahead, as [`opened`](Self::opened) does.
    pub fn go_on_from(&mut self, before: &mut Self, room: u32, out: &mut Vec<Sibling>) {
        let Some(run) = before.runs.back().copied().filter(|run| before.is_through(run)) else { return };
        if self.opened > 0 {
            return;
        }
        let moved = before.left(before.opened_at_all());
        before.credit -= i64::from(moved);
        self.credit += i64::from(moved);
        if self.runs.is_empty() {
            let order = if self.numeric.is_some() { run.order } else { Order::Listing };
            let next = if run.distance > 0 { 0 } else { self.files.len() as i64 - 1 };
            self.runs.push_back(Run { order, next, planned: next, came: true, ..run });
        }
        self.extend(room, out);
    }

    /// Whether a run that came from another directory is through this one, as far as it has
    /// planned: the next files are in the next directory.
    pub fn goes_on(&self) -> bool {
        self.runs.back().is_some_and(|run| run.came && run.distance > 0 && self.is_through(run))
    }

    /// Whether a run of neighbours has planned or opened its directory up to the end.
    fn is_through(&self, run: &Run) -> bool {
        let end = if run.distance > 0 { self.files.len() as i64 - 1 } else { 0 };
        let passed = |rank: i64| (rank - end) * run.distance > 0;
        run.order != Order::Time && run.distance.abs() == 1 && (passed(run.next) || passed(run.planned))
    }

    /// A file that was read ahead lost its memory before it was opened, or could not be read.
    pub fn dropped(&mut self, index: u32) {
        let Some(state) = self.files.get_mut(index as usize) else { return };
        if state.is_ahead() {
            *state = State::Unread;
            self.ahead -= 1;
            self.wasted += 1;
        }
    }

    /// A planned file needs no readahead: memory has it.
    pub fn resident(&mut self, index: u32) {
        if let Some(state) = self.files.get_mut(index as usize).filter(|state| state.is_ahead()) {
            *state = State::Opened;
            self.ahead -= 1;
        }
    }

    /// Whether a file is read ahead and not opened yet.
    pub fn is_ahead(&self, index: u32) -> bool {
        self.files.get(index as usize).is_some_and(|state| state.is_ahead())
    }

    fn count(&mut self, index: u32, before: State) {
        match before {
            State::Opened if u64::from(self.opened) * 10 >= self.files.len() as u64 * 9 => {
                for state in self.files.iter_mut().filter(|state| **state == State::Opened) {
                    *state = State::Unread;
                }
                self.opened_before = self.opened_before.saturating_add(self.opened);
                (self.opened, self.repeated) = (1, 0);
                self.pass = self.opens.end();
            }
            State::Opened => self.repeated += 1,
            State::Ahead | State::Sampled => {
                self.ahead -= 1;
                // A run may have read it ahead again.
                self.opened += u32::from(i64::from(self.opens.numbers[index as usize][0]) < self.pass);
            }
            State::Unread => self.opened += 1,
        }
        self.files[index as usize] = State::Opened;
    }

    /// The rank of a file: in time, of its last open or of the one before.
    fn rank(&self, order: Order, index: u32, opens_ago: usize) -> Option<i64> {
        match order {
            Order::Listing => Some(i64::from(index)),
            Order::Numeric => self.numeric.as_ref().map(|numeric| i64::from(numeric.ranks[index as usize])),
            Order::Time => Some(i64::from(self.opens.numbers[index as usize][opens_ago])).filter(|&n| n > 0),
        }
    }

    fn file(&self, order: Order, rank: i64) -> Option<u32> {
        let at = usize::try_from(rank).ok()?;
        match order {
            Order::Listing => u32::try_from(at).ok().filter(|_| at < self.files.len()),
            Order::Numeric => self.numeric.as_ref()?.files.get(at).copied(),
            Order::Time => self.opens.file(rank),
        }
    }

    /// The run that an open continues or begins; it is the last one in `runs` then.
    fn follow(&mut self, index: u32, before: State) -> Option<Run> {
        let steps = |run: &Run| {
            let past = self.rank(run.order, index, 0)? - run.next;
            let most = i64::from((run.length / 2).min(OVERTAKEN_MAX));
            let steps = past / run.distance;
            (past % run.distance == 0 && steps.abs() <= most).then_some(steps)
        };
        let found = self.runs.iter().enumerate().filter_map(|(at, run)| Some((at, steps(run)?)));
        let longest = found.max_by_key(|&(at, steps)| (self.runs[at].length, -steps.abs()));
        if let Some((at, steps)) = longest {
            let mut run = self.runs.remove(at)?;
            if steps >= 0 {
                run.next += (steps + 1) * run.distance;
                run.again = before == State::Opened || before.is_ahead() && run.again;
            }
            run.length += 1;
            self.runs.push_back(run);
            return Some(run);
        }
        // Among the last opens of few files, some follow each other as before by chance.
        let in_time = (self.opened as usize / 16).clamp(2, RECENT);
        let begin = |order, recent| self.begin(order, index, recent);
        // Files 1, 2 and 3 of a hundred are eleven apart in the listing.
        let by_name = |recent| {
            let runs = [begin(Order::Listing, recent), begin(Order::Numeric, recent)];
            runs.into_iter().flatten().min_by_key(|run| run.distance.abs())
        };
        let run = by_name(2).or_else(|| begin(Order::Time, in_time)).or_else(|| by_name(RECENT));
        let run = run.or_else(|| self.begin_at_once(index))?;
        let run = Run { again: before == State::Opened, ..run };
        self.runs.push_back(run);
        // Runs among few files are often none.
        if self.runs.len() > RUNS.min(self.files.len() / RECENT).max(1) {
            self.runs.pop_front();
        }
        Some(run)
    }

    /// A run that begins with two of the last `recent` opens, and this one, at the same distance.
    /// The shortest distance wins.
    fn begin(&self, order: Order, index: u32, recent: usize) -> Option<Run> {
        let rank = self.rank(order, index, 0)?;
        let most = match order {
            // Strides in time are strides in another order.
            Order::Time => 1,
            _ if recent == 2 => DISTANCE_MAX,
            // Among many recent opens of few files, some have equal distances by chance.
            _ => {
                let sparse = (self.files.len() / RECENT).min(1 << 10);
                DISTANCE_MAX.min((sparse * sparse / CHANCE) as i64).max(1)
            }
        };
        let recent = || self.opens.recent(recent).filter_map(|other| self.rank(order, other, 1));
        let distances = recent().map(|other| rank - other);
        let fits = distances.filter(|distance| (1..=most).contains(&distance.abs()));
        let fits = fits.filter(|&distance| distance > 0 || order != Order::Time);
        let is_third = |distance: &i64| recent().any(|other| other == rank - 2 * distance);
        let distance = fits.filter(is_third).min_by_key(|distance| distance.abs())?;
        let next = rank + distance;
        Some(Run { order, next, distance, length: 3, planned: next, again: false, came: false })
    }

    /// A run of two: the first two opens of a directory are of neighbours.
    fn begin_at_once(&self, index: u32) -> Option<Run> {
        let first = self.opens.recent(1).next().filter(|_| self.opens.end() == 2)?;
        let is_chance = self.files.len() < AT_ONCE_MIN;
        let begin = |order| {
            let rank = self.rank(order, index, 0)?;
            let distance = rank - self.rank(order, first, 0)?;
            let next = rank + distance;
            (distance.abs() == 1 && !is_chance).then_some(Run {
                order,
                next,
                distance,
                length: 2,
                planned: next,
                again: false,
                came: false,
            })
        };
        // Numbers in names say more than the order of their digits.
        begin(Order::Numeric).or_else(|| begin(Order::Listing))
    }

    /// Plans the files of the last run.
    fn extend(&mut self, room: u32, out: &mut Vec<Sibling>) {
        let Some(mut run) = self.runs.pop_back() else { return };
        let reason = match run.order {
            Order::Time => SiblingReason::Again,
            _ if run.distance.abs() == 1 => SiblingReason::Sequence,
            _ => SiblingReason::Stride,
        };
        let mut left = self.left(self.opened_at_all()).min(room);
        let end = run.next + i64::from(run.length.min(SIBLING_WINDOW_MAX)) * run.distance;
        let is_behind = |a: i64, b: i64| if run.distance > 0 { a < b } else { a > b };
        if is_behind(run.planned, run.next) {
            run.planned = run.next;
        }
        while left > 0 && is_behind(run.planned, end) {
            if run.order == Order::Time && run.planned >= self.opens.end() {
                break;
            }
            let file = self.file(run.order, run.planned);
            run.planned += run.distance;
            let Some(index) = file else { continue };
            let state = self.files[index as usize];
            if state == State::Unread || run.again && state == State::Opened {
                self.read_ahead(index, reason, out);
                left -= 1;
            }
        }
        self.runs.push_back(run);
    }

    /// Distances in the listing that repeat, the shortest period first.
    fn jumps(&mut self) -> Option<Jumps> {
        let recent: Vec<i64> = self.opens.recent(2 * PERIOD_MAX + 1).map(i64::from).collect();
        let distance = |at: usize| Some(recent.get(at)? - recent.get(at + 1)?);
        if let Some(jumps) = &mut self.jumps {
            if distance(0) == distance(jumps.period) {
                jumps.length += 1;
                return self.jumps;
            }
            self.jumps = None;
        }
        let repeats = |period: usize| (0..period).all(|at| distance(at) == distance(at + period));
        let is_known = |period: usize| recent.len() > 2 * period;
        let period = (2..=PERIOD_MAX).find(|&period| is_known(period) && repeats(period))?;
        // One distance alone is a run.
        if (1..period).all(|at| distance(at) == distance(0)) {
            return None;
        }
        self.jumps = Some(Jumps { period, length: period as u32 });
        self.jumps
    }

    fn jump(&mut self, jumps: Jumps, room: u32, out: &mut Vec<Sibling>) {
        let recent: Vec<i64> = self.opens.recent(jumps.period + 1).map(i64::from).collect();
        let mut left = self.left(self.opened_at_all()).min(room);
        let Some(mut place) = recent.first().copied() else { return };
        for step in 0..jumps.length.min(SIBLING_WINDOW_MAX) as usize {
            let at = jumps.period - 1 - step % jumps.period;
            place += recent[at] - recent[at + 1];
            let Some(index) = self.file(Order::Listing, place) else { break };
            if left == 0 {
                break;
            }
            if self.files[index as usize] == State::Unread {
                self.read_ahead(index, SiblingReason::Jumps, out);
                left -= 1;
            }
        }
    }

    fn sample(&mut self, index: u32, room: u32, prior: &mut SamplePrior, out: &mut Vec<Sibling>) {
        let returns = self.repeated.saturating_mul(REPEATED_SHARE) > self.opened;
        if returns {
            return;
        }
        prior.opened();
        // What other directories have shown.
        let early = self.ahead.saturating_add(self.wasted).saturating_add(prior.left());
        let (most, step) = if self.opened < SAMPLE_MIN {
            if self.opened < prior.opens_min() {
                return;
            }
            (early, SIBLING_WINDOW_MAX)
        } else {
            // Opens with replacement would repeat a file n * n / 2N times in n opens of N files.
            let by_chance = u64::from(self.opened).pow(2) / (2 * self.files.len() as u64);
            let is_sure = self.opened_before > 0 || self.repeated == 0 && by_chance >= SURE_REPEATS;
            let most = if is_sure { self.opened_at_all() } else { self.opened / 2 };
            (if prior.pays() { most.max(early) } else { most }, SAMPLE_STEP)
        };
        let mut left = self.left(most).min(room).min(step);
        // A single open of a kind is often one of a program that reads another kind.
        let opens = self.opened.min(2);
        if self.cursor == 0 {
            self.cursor = index;
        }
        for kind in 0..self.kinds.opened_count() {
            let begin = self.cursor;
            for step in 1..=self.files.len() as u32 {
                if left == 0 {
                    return;
                }
                let at = ((u64::from(begin) + u64::from(step)) % self.files.len() as u64) as u32;
                if self.files[at as usize] == State::Unread && self.kinds.is_of(at, kind, opens) {
                    self.cursor = at;
                    self.read_ahead(at, SiblingReason::Sample, out);
                    prior.planned();
                    left -= 1;
                }
            }
        }
    }

    fn read_ahead(&mut self, index: u32, reason: SiblingReason, out: &mut Vec<Sibling>) {
        let is_sample = reason == SiblingReason::Sample;
        self.files[index as usize] = if is_sample { State::Sampled } else { State::Ahead };
        self.ahead += 1;
        out.push(Sibling { index, reason });
    }

    fn opened_at_all(&self) -> u32 {
        self.opened_before.saturating_add(self.opened)
    }

    /// Files that may be read ahead now, if `most` may be unopened.
    fn left(&self, most: u32) -> u32 {
        let left = i64::from(most) + self.credit - i64::from(self.ahead) - i64::from(self.wasted);
        left.clamp(0, i64::from(u32::MAX)) as u32
    }
}

/// A file that is not opened within this time after it was read ahead is dropped.
pub const SIBLING_UNUSED_MAX: Duration = Duration::from_secs(30);
/// Files that are read ahead before they are opened use one in this many bytes of the cache. More
/// memory: readers within files lose theirs.
pub const SIBLING_SHARE: u64 = 2;

/// Opens that are compared with the next one. More: more runs that are none.
const RECENT: usize = 32;
/// Runs that are followed at once.
const RUNS: usize = 32;
/// Longest distance of a run: ranks of a job read each n-th file.
const DISTANCE_MAX: i64 = 64;
/// One in this many opens in no order may begin a run by chance.
const CHANCE: usize = 40;
/// Most files ahead of one run.
pub const SIBLING_WINDOW_MAX: u32 = 128;
/// Most files by which readers of one list overtake each other.
const OVERTAKEN_MAX: u32 = 16;
/// Longest period of distances that repeat.
const PERIOD_MAX: usize = 8;
/// Two opens of neighbours in a directory of fewer files may be chance.
const AT_ONCE_MIN: usize = 8;
/// A file that is opened again within this many opens is opened once, by one program.
const AT_ONCE: usize = 8;
/// Opens in no order before the rest of the directory is read ahead.
const SAMPLE_MIN: u32 = 8;
/// Files that one open in no order adds. More: a burst of requests before the next open.
const SAMPLE_STEP: u32 = 4;
/// If more than one in this many opens is of a file that was opened before, the program does not
/// sample without replacement.
const REPEATED_SHARE: u32 = 8;
/// If chance would have opened this many files twice, and none was, the program samples without
/// replacement.
const SURE_REPEATS: u64 = 3;
