//! Samples evenly, rare items before common ones.

/// Chooses which of `classes` to keep, at most about `quota`, in order.
///
/// Classes with few members keep all; the others share the remaining quota. Of each group of `k`
/// neighbours in a class one is retained, at random with a fixed seed. Every `k`-th would alias
/// with `k` alternating streams.
pub(super) fn keep(classes: &[u8], quota: usize) -> Vec<usize> {
    if classes.len() <= quota {
        return (0..classes.len()).collect();
    }
    let every = every(classes, quota);
    let mut seen = [0_usize; CLASSES];
    let mut kept = Vec::with_capacity(quota + CLASSES);
    for (index, &class) in classes.iter().enumerate() {
        let class = usize::from(class) % CLASSES;
        let (block, place) = (seen[class] / every[class], seen[class] % every[class]);
        if place == pick(block, every[class]) {
            kept.push(index);
        }
        seen[class] += 1;
    }
    kept
}

/// Retains the values whose indices are in `kept`.
pub(super) fn select<T: Copy>(values: &mut Vec<T>, kept: &[usize]) {
    *values = kept.iter().map(|&index| values[index]).collect();
}

/// A read has three outcomes.
const CLASSES: usize = 3;

/// Sampling interval of each class.
fn every(classes: &[u8], quota: usize) -> [usize; CLASSES] {
    let mut counts = [0_usize; CLASSES];
    classes.iter().for_each(|&class| counts[usize::from(class) % CLASSES] += 1);
    let mut order = [0, 1, 2];
    order.sort_by_key(|&class| counts[class]);
    let mut every = [1; CLASSES];
    let mut left = quota;
    for (place, class) in order.into_iter().enumerate() {
        let share = (left / (CLASSES - place)).max(1);
        every[class] = counts[class].div_ceil(share).max(1);
        left = left.saturating_sub(counts[class] / every[class]);
    }
    every
}

/// Which of the `every` members of a block is retained: a hash of the block's number.
pub(crate) fn pick(block: usize, every: usize) -> usize {
    let mut word = (block as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((word ^ (word >> 31)) >> 11) as usize % every
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_classes_are_retained_completely() {
        let classes: Vec<u8> = (0..100_000).map(|index| if index % 1000 == 7 { 2 } else { 0 }).collect();
        let kept = keep(&classes, 1000);
        assert_eq!(kept.iter().filter(|&&index| classes[index] == 2).count(), 100);
        assert!((900..=1010).contains(&kept.len()), "{}", kept.len());
        assert!(kept.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn interleaved_streams_are_all_shown() {
        let kept = keep(&vec![0; 80_000], 10_000);
        let mut of_stream = [0; 8];
        kept.iter().for_each(|index| of_stream[index % 8] += 1);
        assert!(of_stream.iter().all(|count| (1000..1500).contains(count)), "{of_stream:?}");
    }

    #[test]
    fn short_lists_are_not_sampled() {
        assert_eq!(keep(&[0, 1, 2], 3), [0, 1, 2]);
    }
}
