//! The preloaded libraries of `bowwave run`, embedded so that the program needs no other file.
//!
//! Included by the assembler, not `include_bytes!`: the compiler also checks and documents this
//! crate before the libraries are built.
#![allow(unsafe_code, reason = "refers to bytes that the assembler takes in")]

use std::arch::global_asm;
use std::slice;

use bowwave_cli::Libraries;

global_asm!(
    concat!(
        ".pushsection .rodata.bowwave_libraries, \"a\"\n",
        ".globl bowwave_preload_begin\n.hidden bowwave_preload_begin\n",
        ".globl bowwave_preload_end\n.hidden bowwave_preload_end\n",
        ".globl bowwave_heap_begin\n.hidden bowwave_heap_begin\n",
        ".globl bowwave_heap_end\n.hidden bowwave_heap_end\n",
        "bowwave_preload_begin:\n.incbin \"",
        env!("BOWWAVE_LIBRARIES"),
        "/libbowwave_preload.so\"\nbowwave_preload_end:\n",
        "bowwave_heap_begin:\n.incbin \"",
        env!("BOWWAVE_LIBRARIES"),
        "/libbowwave_heap.so\"\nbowwave_heap_end:\n",
        ".popsection\n",
    ),
    options(raw)
);

unsafe extern "C" {
    static bowwave_preload_begin: u8;
    static bowwave_preload_end: u8;
    static bowwave_heap_begin: u8;
    static bowwave_heap_end: u8;
}

/// The libraries.
pub(crate) fn libraries() -> Libraries {
    Libraries {
        preload: between(&raw const bowwave_preload_begin, &raw const bowwave_preload_end),
        heap: between(&raw const bowwave_heap_begin, &raw const bowwave_heap_end),
    }
}

fn between(begin: *const u8, end: *const u8) -> &'static [u8] {
    // SAFETY: the two labels enclose bytes of the program's read-only data.
    unsafe { slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}
