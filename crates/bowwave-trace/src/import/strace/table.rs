//! Open files and positions by process and descriptor.

use std::collections::{BTreeMap, HashMap};

use slab::Slab;

/// An open file, shared by duplicated and inherited descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    /// Empty for pipes, sockets and the like.
    pub(super) path: Vec<u8>,
    /// The file position; `None` if the file was opened before the log began.
    pub(super) position: Option<u64>,
    /// File size in bytes, as far as known.
    pub(super) size: Option<u64>,
    /// Whether writes append.
    pub(super) append: bool,
}

impl Description {
    /// An open pipe, socket or the like.
    pub(super) fn no_file() -> Self {
        Self { path: Vec::new(), position: None, size: None, append: false }
    }
}

/// Index of a description in [`Tables`].
type DescriptionId = usize;

#[derive(Clone, Copy, Debug)]
struct Slot {
    description: DescriptionId,
    /// Whether `execve` closes it.
    close_on_exec: bool,
}

/// The descriptors of a process, or of threads that share them.
#[derive(Debug, Default)]
struct Table {
    slots: BTreeMap<u32, Slot>,
    users: u32,
    /// The first process with this table: its ID stands for all threads.
    owner: u64,
}

/// A call in progress.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) name: Vec<u8>,
    pub(super) text: Vec<u8>,
    pub(super) time_ns: u64,
    /// The assumed child of this call, before it returned.
    pub(super) child: Option<u64>,
}

#[derive(Debug)]
struct Process {
    table: usize,
    /// The working directory, once known.
    directory: Option<Vec<u8>>,
    pending: Option<Pending>,
}

/// All processes, their tables and open files.
#[derive(Debug, Default)]
pub(super) struct Tables {
    processes: HashMap<u64, Process>,
    tables: Slab<Table>,
    descriptions: Slab<(Description, u32)>,
}

impl Tables {
    pub(super) fn knows(&self, pid: u64) -> bool {
        self.processes.contains_key(&pid)
    }

    /// Adds a process without a parent in the log.
    pub(super) fn begin(&mut self, pid: u64) {
        let table = self.tables.insert(Table { users: 1, owner: pid, ..Table::default() });
        self.processes.insert(pid, Process { table, directory: None, pending: None });
    }

    /// Adds `child` with the descriptors of `parent`: shared if `shared`, otherwise copied.
    pub(super) fn fork(&mut self, parent: u64, child: u64, shared: bool) {
        let Some(Process { table, directory, .. }) = self.processes.get(&parent) else { return };
        let (mut table, directory) = (*table, directory.clone());
        if shared {
            self.tables[table].users += 1;
        } else {
            table = self.copy(table, child);
        }
        self.processes.insert(child, Process { table, directory, pending: None });
    }

    /// Ends a process and closes descriptors that only it had open.
    pub(super) fn end(&mut self, pid: u64) -> Option<Pending> {
        let process = self.processes.remove(&pid)?;
        let table = &mut self.tables[process.table];
        table.users -= 1;
        if table.users == 0 {
            for slot in std::mem::take(&mut table.slots).into_values() {
                self.drop_description(slot.description);
            }
            self.tables.remove(process.table);
        }
        process.pending
    }

    /// `pid` runs another program: unshares its descriptors and closes those marked close-on-exec.
    pub(super) fn exec(&mut self, pid: u64) {
        self.unshare(pid);
        let Some(process) = self.processes.get(&pid) else { return };
        let slots = &mut self.tables[process.table].slots;
        let closed: Vec<u32> =
            slots.iter().filter(|(_, slot)| slot.close_on_exec).map(|(&number, _)| number).collect();
        for number in closed {
            self.close(pid, number);
        }
    }

