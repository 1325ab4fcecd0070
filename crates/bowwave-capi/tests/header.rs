//! The header and the functions agree in names, type order, numbers and structures.

use std::collections::BTreeMap;
use std::fs;
use std::mem::offset_of;
use std::path::Path;

/// Types of C and Rust.
const TYPES: &[(&str, &str)] = &[
    ("void", "()"),
    ("int", "c_int"),
    ("unsigned", "c_uint"),
    ("size_t", "usize"),
    ("int64_t", "i64"),
    ("uint64_t", "u64"),
    ("const char *", "*const c_char"),
    ("void *", "*mut c_void"),
    ("bowwave_store *", "*mut Store"),
    ("const bowwave_store *", "*const Store"),
    ("bowwave_file *", "*mut File"),
    ("const bowwave_file *", "*const File"),
    ("bowwave_region *", "*mut Region"),
    ("const bowwave_region *", "*const Region"),
    ("bowwave_swap *", "*mut Swap"),
    ("const bowwave_swap *", "*const Swap"),
    ("bowwave_memory *", "*mut Memory"),
    ("const bowwave_memory *", "*const Memory"),
    ("bowwave_control *", "*mut Control"),
    ("const char *const *", "*const *const c_char"),
    ("const struct bowwave_range *", "*const GivenRange"),
    ("struct bowwave_swap_counters *", "*mut SwapCounters"),
    ("struct bowwave_counters *", "*mut Counters"),
    ("struct bowwave_region_counters *", "*mut RegionCounters"),
];

/// Functions by name: parameter names and types, and the return type, as Rust types.
type Functions = BTreeMap<String, (Vec<(String, String)>, String)>;

fn here(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The header without comments, with normalised white space.
fn header() -> String {
    let text = fs::read_to_string(here("include/bowwave.h")).expect("the header");
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find("/*") {
        plain.push_str(&rest[..start]);
        rest = &rest[start + rest[start..].find("*/").expect("comments end") + 2..];
    }
    plain.push_str(rest);
    plain
}

fn ours(c: &str) -> String {
    let c = c.trim();
    let known = TYPES.iter().find(|(name, _)| *name == c);
    known.unwrap_or_else(|| panic!("{c}: no type of this header")).1.to_owned()
}

/// Splits `const char *url` into name and type.
fn declared(text: &str) -> (String, String) {
    let text = text.trim();
    let name = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').expect("a type") + 1;
    (text[name..].to_owned(), ours(&text[..name]))
}

fn functions_of_header() -> Functions {
    let text = header();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("extern"));
    let text = lines.collect::<Vec<_>>().join(" ");
    text.split(';')
        .filter(|declaration| declaration.contains('(') && declaration.contains("bowwave_"))
        .map(|declaration| {
            let (head, parameters) = declaration.split_once('(').expect("a function");
            let (name, returned) = declared(head);
            let parameters = parameters.trim_end().trim_end_matches(')');
            let parameters = if parameters == "void" { "" } else { parameters };
            let parameters =
                parameters.split(',').filter(|one| !one.trim().is_empty()).map(declared).collect();
            (name, (parameters, returned))
        })
        .collect()
}

fn functions_of_sources() -> Functions {
    let mut functions = Functions::new();
    for source in fs::read_dir(here("src")).expect("the sources") {
        let text = fs::read_to_string(source.expect("a source").path()).expect("a source");
        for part in text.split("#[unsafe(no_mangle)]\n").skip(1) {
            let signature = part.split(" {\n").next().expect("a body");
            let (head, rest) = signature.split_once('(').expect("a function");
            let name = head.rsplit(' ').next().expect("a name").to_owned();
            let (parameters, returned) = rest.rsplit_once(')').expect("an end");
            let returned = returned.trim().strip_prefix("-> ").unwrap_or("()").to_owned();
            let pairs = parameters.split(',').filter(|one| !one.trim().is_empty()).map(|one| {
                let (name, kind) = one.trim().split_once(": ").expect("a type");
                (name.to_owned(), kind.to_owned())
            });
            functions.insert(name, (pairs.collect(), returned));
        }
    }
    functions
}

#[test]
fn functions_match_their_declarations() {
    let (header, sources) = (functions_of_header(), functions_of_sources());
    assert!(sources.len() >= 20, "this test reads the sources: {sources:?}");
    let names = |functions: &Functions| functions.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&header), names(&sources));
    for (name, declared) in &header {
        assert_eq!(declared, &sources[name], "{name}");
    }
}

/// Fields of a structure of the header, all of them `uint64_t`.
fn fields_of(name: &str) -> Vec<String> {
    let text = header();
    let start = text.find(&format!("struct {name} {{")).expect("a structure");
    let body = text[start..].split_once('{').expect("a body").1.split_once('}').expect("an end").0;
    let fields = body.split(';').map(str::trim).filter(|field| !field.is_empty());
    fields.map(|field| field.strip_prefix("uint64_t ").expect("a number of 64 bits").to_owned()).collect()
}

/// Checks that a structure has the header's fields, in the same order and at the same offsets.
fn has_fields(ours: &[(&str, usize)], bytes: usize, name: &str) {
    let fields = fields_of(name).into_iter().enumerate();
    let fields: Vec<_> = fields.map(|(place, field)| (field, place * 8)).collect();
    assert!(
        fields.iter().map(|(field, at)| (field.as_str(), *at)).eq(ours.iter().copied()),
        "{name}: {ours:?}"
    );
    assert_eq!(bytes, ours.len() * 8, "{name}");
}

#[test]
fn structures_match_their_declarations() {
    use bowwave::counters::{Counters, RegionCounters};
    use bowwave::file::GivenRange;
    use bowwave::swap::SwapCounters;
    has_fields(Counters::FIELDS, size_of::<Counters>(), "bowwave_counters");
    has_fields(RegionCounters::FIELDS, size_of::<RegionCounters>(), "bowwave_region_counters");
    has_fields(SwapCounters::FIELDS, size_of::<SwapCounters>(), "bowwave_swap_counters");
    let range = [("offset", offset_of!(GivenRange, offset)), ("len", offset_of!(GivenRange, len))];
    has_fields(&range, size_of::<GivenRange>(), "bowwave_range");
}

#[test]
fn numbers_match_the_sources() {
    let defined: Vec<(String, u32)> = header()
        .lines()
        .filter_map(|line| line.strip_prefix("#define BOWWAVE_")?.split_once(' '))
        .map(|(name, value)| (name.to_owned(), value.trim().trim_end_matches('u').parse().expect("a number")))
        .collect();
    let mut expected: Vec<_> = ["NORMAL", "SEQUENTIAL", "RANDOM", "WILLNEED", "DONTNEED", "NOREUSE"]
        .into_iter()
        .zip(0..)
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let priorities = bowwave_engine::Priority::ALL.map(|priority| format!("{priority:?}").to_uppercase());
    expected.extend(priorities.into_iter().zip(1..));
    expected.push(("COPY_ON_WRITE".to_owned(), bowwave::region::COPY_ON_WRITE));
    expected.push(("IN_THREAD".to_owned(), bowwave::region::IN_THREAD));
    assert_eq!(defined, expected);
    // The numbers follow the order of the list in `arguments.rs`.
    let source = fs::read_to_string(here("src/arguments.rs")).expect("a source").to_lowercase();
    let places: Vec<_> = expected[..6]
        .iter()
        .map(|(name, _)| source.rfind(&format!("advice::{}", name.to_lowercase())).expect("an advice"))
        .collect();
    assert!(places.is_sorted(), "{places:?}");
}
