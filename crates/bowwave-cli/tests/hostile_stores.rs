//! Every mode of a hostile store against every call of a mount of it.
//!
//! A cell of the table is a mode, a store, a call and a configuration of the mount. Whatever the
//! store does, a call ends within three timeouts with the bytes of one version or with an error,
//! the daemon's memory is bounded, and the daemon serves honest requests afterwards. The expected
//! outcome of a cell is data: `hostile_stores/modes.rs`.
//!
//! Without settings each mode runs with the kernel's cache and with one other configuration, and
//! only the calls whose requests the mode can strike.
//!
//! Environment: `BOWWAVE_HOSTILE_ALL=1` runs every cell; `BOWWAVE_HOSTILE_TABLE=FILE` writes the
//! table; `BOWWAVE_HOSTILE_MODE`, `_STORE`, `_CALL` and `_CONFIG` select cells. The mode may be any
//! text the server can parse. `BOWWAVE_HOSTILE_PARALLEL` groups of cells run at a time: 32 without
//! it.

#[path = "hostile_stores/calls.rs"]
mod calls;
mod common;
#[path = "hostile_stores/modes.rs"]
mod modes;
#[path = "hostile_stores/mounted.rs"]
mod mounted;
#[path = "hostile_stores/table.rs"]
mod table;

use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_testkit::hostile::{Calls, Dialect, Host, HostileServer, Mode, Requests, content};

use calls::{Done, Outcome, Reads};
use common::{can_mount, setting};
use modes::{Call, ROWS, Row};
use mounted::{Config, Mounted, Started, WATCHDOG};
use table::Cell;

/// Cells that share a mount while it is usable.
#[derive(Clone, Copy, Debug)]
struct Group {
    row: Row,
    mode: Mode,
    dialect: Dialect,
    config: Config,
    calls: Selection,
}

/// The selected calls of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    All,
    /// Calls whose requests the mode can strike.
    Struck,
    /// The cheap ones among them.
    StruckAndCheap,
}

