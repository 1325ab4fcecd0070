//! Sequences as long as the input has bytes for. Those of `Vec` end after two steps in the mean.

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};

/// Steps one after the other; the last field of an input.
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

/// More take longer than they find.
const STEPS_MAX: usize = 48;
