//! Finds the program, and checks that a library can be preloaded into it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::Failure;

/// The program's file, searched as shells do; rejects a program that cannot be served.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let found = if name.as_bytes().contains(&b'/') {
        is_program(Path::new(name)).then(|| PathBuf::from(name))
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).map(|directory| directory.join(name)).find(|path| is_program(path))
    };
    let found = found.ok_or_else(|| absent(name))?;
    check(&found, INTERPRETERS_MAX)?;
    Ok(found)
}

/// Why there is no such program, with the exit codes of shells: 127, or 126 if it cannot be
/// executed.
fn absent(name: &OsStr) -> Failure {
    let shown = Path::new(name).display();
    let missing = || failed!("{shown}: there is no such program").with_code(NOT_FOUND);
    if !name.as_bytes().contains(&b'/') {
        return missing().try_this("its path, or a directory of it in PATH");
    }
    match fs::metadata(name) {
        Ok(found) if found.is_dir() => {
            failed!("{shown} is a directory, not a program").with_code(NOT_EXECUTABLE)
        }
        Ok(_) => failed!("{shown} is not executable")
            .with_code(NOT_EXECUTABLE)
            .try_this(format_args!("chmod +x {shown}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing().try_this("its path"),
        Err(error) => failed!("cannot run {shown}: {error}").with_code(NOT_EXECUTABLE),
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Whether the dynamic linker would load our library into it.
fn check(path: &Path, interpreters: usize) -> Result<(), Failure> {
    let shown = path.display();
    let cannot = |why: &str| {
        failed!("{shown} {why}, so that bowwave cannot serve it")
            .try_this("to mount the store: bowwave mount URL DIR")
    };
    let failed = |error: io::Error| failed!("cannot read {shown}: {error}");
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & 0o6000 != 0 && !rustix::process::geteuid().is_root() {
        return Err(cannot(
            "runs with other privileges (set-user-id), and the dynamic linker then loads nothing",
        ));
    }
    let mut head = Vec::new();
    (&file).take(HEAD).read_to_end(&mut head).map_err(failed)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| b" \t\r".contains(byte)).filter(|word| !word.is_empty());
        return match words.next() {
            Some(interpreter) if interpreters > 0 => {
                check(Path::new(OsStr::from_bytes(interpreter)), interpreters - 1)
            }
            _ => Err(cannot("is a script without an interpreter")),
        };
    }
    match linked(&file, &head) {
        Some(Linked::Dynamically(linker)) if linker.windows(4).any(|part| part == b"musl") => {
            Err(cannot("is linked with another C library than bowwave (musl)"))
        }
        Some(Linked::Dynamically(_)) => Ok(()),
        Some(Linked::Statically) => Err(cannot("is linked statically, without the dynamic linker")),
        Some(Linked::OtherMachine) => Err(cannot("is built for another machine than bowwave")),
        // A script without a `#!` line, which shells and `execvp` run by /bin/sh.
        None => Err(cannot("is neither a program (ELF) nor a script that names its interpreter")),
    }
}

/// How a program is linked.
#[derive(Debug, PartialEq, Eq)]
enum Linked {
    Dynamically(Vec<u8>),
    Statically,
    OtherMachine,
}

/// From the ELF header: 64 bits, program headers, the interpreter (elf(5)).
fn linked(file: &File, head: &[u8]) -> Option<Linked> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let own = fs::read("/proc/self/exe").ok()?;
    // Class, byte order; machine.
    if head.get(4..6)? != own.get(4..6)? || head.get(18..20)? != own.get(18..20)? || head[4] != ELF64 {
        return Some(Linked::OtherMachine);
    }
    let word = |bytes: &[u8], at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_ne_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let (table, size, count) = (word(head, 32)?, u64::from(half(54)?), u64::from(half(56)?));
    for index in 0..count {
        let mut segment = [0; 56];
        file.read_exact_at(&mut segment, table.checked_add(index * size)?).ok()?;
        if segment[..4] == INTERPRETER.to_ne_bytes() {
            let mut linker = vec![0; usize::try_from(word(&segment, 32)?).ok()?.min(4096)];
            file.read_exact_at(&mut linker, word(&segment, 8)?).ok()?;
            return Some(Linked::Dynamically(linker));
        }
    }
    Some(Linked::Statically)
}

/// Exit code for a program that is not found.
const NOT_FOUND: u8 = 127;
/// Exit code for a program that cannot be executed.
pub(super) const NOT_EXECUTABLE: u8 = 126;
/// Bytes to read to identify a file.
const HEAD: u64 = 4096;
/// A file of 64 bits.
const ELF64: u8 = 2;
/// `PT_INTERP`.
const INTERPRETER: u32 = 3;
/// Maximum nested interpreters, as in Linux.
const INTERPRETERS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamically_linked_programs_are_recognised() {
        let own = File::open("/proc/self/exe").expect("it is there");
        let mut head = vec![0; HEAD as usize];
        own.read_exact_at(&mut head, 0).expect("a long file");
        assert!(matches!(linked(&own, &head), Some(Linked::Dynamically(_))));
        head[18] ^= 1;
        assert_eq!(linked(&own, &head), Some(Linked::OtherMachine));
        assert_eq!(linked(&own, b"\x7fELF"), None);
        assert_eq!(linked(&own, b""), None);
    }
}