#[test]
fn a_hostile_store_never_gives_wrong_bytes_hangs_a_call_or_ends_the_daemon() {
    if !can_mount() {
        return;
    }
    let groups = Arc::new(Mutex::new(groups()));
    let cells = Arc::new(Mutex::new(Vec::new()));
    // A cell mostly waits.
    let workers: Vec<_> = (0..setting("BOWWAVE_HOSTILE_PARALLEL", 32))
        .map(|_| {
            let (groups, cells) = (Arc::clone(&groups), Arc::clone(&cells));
            thread::spawn(move || {
                loop {
                    let next = groups.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    let Some(group) = next else { return };
                    let done = run(group);
                    cells.lock().unwrap_or_else(PoisonError::into_inner).extend(done);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("a worker only reports");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("procfs");
    let ours = format!("/bowwave-stores-{}-", std::process::id());
    assert!(!mounts.contains(&ours), "a mount is left behind: {mounts}");
    let mut cells = std::mem::take(&mut *cells.lock().unwrap_or_else(PoisonError::into_inner));
    try_late_cells_alone(&mut cells);
    table::report(cells);
}

/// Repeats slow cells one at a time: the machine may have been busy with others. Beyond a maximum,
/// none is repeated: then the stores are slow, not the machine.
fn try_late_cells_alone(cells: &mut [Cell]) {
    let late: Vec<&mut Cell> = cells.iter_mut().filter(|cell| cell.is_late()).collect();
    if late.len() <= LATE_MAX {
        for cell in late {
            *cell = one(cell.group, cell.call, &mut None);
        }
    }
}

/// The groups selected by the environment, the last one first.
fn groups() -> Vec<Group> {
    let excluded = |name: &str, value: &str| std::env::var(name).is_ok_and(|wanted| wanted != value);
    let every = setting("BOWWAVE_HOSTILE_ALL", 0) != 0 || std::env::var_os("BOWWAVE_HOSTILE_MODE").is_some();
    let mut groups = Vec::new();
    for (index, row) in rows().into_iter().enumerate() {
        let mode: Mode = row.mode.parse().expect("a mode of the server");
        let (dialects, others) = (row.dialects(), Config::ALL.len() - 1);
        for (place, dialect) in dialects.iter().enumerate() {
            for (order, config) in Config::ALL.into_iter().enumerate() {
                // The first store with the kernel's cache, and one rotating combination of store
                // and configuration.
                let rotated = order == 1 + index % others && place == index % dialects.len();
                let is_first = order == 0 && place == 0;
                if (every || is_first || rotated)
                    && !excluded("BOWWAVE_HOSTILE_CONFIG", config.name())
                    && !excluded("BOWWAVE_HOSTILE_STORE", dialect.scheme())
                {
                    let calls = match (every, rotated) {
                        (true, _) => Selection::All,
                        (false, true) => Selection::StruckAndCheap,
                        (false, false) => Selection::Struck,
                    };
                    groups.push(Group { row, mode, dialect: *dialect, config, calls });
                }
            }
        }
    }
    groups.reverse();
    groups
}

/// The rows of the table, or the mode named by the environment, which may be in no row.
fn rows() -> Vec<Row> {
    let Ok(mode) = std::env::var("BOWWAVE_HOSTILE_MODE") else { return ROWS.to_vec() };
    let found: Vec<Row> = ROWS.iter().filter(|row| row.mode == mode).copied().collect();
    if !found.is_empty() {
        return found;
    }
    let mode: &'static str = mode.leak();
    vec![
        Row { mode, stores: "s3 az gs", expected: "???????" },
        Row { mode, stores: "http", expected: "??.??.." },
    ]
}

impl Group {
    /// Whether `call` is among the selected ones.
    fn runs(&self, call: Call) -> bool {
        let reads = matches!(call, Call::Read | Call::End);
        let lists = matches!(call, Call::Mount | Call::List);
        let struck = match self.mode.calls {
            // The root of a web server is a directory by its URL: mounting it sends no request.
            Calls::All => call != Call::Mount || self.dialect != Dialect::Http,
            Calls::Metadata => !reads && !call.writes(),
            Calls::Reads => reads,
            Calls::Writes | Calls::Puts | Calls::Posts => call.writes(),
            Calls::Heads => !reads && !lists && !call.writes(),
            Calls::Lists => lists,
            Calls::Fetches => !call.writes(),
        };
        match self.calls {
            Selection::All => true,
            Selection::Struck => struck,
            Selection::StruckAndCheap => struck && !matches!(call, Call::Mount | Call::Upload),
        }
    }
}

/// Runs the cells of a group.
fn run(group: Group) -> Vec<Cell> {
    let mut cells = Vec::new();
    let (mut reader, mut writer) = (None, None);
    for call in Call::ALL {
        if std::env::var("BOWWAVE_HOSTILE_CALL").is_ok_and(|wanted| wanted != call.name())
            || group.row.letter(call) == '.'
            || !group.runs(call)
        {
            continue;
        }
        cells.push(one(group, call, if call.writes() { &mut writer } else { &mut reader }));
    }
    cells
}

/// Runs one cell; takes a mount from `slot` or leaves one there.
fn one(group: Group, call: Call, slot: &mut Option<Box<Mounted>>) -> Cell {
    if call == Call::Mount { mount(group) } else { in_mount(group, call, slot) }
}

fn server(dialect: Dialect) -> HostileServer {
    HostileServer::start(dialect).expect("a port of loopback")
}

/// Mounts while the store is hostile.
fn mount(group: Group) -> Cell {
    let server = server(group.dialect);
    server.set_mode(group.mode);
    let begun = Instant::now();
    let started = Mounted::start(server, group.dialect, group.config, true);
    let mut cell = Cell::new(group, Call::Mount);
    cell.time = begun.elapsed();
    let (mut mounted, is_up) = match started {
        Started::Mounted(mounted) => {
            cell.outcome = Outcome::Works;
            (mounted, true)
        }
        Started::Hung(mounted) => {
            cell.outcome = Outcome::Hung;
            (mounted, false)
        }
        Started::Refused(mounted, code) => {
            let said = mounted.said();
            cell.outcome = match code == Some(1) && said.starts_with("bowwave: error: ") {
                true => Outcome::Fails(table::brief(&said)),
                false => Outcome::Wrong(format!("exit code {code:?}: {}", table::brief(&said))),
            };
            if mounted.is_mounted() {
                cell.trouble = Some("the mount is left behind".to_owned());
            }
            (mounted, false)
        }
    };
    let own_kib = std::mem::replace(&mut mounted.idle_kib, idle_kib(group.config));
    cell.measure(&mounted, &Requests::default());
    cell.memory_mib = own_kib.saturating_sub(mounted.idle_kib) >> 10;
    cell.leaks = leaks(&mounted.server);
    if is_up {
        mounted.server.set_mode(Mode::HONEST);
        recover(&mut cell, &mut mounted);
    }
    cell
}

/// Peak of resident memory of an idle mount of an honest store, in KiB.
fn idle_kib(config: Config) -> u64 {
    static IDLE: [OnceLock<u64>; Config::ALL.len()] = [const { OnceLock::new() }; Config::ALL.len()];
    *IDLE[config as usize].get_or_init(|| {
        match Mounted::start(server(Dialect::S3), Dialect::S3, config, true) {
            Started::Mounted(mounted) => mounted.idle_kib,
            Started::Refused(mounted, _) | Started::Hung(mounted) => {
                panic!("an honest store is not mounted: {}", mounted.said())
            }
        }
    })
}

/// Runs `call` in a mount created while the store was correct; takes it from `slot` or leaves it
/// there.
fn in_mount(group: Group, call: Call, slot: &mut Option<Box<Mounted>>) -> Cell {
    let mut cell = Cell::new(group, call);
    let mut mounted = match slot.take() {
        Some(mounted) => mounted,
        None => match Mounted::start(server(group.dialect), group.dialect, group.config, !call.writes()) {
            Started::Mounted(mounted) => mounted,
            Started::Refused(mounted, _) | Started::Hung(mounted) => {
                let said = table::brief(&mounted.said());
                cell.outcome = Outcome::Wrong(format!("an honest store is not mounted: {said}"));
                cell.time = WATCHDOG;
                return cell;
            }
        },
    };
    mounted.written += 1;
    let (at, written, fault) = (mounted.at.clone(), mounted.written, group.mode.fault);
    let prepared = within(WATCHDOG, move || calls::prepared(call, fault, &at, written));
    let job = match prepared {
        Some(Ok(job)) => job,
        Some(Err(error)) => {
            cell.outcome = Outcome::Wrong(format!("an honest store fails: {error}"));
            cell.time = WATCHDOG;
            return cell;
        }
        None => {
            cell.outcome = Outcome::Wrong("an honest store hangs".to_owned());
            cell.time = WATCHDOG;
            return cell;
        }
    };
    let before = mounted.server.requests();
    mounted.forget_peak();
    mounted.server.set_mode(group.mode);
    if call == Call::End {
        return end(cell, mounted, job, &before);
    }
    let (done, time) = watched(job, &mounted);
    cell.time = time;
    cell.outcome = match done {
        Some(done) => calls::judged(done, call, fault, &mounted.server),
        None => Outcome::Hung,
    };
    cell.measure(&mounted, &before);
    cell.leaks = leaks(&mounted.server);
    mounted.server.set_mode(Mode::HONEST);
    if cell.outcome == Outcome::Hung {
        // The call ends with the daemon.
        mounted.kill();
        return cell;
    }
    recover(&mut cell, &mut mounted);
    if cell.is_well() {
        *slot = Some(mounted);
    }
    cell
}

/// Ends the daemon while a read is in flight.
fn end(mut cell: Cell, mut mounted: Box<Mounted>, job: calls::Job, before: &Requests) -> Cell {
    let reader = thread::spawn(move || job(&Reads::default()));
    // Most modes have struck by then, and no timeout has expired.
    thread::sleep(Duration::from_millis(300));
    cell.measure(&mounted, before);
    cell.outcome = match mounted.terminate(WATCHDOG) {
        Some(time) => {
            cell.time = time;
            Outcome::Works
        }
        None => {
            cell.time = WATCHDOG;
            Outcome::Hung
        }
    };
    if mounted.is_mounted() {
        cell.trouble = Some("the mount is left behind".to_owned());
    }
    mounted.kill();
    let object = calls::key(Call::End, cell.fault());
    // Without the daemon the kernel ends the read.
    if let Ok(Done::Bytes(bytes, _)) = reader.join()
        && !mounted.server.versions(object).iter().any(|version| version.starts_with(&bytes))
    {
        cell.trouble = Some("a read in flight has wrong bytes".to_owned());
    }
    cell
}

/// Checks that the daemon lives and serves an honest request.
fn recover(cell: &mut Cell, mounted: &mut Mounted) {
    if !mounted.is_alive() {
        cell.trouble = Some(format!("the daemon has ended: {}", table::brief(&mounted.said())));
        return;
    }
    let (at, index) = (mounted.at.clone(), mounted.checks);
    mounted.checks += 1;
    let number = calls::honest_file(index);
    let expected = content(&format!("honest/{number}"), 1, 70_000 + number as usize);
    let begun = Instant::now();
    let read = within(WATCHDOG, move || calls::honest_read(&at, number));
    cell.recovery = begun.elapsed();
    cell.trouble = match read {
        None => Some("an honest read afterwards hangs".to_owned()),
        Some(Err(error)) => Some(format!("an honest read afterwards fails: {error}")),
        Some(Ok(bytes)) if bytes != expected => Some("an honest read afterwards has wrong bytes".to_owned()),
        Some(Ok(_)) if mounted.said().contains("panic") => Some("the daemon has panicked".to_owned()),
        Some(Ok(_)) => None,
    };
}

/// The result of `job` on a thread of its own; `None` if it takes longer than `limit`.
fn within<T: Send + 'static>(limit: Duration, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || sender.send(job()));
    receiver.recv_timeout(limit).ok()
}

/// The result of `job`, and its longest system call to within 100 ms. `None` if a system call
/// exceeds the watchdog, or the daemon uses more memory than the machine can spare.
fn watched(job: calls::Job, mounted: &Mounted) -> (Option<Done>, Duration) {
    let (sender, receiver) = sync_channel(1);
    let reads = Arc::new(Reads::default());
    let counted = Arc::clone(&reads);
    thread::spawn(move || sender.send(job(&counted)));
    let (mut begun, mut seen, mut longest) = (Instant::now(), 0, Duration::ZERO);
    loop {
        let received = receiver.recv_timeout(Duration::from_millis(100));
        longest = longest.max(begun.elapsed());
        match received {
            Ok(done) => return (Some(done), longest),
            Err(_) if longest > WATCHDOG || mounted.peak_kib() > PEAK_KIB_MAX => {
                return (None, longest);
            }
            Err(_) => {}
        }
        let count = reads.count.load(Ordering::Relaxed);
        if count != seen {
            (begun, seen) = (Instant::now(), count);
        }
    }
}

/// A secret header that reached the second host.
fn leaks(server: &HostileServer) -> Option<String> {
    let other = server.recorded().into_iter().filter(|request| request.host == Host::Other);
    let mut names = other.flat_map(|request| request.headers).map(|(name, _)| name);
    names.find(|name| SECRETS.contains(&name.as_str()))
}

/// Headers for the store only.
const SECRETS: [&str; 5] = ["authorization", "x-amz-security-token", "x-ms-copy-source", "cookie", "referer"];
/// Maximum cells to repeat alone; each takes up to 15 s.
const LATE_MAX: usize = 24;
/// Memory in KiB at which a daemon is killed: many run concurrently.
const PEAK_KIB_MAX: u64 = 512 << 10;
/// Three times the timeout of the mounts.
const LIMIT: Duration = Duration::from_secs(6);
