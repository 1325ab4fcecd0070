//! The formats, their names, and their detection.

use std::path::Path;

use super::records::Kind;
use super::{blkparse, columns, fio, strace, tracefs};
use crate::{HEADER, binary};

bowwave_core::named_enum! {
    /// A trace format.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Format {
        /// bowwave's own CSV.
        Csv = "csv",
        /// bowwave's own binary form, `.bwt`.
        Binary = "bwt",
        /// fio's `write_iolog`, versions 2 and 3.
        Fio = "fio",
        /// A log of `strace`, with or without `-f`, `-t`, `-tt`, `-ttt`, `-r`, `-y`, `-T`.
        Strace = "strace",
        /// The default output of `blkparse`.
        Blkparse = "blkparse",
        /// The kernel's page cache events in the format of tracefs.
        Tracefs = "tracefs",
        /// Block traces of MSR Cambridge.
        Msr = "msr",
        /// Block traces of Alibaba Cloud.
        Alibaba = "alibaba",
        /// Block traces of Tencent Cloud.
        Tencent = "tencent",
        /// Block traces of the Storage Performance Council.
        Spc = "spc",
        /// Traces of the ARC paper, `.lis`.
        Arc = "arc",
        /// Traces of the LIRS paper, one block a line.
        Lirs = "lirs",
        /// Traces for the simulator MQSim.
        Mqsim = "mqsim",
        /// vscsi traces, in either of their binary forms.
        Vscsi = "vscsi",
        /// vscsi traces as CSV.
        VscsiCsv = "vscsi-csv",
        /// libCacheSim's oracleGeneral, detected only by name.
        OracleGeneral = "oracle-general",
    }
}

impl Format {
    /// Detects the format of a trace from its first (unpacked) bytes `head` and its `name`; `None`
    /// if unknown or ambiguous.
    ///
    /// The first lines of `head` count, except its last line, which may be truncated. So a few
    /// kilobytes are more reliable than a few bytes.
    pub fn detect(head: &[u8], name: &Path) -> Option<Self> {
        let text = head.strip_prefix("\u{feff}".as_bytes()).unwrap_or(head);
        if text.starts_with(HEADER.as_bytes()) {
            return Some(Self::Csv);
        }
        if binary::is_binary(head) {
            return Some(Self::Binary);
        }
        if is_oracle_general(name) {
            return Some(Self::OracleGeneral);
        }
        if fio::is_log(text) {
            return Some(Self::Fio);
        }
        if text.starts_with(b"# tracer:") {
            return Some(Self::Tracefs);
        }
        if Kind::of_vscsi(head).is_some() {
            return Some(Self::Vscsi);
        }
        Self::of_lines(text).or_else(|| Self::of_name(name))
    }

    /// The format of the lines of `text`.
    fn of_lines(text: &[u8]) -> Option<Self> {
        let mut lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
        if lines.len() > 1 {
            lines.pop();
        }
        lines.retain(|line| !line.trim_ascii().is_empty());
        lines.truncate(LINES_MAX);
        let first = *lines.first()?;
        let any = |fits: fn(&[u8]) -> bool| lines.iter().any(|line| fits(line));
        if any(strace::fits) {
            return Some(Self::Strace);
        }
        if any(tracefs::fits) {
            return Some(Self::Tracefs);
        }
        if blkparse::fits(first) {
            return Some(Self::Blkparse);
        }
        // The format that most lines match. So one bad line does not make the format unknown; the
        // importer reports it with its number. Stricter formats come first: a field that must be a
        // number in one format may be any word in another.
        let mut best = (None, 0);
        for (format, layout) in [
            (Self::VscsiCsv, &columns::VSCSI_CSV),
            (Self::Msr, &columns::MSR),
            (Self::Alibaba, &columns::ALIBABA),
            (Self::Tencent, &columns::TENCENT),
            (Self::Spc, &columns::SPC),
            (Self::Mqsim, &columns::MQSIM),
            (Self::Arc, &columns::ARC),
            (Self::Lirs, &columns::LIRS),
        ] {
            let fitting = lines.iter().filter(|line| layout.fits(line)).count();
            if fitting > best.1 {
                best = (Some(format), fitting);
            }
        }
        best.0.filter(|_| best.1 * 2 >= lines.len())
    }

    /// The format for a file name extension, with or without a compression suffix.
    fn of_name(name: &Path) -> Option<Self> {
        let packed = name.extension().is_some_and(|ending| ending == "gz" || ending == "zst");
        let plain = if packed { Path::new(name.file_stem()?) } else { name };
        match plain.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "iolog" => Some(Self::Fio),
            "strace" => Some(Self::Strace),
            "blkparse" => Some(Self::Blkparse),
            "lis" => Some(Self::Arc),
            "vscsi" | "vscsi1" | "vscsi2" | "vscsitrace" => Some(Self::Vscsi),
            "spc" => Some(Self::Spc),
            _ => None,
        }
    }
}

/// Whether a name is in libCacheSim's style: `w01.oracleGeneral`, `w01.oracleGeneral.bin.zst`.
fn is_oracle_general(name: &Path) -> bool {
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').skip(1).any(|part| part.eq_ignore_ascii_case("oracleGeneral"))
}

/// Lines used for detection: enough to skip initial output of a traced program.
const LINES_MAX: usize = 100;
