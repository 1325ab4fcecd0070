//! Fuzz targets of the boundaries to servers, disks, the kernel and C programs, in one program. The
//! environment variable `BOWWAVE_FUZZ` names the target. Run them with `tools/fuzz.sh`.
//!
//! | target | what is arbitrary | what must hold |
//! |---|---|---|
//! | `response` | status and headers of a response, times, redirections, error documents | an accepted response is the requested range of the version; credentials stay with their origin |
//! | `server` | bytes that a web server sends, over loopback | a read that succeeds returns the bytes of the version that was opened |
//! | `listing` | listings of each dialect, tables of parts | a right page is read as written; an accepted page is read again as itself |
//! | `segment` | a segment file of a disk cache | only pages with their checksum are delivered |
//! | `mount` | FUSE requests | replies are well-formed, errors are errno values, files hold what was written |
//! | `capi` | calls of the C API | results as the header says, no panic |
//! | `region` | messages of a userfaultfd; reads, writes and advice of regions | memory holds the file's bytes, or what was written |

#![no_main]

mod capi;
mod listing;
mod mount;
mod region;
mod response;
mod server;
mod steps;
#[path = "../tally.rs"]
mod tally;

use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};

static TARGET: LazyLock<fn(&[u8]) -> Option<bool>> = LazyLock::new(|| {
    let name = std::env::var("BOWWAVE_FUZZ").unwrap_or_default();
    match &*name {
        "response" => |bytes| structured(bytes, response::run),
        "server" => |bytes| structured(bytes, server::run),
        "listing" => |bytes| structured(bytes, listing::run),
        "segment" => |bytes| Some(bowwave_backend::fuzzing::read_segment(bytes) > 0),
        "mount" => |bytes| structured(bytes, mount::run),
        "capi" => |bytes| structured(bytes, capi::run),
        "region" => |bytes| structured(bytes, region::run),
        _ => panic!(
            "BOWWAVE_FUZZ: '{name}' is none of response, server, listing, segment, mount, capi, region"
        ),
    }
});

fuzz_target!(|bytes: &[u8]| -> Corpus {
    match TARGET(bytes) {
        Some(accepted) => {
            tally::count(accepted);
            Corpus::Keep
        }
        None => Corpus::Reject,
    }
});

/// Runs a target on the input decoded from `bytes`; `None` if they are too short.
fn structured<'a, T: Arbitrary<'a>>(bytes: &'a [u8], run: fn(T) -> bool) -> Option<bool> {
    T::arbitrary_take_rest(Unstructured::new(bytes)).ok().map(run)
}