    /// Unshares the descriptors of `pid`.
    pub(super) fn unshare(&mut self, pid: u64) {
        let Some(process) = self.processes.get(&pid) else { return };
        let old = process.table;
        if self.tables[old].users == 1 {
            return;
        }
        let table = self.copy(old, pid);
        self.tables[old].users -= 1;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.table = table;
        }
    }

    /// The thread `from` continues as `to`.
    pub(super) fn rename(&mut self, from: u64, to: u64) {
        if from == to {
            return;
        }
        if let Some(process) = self.processes.remove(&from) {
            self.end(to);
            self.processes.insert(to, process);
        }
    }

    /// Opens `number` as a new file.
    pub(super) fn open(&mut self, pid: u64, number: u32, description: Description, close_on_exec: bool) {
        self.close(pid, number);
        let description = self.descriptions.insert((description, 0));
        self.set(pid, number, Slot { description, close_on_exec });
    }

    /// Duplicates `old` to `new`; both may be the same number.
    pub(super) fn duplicate(&mut self, pid: u64, old: u32, new: u32, close_on_exec: bool) {
        if old == new {
            return;
        }
        self.close(pid, new);
        if let Some(slot) = self.slot(pid, old) {
            self.set(pid, new, Slot { close_on_exec, ..slot });
        }
    }

    pub(super) fn close(&mut self, pid: u64, number: u32) {
        let Some(process) = self.processes.get(&pid) else { return };
        if let Some(slot) = self.tables[process.table].slots.remove(&number) {
            self.drop_description(slot.description);
        }
    }

    /// The open descriptors from `first` to `last`, inclusive.
    pub(super) fn between(&mut self, pid: u64, first: u32, last: u32) -> Vec<u32> {
        let Some(process) = self.processes.get(&pid) else { return Vec::new() };
        if first > last {
            return Vec::new();
        }
        self.tables[process.table].slots.range(first..=last).map(|(&number, _)| number).collect()
    }

    pub(super) fn set_close_on_exec(&mut self, pid: u64, number: u32, on: bool) {
        let Some(process) = self.processes.get(&pid) else { return };
        if let Some(slot) = self.tables[process.table].slots.get_mut(&number) {
            slot.close_on_exec = on;
        }
    }

    /// The open file behind `number`.
    pub(super) fn description(&mut self, pid: u64, number: u32) -> Option<&mut Description> {
        let slot = self.slot(pid, number)?;
        Some(&mut self.descriptions[slot.description].0)
    }

    /// The process of the thread `pid`, or itself.
    pub(super) fn owner(&mut self, pid: u64) -> u64 {
        self.processes.get(&pid).map_or(pid, |process| self.tables[process.table].owner)
    }

    pub(super) fn directory(&self, pid: u64) -> Option<&[u8]> {
        self.processes.get(&pid)?.directory.as_deref()
    }

    pub(super) fn set_directory(&mut self, pid: u64, directory: Vec<u8>) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.directory = Some(directory);
        }
    }

    /// Records a call in progress; returns the previous one that never returned, if any.
    pub(super) fn begin_call(&mut self, pid: u64, pending: Pending) -> Option<Pending> {
        self.processes.get_mut(&pid)?.pending.replace(pending)
    }

    /// The call in progress.
    pub(super) fn pending(&mut self, pid: u64) -> Option<&mut Pending> {
        self.processes.get_mut(&pid)?.pending.as_mut()
    }

    /// Removes the call in progress, to complete it.
    pub(super) fn resume_call(&mut self, pid: u64) -> Option<Pending> {
        self.processes.get_mut(&pid)?.pending.take()
    }

    /// The calls in progress, in arbitrary order.
    pub(super) fn pending_names(&self) -> Vec<&[u8]> {
        let mut pids: Vec<&u64> = self.processes.keys().collect();
        pids.sort_unstable();
        pids.into_iter()
            .filter_map(|pid| self.processes.get(pid)?.pending.as_ref())
            .map(|pending| pending.name.as_slice())
            .collect()
    }

    fn slot(&mut self, pid: u64, number: u32) -> Option<Slot> {
        let process = self.processes.get(&pid)?;
        self.tables[process.table].slots.get(&number).copied()
    }

    fn set(&mut self, pid: u64, number: u32, slot: Slot) {
        let Some(process) = self.processes.get(&pid) else { return };
        self.descriptions[slot.description].1 += 1;
        self.tables[process.table].slots.insert(number, slot);
    }

    fn copy(&mut self, table: usize, owner: u64) -> usize {
        let slots = self.tables[table].slots.clone();
        for slot in slots.values() {
            self.descriptions[slot.description].1 += 1;
        }
        self.tables.insert(Table { slots, users: 1, owner })
    }

    fn drop_description(&mut self, id: DescriptionId) {
        let users = &mut self.descriptions[id].1;
        *users -= 1;
        if *users == 0 {
            self.descriptions.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Description {
        Description { path: path.into(), position: Some(0), size: None, append: false }
    }

    #[test]
    fn copied_tables_diverge_but_share_open_files() {
        let mut tables = Tables::default();
        tables.begin(1);
        tables.open(1, 3, file("a"), false);
        tables.fork(1, 2, false);
        tables.description(2, 3).unwrap().position = Some(7);
        assert_eq!(tables.description(1, 3).unwrap().position, Some(7));
        tables.close(1, 3);
        assert!(tables.description(1, 3).is_none() && tables.description(2, 3).is_some());
        assert_eq!((tables.owner(1), tables.owner(2)), (1, 2));
    }

    #[test]
    fn threads_share_the_table_until_one_runs_another_program() {
        let mut tables = Tables::default();
        tables.begin(1);
        tables.fork(1, 2, true);
        tables.open(2, 3, file("a"), true);
        tables.open(2, 4, file("b"), false);
        assert!(tables.description(1, 3).is_some());
        assert_eq!(tables.owner(2), 1);
        tables.exec(2);
        assert!(tables.description(2, 3).is_none() && tables.description(2, 4).is_some());
        assert!(tables.description(1, 3).is_some());
        assert_eq!(tables.owner(2), 2);
    }

    #[test]
    fn unreferenced_open_files_are_dropped() {
        let mut tables = Tables::default();
        for round in 0..1000 {
            tables.begin(round);
            tables.open(round, 3, file("a"), false);
            tables.duplicate(round, 3, 4, false);
            tables.duplicate(round, 4, 4, false);
            tables.fork(round, round + 5000, round % 2 == 0);
            tables.end(round);
            tables.end(round + 5000);
        }
        assert!(tables.processes.is_empty() && tables.tables.is_empty());
        assert!(tables.descriptions.is_empty());
    }

    #[test]
    fn a_thread_that_replaces_its_process_keeps_its_pending_call() {
        let mut tables = Tables::default();
        tables.begin(1);
        tables.fork(1, 2, true);
        tables.open(1, 3, file("a"), false);
        tables.rename(2, 1);
        tables.rename(1, 1);
        assert!(!tables.knows(2) && tables.description(1, 3).is_some());
    }
}
