//! Functions by which the libraries below bowwave create descriptors.

use std::ffi::{c_int, c_uint};

use bowwave_interpose::Inside;

use crate::real::own_number;

/// Defines functions that create a descriptor. Bowwave's own lie above the low numbers.
macro_rules! own {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            bowwave_interpose::next_in_line! { fn next($($argument: $kind),*) -> c_int = $name; }
            // SAFETY: the arguments are those of the C library's function.
            let create = || unsafe { next($($argument),*) };
            if Inside::is() { own_number(create) } else { create() }
        }
    )*};
}

own! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int);
    fn epoll_create1(flags: c_int);
    fn eventfd(count: c_uint, flags: c_int);
}
