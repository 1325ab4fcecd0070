//! The rules of this repository as data: change a rule here, and say why in the commit.

/// Maximum lines of a source file; a longer one holds more than one idea.
pub(super) const SOURCE_LINES_MAX: usize = 700;

/// Extensions of source files, to which [`SOURCE_LINES_MAX`] applies.
pub(super) const SOURCE_EXTENSIONS: &[&str] = &["rs", "py", "sh"];

/// Roots of absolute paths that exist on one machine only. Split, so that this file does not find
/// itself.
pub(super) const MACHINE_ROOTS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/fa", "rm/")];

/// Unfinished or disabled code, and what to do instead.
pub(super) const UNFINISHED: &[(&str, &str)] = &[
    (concat!("to", "do!("), "write it, or leave the item out"),
    (concat!("unimple", "mented!("), "write it, or leave the item out"),
    (concat!("#[ign", "ore"), "a test runs always, or probes for what it needs and says what it found"),
];

/// Files that may contain `unsafe` (a trailing `/` means the whole directory): frames and their
/// users, the lock over them, rings, system calls, memory maps in tests.
pub(super) const UNSAFE_ALLOWED: &[&str] = &[
    "crates/bowwave-backend/src/buf.rs",
    "crates/bowwave-backend/src/file/owner.rs",
    "crates/bowwave-backend/src/file/ring.rs",
    "crates/bowwave-backend/src/write_buf.rs",
    "crates/bowwave-backend/tests/descriptors.rs",
    "crates/bowwave-capi/src/",
    "crates/bowwave-cli/src/commands/read/kernel.rs",
    "crates/bowwave-cli/src/embedded.rs",
    "crates/bowwave-cli/tests/common/close.rs",
    "crates/bowwave-cli/tests/conformance/kernel.rs",
    "crates/bowwave-control/src/system.rs",
    "crates/bowwave-engine/src/arena.rs",
    "crates/bowwave-engine/src/copy.rs",
    "crates/bowwave-engine/src/file.rs",
    "crates/bowwave-engine/src/offset_mapped.rs",
    "crates/bowwave-engine/src/request.rs",
    "crates/bowwave-engine/src/shard.rs",
    "crates/bowwave-engine/src/shard/write.rs",
    "crates/bowwave-engine/src/write_out.rs",
    "crates/bowwave-fuse/src/advise.rs",
    "crates/bowwave-fuse/src/priority.rs",
    "crates/bowwave-fuse/tests/all/reading.rs",
    "crates/bowwave-fuse/tests/all/writing.rs",
    "crates/bowwave-heap/src/",
    "crates/bowwave-interpose/src/",
    "crates/bowwave-preload/src/",
    "crates/bowwave-python/src/bytes.rs",
    "crates/bowwave-python/src/completions.rs",
    "crates/bowwave-python/src/process.rs",
    "crates/bowwave-python/src/region.rs",
    "crates/bowwave-region/benches/faults.rs",
    "crates/bowwave-region/examples/swap_beside.rs",
    "crates/bowwave-region/src/anonymous/buffers.rs",
    "crates/bowwave-region/src/anonymous/memory.rs",
    "crates/bowwave-region/src/anonymous/queue.rs",
    "crates/bowwave-region/src/anonymous/region.rs",
    "crates/bowwave-region/src/anonymous/transfers.rs",
    "crates/bowwave-region/src/anonymous/vec.rs",
    "crates/bowwave-region/src/copy.rs",
    "crates/bowwave-region/src/fork.rs",
    "crates/bowwave-region/src/inner.rs",
    "crates/bowwave-region/src/kernel.rs",
    "crates/bowwave-region/src/model.rs",
    "crates/bowwave-region/src/region.rs",
    "crates/bowwave-region/src/signals.rs",
    "crates/bowwave-region/src/uffd.rs",
    "crates/bowwave-region/tests/bad_input.rs",
    "crates/bowwave-region/tests/common/mod.rs",
    "crates/bowwave-region/tests/file_maps.rs",
    "crates/bowwave-region/tests/forks.rs",
    "crates/bowwave-region/tests/signals.rs",
    "crates/bowwave-region/tests/soak.rs",
    "crates/bowwave-region/tests/swap_model/mod.rs",
    "crates/bowwave-region/tests/swap_reclaimed.rs",
    "crates/bowwave-trace/src/binary/map.rs",
    "fuzz/src/boundaries/capi.rs",
    "fuzz/src/boundaries/region.rs",
];

