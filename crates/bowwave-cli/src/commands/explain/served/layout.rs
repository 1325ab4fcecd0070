//! The rows of a trace, and the layout of its files on the device: one after the other, in order of
//! appearance.

use std::collections::HashMap;

use bowwave_core::PageSize;
use bowwave_trace::{Op, Record};

use super::super::{Input, ROWS_A_REPORT};
use crate::Failure;
use crate::progress::Progress;

/// Bytes of a page, as the trace format defines it.
pub(super) const PAGE: PageSize = PageSize::KIB_4;
/// Maximum pages of a row, as without a scheduler.
const ROW_PAGES_MAX: u64 = 1 << 20;
/// Alignment of files in pages, as in a replay.
const FILE_PAGES_ALIGNMENT: u64 = 256;
/// Maximum pages of all files: 2^62 bytes, so that addresses do not overflow.
const DEVICE_PAGES_MAX: u64 = 1 << (62 - PAGE.shift());

/// A trace, laid out.
#[derive(Debug)]
pub(super) struct Layout {
    /// In order of time.
    pub(super) rows: Vec<Row>,
    pub(super) files: Vec<File>,
    /// Skipped rows.
    pub(super) left_out: u64,
}

/// A row; its pages lie within its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) number: u64,
    pub(super) time_ns: u64,
    pub(super) pid: u64,
    pub(super) op: Op,
    pub(super) file: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether it ends inside its last page.
    pub(super) ends_inside: bool,
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) name: String,
    /// Its first page on the device.
    pub(super) at: u64,
    pub(super) pages: u64,
}

impl Layout {
    /// Reads a whole trace. Files have `file_pages`, or end with their last access.
    pub(super) fn read(input: &mut Input, file_pages: Option<u64>) -> Result<Self, Failure> {
        let mut progress = Progress::bytes("reading", input.total);
        let mut layout = Self { rows: Vec::new(), files: Vec::new(), left_out: 0 };
        let (mut names, mut record, mut number, mut now) = (HashMap::new(), Record::default(), 0, 0);
        while input.rows.read(&mut record).map_err(Failure::failed)? {
            // Rows of several processes may be out of order.
            now = record.time_ns.max(now);
            layout
                .row(&mut names, &Record { time_ns: now, ..std::mem::take(&mut record) }, number, file_pages)
                .map_err(|what| failed!("{}: row {number}: {what}", input.name))?;
            number += 1;
            if number % ROWS_A_REPORT == 0 {
                progress.at(input.rows.bytes_read());
            }
        }
        for (repair, count) in input.rows.repairs().iter() {
            note!("{}: {count}", repair.description());
        }
        let mut at = 0u64;
        for file in &mut layout.files {
            file.at = at;
            at = at.saturating_add(file.pages).next_multiple_of(FILE_PAGES_ALIGNMENT);
            if at > DEVICE_PAGES_MAX {
                let what = "all files together take more than 2^62 bytes, and no device has so many";
                return Err(failed!("{}: {what}", input.name));
            }
        }
        Ok(layout)
    }

    fn row(
        &mut self,
        names: &mut HashMap<String, u32>,
        record: &Record,
        number: u64,
        file_pages: Option<u64>,
    ) -> Result<(), String> {
        if record.op == Op::DontNeed {
            self.left_out += 1;
            return Ok(());
        }
        let file = match names.get(&record.file) {
            Some(&file) => file,
            None => {
                let file = u32::try_from(self.files.len()).map_err(|_| "more than 2^32 files".to_owned())?;
                names.insert(record.file.clone(), file);
                let pages = file_pages.unwrap_or(0);
                self.files.push(File { name: record.file.clone(), at: 0, pages });
                file
            }
        };
        let request = PAGE.request_of(record.offset, record.length);
        let range = request.range;
        let end = file_pages.map_or(range.end.0, |pages| range.end.0.min(pages));
        let start = range.start.0.min(end);
        let Record { time_ns, pid, op, .. } = *record;
        if op != Op::Evict && op != Op::Fsync {
            if op.is_access() && end - start > ROW_PAGES_MAX {
                return Err(format!(
                    "{} pages at once; a row may touch {ROW_PAGES_MAX} at most",
                    end - start
                ));
            }
            let pages = &mut self.files[file as usize].pages;
            // Advice may reach past the end of the file.
            *pages = if op.is_access() && start < end { end.max(*pages) } else { *pages };
        }
        self.rows.push(Row { number, time_ns, pid, op, file, start, end, ends_inside: request.ends_inside });
        Ok(())
    }
}
