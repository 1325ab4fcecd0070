//! Sequences that use all bytes of the input. A `Vec` ends after two steps on average.

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};

/// Consecutive steps; the last field of an input.
#[derive(Debug)]
pub struct Steps<T>(pub Vec<T>);

impl<'a, T: Arbitrary<'a>> Arbitrary<'a> for Steps<T> {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let mut steps = Vec::new();
        while !bytes.is_empty() && steps.len() < STEPS_MAX {
            steps.push(T::arbitrary(bytes)?);
        }
        Ok(Self(steps))
    }
}

/// More steps take longer than they find bugs.
const STEPS_MAX: usize = 48;