/// Directories of the repository whose files documents name.
pub(super) const DIRECTORIES: &[&str] = &["crates/", "docs/", "fuzz/", "tools/", "xtask/"];

/// Documents that name the tests of their promises.
pub(super) const NAME_TESTS: &[&str] = &["docs/INTEGRITY.md", "docs/SEMANTICS.md", "docs/THREATS.md"];

/// The document that names files and items of earlier versions.
pub(super) const HISTORY: &str = "CHANGELOG.md";

/// Columns of a line of comments or documents.
pub(super) const PROSE_COLUMNS_MAX: usize = 100;

/// Words for which the field has another term, and that term.
pub(super) const WORDS: &[(&str, &str)] = &[
    ("folder", "directory"),
    ("folders", "directories"),
    ("whoever", "the component, or \"you\""),
    ("somebody", "the component, or \"you\""),
    ("foretell", "predict"),
    ("foretold", "predicted"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("itinerary", "read plan"),
    ("wish", "target"),
    ("wishes", "targets"),
    ("purse", "budget"),
    ("bell", "wake-up"),
    ("bells", "wake-ups"),
    ("on its way", "in flight"),
    ("on their way", "in flight"),
    ("at an even distance", "strided"),
    ("of no use", "unused"),
    ("so many", "the number, or \"at most N\""),
    ("who waits", "demand"),
    ("who is first", "time to first byte"),
    ("to the letter", "as published"),
    ("hold against", "compare with"),
    ("held against", "compared with"),
    ("the same of", "the noun again"),
    ("what there is of", "the noun again"),
];

/// Permitted imports between our crates. Arrows go one way; `bowwave-sim` and `bowwave-engine`
/// never meet.
pub(super) const ARROWS: &[(&str, &[&str])] = &[
    ("bowwave-core", &[]),
    ("bowwave-baselines", &["bowwave-core"]),
    ("bowwave-trace", &["bowwave-core"]),
    ("bowwave-device", &["bowwave-core"]),
    ("bowwave-backend", &["bowwave-core", "bowwave-device"]),
    ("bowwave-sim", &["bowwave-core", "bowwave-baselines", "bowwave-device", "bowwave-trace"]),
    ("bowwave-engine", &["bowwave-core", "bowwave-baselines", "bowwave-backend"]),
    ("bowwave-fuse", &["bowwave-engine"]),
    ("bowwave-region", &["bowwave-core", "bowwave-baselines", "bowwave-backend", "bowwave-engine"]),
    ("bowwave-control", &["bowwave-engine", "bowwave-region"]),
    ("bowwave-capi", &["bowwave-control", "bowwave-engine", "bowwave-region"]),
    ("bowwave-python", &["bowwave-engine", "bowwave-region"]),
    ("bowwave-interpose", &[]),
    ("bowwave-heap", &["bowwave-control", "bowwave-interpose", "bowwave-region"]),
    ("bowwave-preload", &["bowwave-control", "bowwave-engine", "bowwave-interpose", "bowwave-region"]),
    (
        "bowwave-cli",
        &[
            "bowwave-control",
            "bowwave-core",
            "bowwave-baselines",
            "bowwave-trace",
            "bowwave-backend",
            "bowwave-sim",
            "bowwave-engine",
            "bowwave-fuse",
            "bowwave-heap",
            "bowwave-preload",
            "bowwave-region",
        ],
    ),
    (
        "bowwave-fuzz",
        &[
            "bowwave-core",
            "bowwave-trace",
            "bowwave-backend",
            "bowwave-sim",
            "bowwave-engine",
            "bowwave-fuse",
            "bowwave-region",
            "bowwave-capi",
        ],
    ),
    ("xtask", &[]),
];

/// Libraries permitted in one crate's manifest only, so that each can be replaced there.
pub(super) const SINGLE_HOME: &[(&str, &str)] = &[
    ("clap", "bowwave-cli"),
    ("fuser", "bowwave-fuse"),
    ("io-uring", "bowwave-backend"),
    ("object_store", "bowwave-backend"),
    ("pyo3", "bowwave-python"),
    ("tokio", "bowwave-backend"),
];

/// Whether crates of this name are for tests: they may import anything, and only dev-dependencies
/// name them.
pub(super) fn is_testkit(name: &str) -> bool {
    name.starts_with("bowwave-") && name.ends_with("-testkit")
}

/// Whether a directory of this name holds build output or downloads.
pub(super) fn is_built(name: &str) -> bool {
    matches!(name, ".git" | ".venv" | "__pycache__" | "node_modules")
        || name == "target"
        || name.starts_with("target-")
}
